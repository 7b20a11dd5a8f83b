"""A program that knows no handshake: which files it reads, when it is done, where it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Command:
    """How a `command` is measured: from its start to its exit, or until it serves.

    `data_paths` are files, or directories for all files below, whose cache state is set and measured. It serves when a
    line of its output matches `ready_when` or when it listens on TCP `ready_port`. `directory` is where it runs (None:
    where the agent does). `is_literal`: no {place} is filled into its arguments. `streams_output` hands what it prints
    to whoever started the run, and `takes_input` feeds it with their standard input.
    """

    data_paths: tuple[str, ...] = ()
    ready_when: str | None = None
    ready_port: int | None = None
    timeout_seconds: float | None = None
    directory: str | None = None
    is_literal: bool = False
    streams_output: bool = False
    takes_input: bool = False

    @property
    def serves(self) -> bool:
        """Whether its time ends when it serves, not when it exits."""
        return self.ready_when is not None or self.ready_port is not None


def command_to_json(command: Command | None) -> dict[str, Any] | None:
    """The command as it stands in a plan."""
    return None if command is None else {**asdict(command), "data_paths": list(command.data_paths)}


def command_from_json(data: Mapping[str, Any] | None) -> Command | None:
    """The inverse of `command_to_json`."""
    return None if data is None else Command(**{**data, "data_paths": tuple(data["data_paths"])})
