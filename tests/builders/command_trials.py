"""Trials of commands on the fake host."""

from __future__ import annotations

import io
from typing import Any

from pagecage.model.cage import Cage
from pagecage.model.record import Record
from pagecage.model.trial import CommandSpec, Workload
from tests.builders import trial_runs
from tests.fake_host.machine import Machine, make_trial

MEMORY = Cage("memory", {"MemoryMax": 64 * 1024**2, "MemorySwapMax": 0})


def carry_out(
    machine: Machine, script: str, out: io.BytesIO | None = None, **changes: Any
) -> Record:
    """Run a trial of `sh -c script`; return its record.

    `changes` are fields of the command, except
    `timeout_seconds cage collectors cache dataset conditions`,
    which are the trial's.
    """
    usual = {"cage": MEMORY, "collectors": (), "dataset": None, "cache": "any", "conditions": ()}
    own = {key: changes.pop(key, value) for key, value in usual.items()}
    limit = changes.pop("timeout_seconds", 20.0)
    command = CommandSpec(**{"is_literal": True, **changes})
    workload = Workload("sh", ("-c", script), "command", command=command)
    trial = make_trial(workload=workload, timeout_seconds=limit, **own)
    return trial_runs.carry_out(machine, trial, out=out)
