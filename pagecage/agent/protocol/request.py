"""What the controller asks of the agent: one JSON line on standard input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pagecage.model.cage import (
    Cage,
    cage_from_json,
    cage_to_json,
)
from pagecage.model.trial import Trial, trial_from_json, trial_to_json


@dataclass(frozen=True)
class RunRequest:
    """One or more trials of a plan, for one machine state.

    `attempts` gives each trial's attempt number; `machine` is what the host module knows of the machine state
    (`state_id restore_seq emulated details`); `user` asks for the user's own systemd.
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

    @property
    def spool(self) -> Path:
        """The memory-backed directory for traces."""
        return Path(self.spool_dir)


def request_to_json(request: RunRequest) -> dict[str, Any]:
    """The request as it travels."""
    return {**asdict(request), "trials": [trial_to_json(trial) for trial in request.trials]}


def request_from_json(data: Mapping[str, Any]) -> RunRequest:
    """The inverse of `request_to_json`."""
    return RunRequest(**{**data, "trials": tuple(map(trial_from_json, data["trials"]))})


@dataclass(frozen=True)
class ShellRequest:
    """What the controller asks for: the cage, the directory where the shell starts and whose disk is limited."""

    cage: Cage
    directory: str
    spool_dir: str
    user: bool


def order_to_json(order: ShellRequest) -> dict[str, Any]:
    """The order as it travels."""
    return {**vars(order), "cage": cage_to_json(order.cage)}


def order_from_json(data: Mapping[str, Any]) -> ShellRequest:
    """The inverse of `order_to_json`."""
    return ShellRequest(**{**data, "cage": cage_from_json(data["cage"])})
