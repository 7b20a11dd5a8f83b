"""Trials of commands on the fake host."""

from __future__ import annotations

import io
from typing import Any

from pagecage.model.cage import Cage
from pagecage.model.record import Record
from pagecage.model.trial import CommandSpec, Trial, Workload
from tests.builders import trial_runs
from tests.fake_host.machine import Machine, make_trial

MEMORY = Cage("memory", {"MemoryMax": 64 * 1024**2, "MemorySwapMax": 0})


def bare_trial(workload: Workload, **changes: Any) -> Trial:
    """Return a trial in a cage on memory, without collectors, dataset and cache state."""
    usual = {"cage": MEMORY, "collectors": (), "dataset": None, "cache": "any"}
    return make_trial(workload=workload, **{**usual, **changes})


def carry_out(
    machine: Machine, script: str, out: io.BytesIO | None = None, **changes: Any
) -> Record:
    """Run a trial of `sh -c script`; return its record.

    `changes` are fields of the command, except
    `timeout_seconds cage collectors cache dataset conditions`,
    which are the trial's.
    """
    names = ("timeout_seconds", "cage", "collectors", "cache", "dataset", "conditions")
    own = {key: changes.pop(key) for key in names if key in changes}
    command = CommandSpec(**{"is_literal": True, **changes})
    workload = Workload("sh", ("-c", script), "command", command=command)
    return trial_runs.carry_out(machine, bare_trial(workload, **own), out=out)
