"""Requests to the agent: one JSON line on its standard input or command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pagecage.model.cage import Cage
from pagecage.model.cage_json import cage_from_json, cage_to_json
from pagecage.model.trial import Trial, trial_from_json, trial_to_json


@dataclass(frozen=True)
class RunRequest:
    """One or more trials of a plan, for one machine state.

    `attempts` is each trial's attempt number. `machine` describes the machine state (`state_id
    restore_seq emulated details`). With `user` the trials run under the user's own systemd. `disks`
    has a directory on each disk beside the data directory's, by name. `own_programs` are the texts
    of the definition's own programs by name. With `own_disk` the data directory is on a disk that
    the agent makes of a file (`file`, `size_bytes`).
    """

    run_id: str
    plan_sha256: str
    host: str
    data_dir: str
    spool_dir: str
    records_path: str
    programs_dir: str
    user: bool
    machine: Mapping[str, Any]
    harness: Mapping[str, Any]
    trials: tuple[Trial, ...]
    attempts: Mapping[str, int] = field(default_factory=dict)
    disks: Mapping[str, str] = field(default_factory=dict)
    own_programs: Mapping[str, str] = field(default_factory=dict)
    own_disk: Mapping[str, Any] | None = None

    @property
    def spool(self) -> Path:
        """The memory-backed directory for traces."""
        return Path(self.spool_dir)


def request_to_json(request: RunRequest) -> dict[str, Any]:
    """Return the request as JSON data."""
    return {**asdict(request), "trials": [trial_to_json(trial) for trial in request.trials]}


def request_from_json(data: Mapping[str, Any]) -> RunRequest:
    """Return the request of JSON data."""
    return RunRequest(**{**data, "trials": tuple(map(trial_from_json, data["trials"]))})


@dataclass(frozen=True)
class ShellRequest:
    """A request for a shell in a cage. The shell starts in `directory`, whose disk is limited."""

    cage: Cage
    directory: str
    spool_dir: str
    user: bool


def shell_request_to_json(request: ShellRequest) -> dict[str, Any]:
    """Return the request as JSON data."""
    return {**vars(request), "cage": cage_to_json(request.cage)}


def shell_request_from_json(data: Mapping[str, Any]) -> ShellRequest:
    """Return the request of JSON data."""
    return ShellRequest(**{**data, "cage": cage_from_json(data["cage"])})
