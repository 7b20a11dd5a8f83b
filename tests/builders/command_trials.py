"""Trials of commands on the fake host."""

from __future__ import annotations

import io
from typing import Any

from pagecage.agent.session import run_trial
from pagecage.model.cage import Cage
from pagecage.model.record import Record, read_records
from pagecage.model.trial import CommandSpec, Workload
from tests.fake_host.machine import Machine, make_session, make_trial

MEMORY = Cage("memory", {"MemoryMax": 64 * 1024**2, "MemorySwapMax": 0})


def carry_out(
    machine: Machine, script: str, out: io.BytesIO | None = None, **changes: Any
) -> Record:
    """Run a trial of `sh -c script`; return its record.

    `changes` are fields of the command, except
    `timeout_seconds cage collectors cache dataset conditions`,
    which are the trial's.
    """
    own = {
        key: changes.pop(key)
        for key in ("cage", "collectors", "cache", "dataset", "conditions")
        if key in changes
    }
    limit = changes.pop("timeout_seconds", 20.0)
    command = CommandSpec(**{"is_literal": True, **changes})
    workload = Workload("sh", ("-c", script), "command", command=command)
    trial = make_trial(
        workload=workload,
        timeout_seconds=limit,
        **{"cage": MEMORY, "collectors": (), "dataset": None, "cache": "any", **own},
    )
    run_trial(make_session(machine, out or io.BytesIO(), trial), trial, 1)
    return list(read_records(machine.records))[-1]
