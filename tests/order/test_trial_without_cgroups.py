"""A trial without limits where there are no cgroups: real processes, real counters."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pagecage.agent.session import run_trial
from pagecage.linux import cgroup_files
from pagecage.model.cage import Cage
from pagecage.model.record import Record, read_records
from pagecage.model.trial import CommandSpec, SetupStep, Trial, Workload
from pagecage.verdicts.evaluate import evaluate
from tests.builders.known import known
from tests.fake_host.machine import CAGE, Machine, make_session, make_trial
from tests.record_schema import breaches

FREE = Cage("uncaged", {})
NO_SYSTEMD: dict[str, Any] = {"pid1": False, "version": 0, "user": False, "user_manager": None}


def run_here(machine: Machine, trial: Trial) -> Record:
    """Run a trial on the machine without systemd and cgroups."""
    session = make_session(machine, io.BytesIO(), trial)
    facts = {**session.facts, "systemd": NO_SYSTEMD}
    run_trial(replace(session, facts=facts), trial, 1)
    assert not breaches(json.loads(machine.records.read_text().splitlines()[-1]))
    assert machine.left() == []
    return list(read_records(machine.records))[-1]


def free(**changes: Any) -> Trial:
    return make_trial(driver="process", cage=changes.pop("cage", FREE), **changes)


def command(*argv: str, **spec: Any) -> Trial:
    program, *arguments = argv
    workload = Workload(program, tuple(arguments), "command", 0, CommandSpec(**spec))
    return free(workload=workload, dataset=None, cache="any", collectors=())


def test_a_workload_is_measured_without_a_slice(machine: Machine) -> None:
    record = run_here(machine, free())
    assert (record.outcome, record.error) == ("ok", None)
    assert record.cage.slice is None
    assert known(record.cage.driver)["name"] == "process"
    assert not [line for line in machine.log_lines() if "slice" in line], "systemd was asked"
    counters = record.counters
    for moment in map(known, (counters.before, counters.after, counters.totals)):
        assert moment["cgroup"] is None
        assert moment["processes"]["io"]["rbytes"] >= 0
    assert record.response["memory_peak_bytes"] is None
    assert record.response["charged_cache_bytes"] is None
    assert record.collectors["sampler"]["status"] == "ok"


def test_its_cache_state_is_proven(machine: Machine) -> None:
    record = run_here(machine, free(cache="cold"))
    assert record.outcome == "ok"
    assert evaluate(record).cache_state_reached.verdict == "reached"
    go = known(record.cache.go)
    assert go.read_bytes is not None
    assert go.charged_bytes is None


def test_limits_are_refused(machine: Machine) -> None:
    record = run_here(machine, free(cage=CAGE))
    assert record.outcome == "requirement_missed"
    assert record.missed_requirements[0].requirement == "limits"
    assert "tight need cgroups" in record.missed_requirements[0].reason


def test_a_setup_step_runs_without_a_slice_of_its_own(machine: Machine) -> None:
    record = run_here(machine, free(cache="any", before=SetupStep("loads.py", ("{file}",))))
    assert (record.outcome, record.error) == ("ok", None)
    assert known(record.cache.step)["slice"] is None
    refused = run_here(machine, free(before=SetupStep("good.py", (), "other")))
    assert refused.outcome == "requirement_missed"


def test_a_command_has_its_own_bytes_and_exit_status(machine: Machine, tmp_path: Path) -> None:
    write = f"dd if=/dev/zero of={tmp_path}/data bs=65536 count=32 conv=fsync 2>/dev/null"
    record = run_here(machine, command("sh", "-c", write))
    assert record.outcome == "ok"
    before, after = (
        known(moment)["processes"]["io"]["wbytes"]
        for moment in (record.counters.before, record.counters.after)
    )
    assert 32 * 65536 <= after - before < 2 * 32 * 65536
    failed = run_here(machine, command("sh", "-c", "exit 7"))
    assert (failed.outcome, failed.exit.status) == ("failed", 7)


def test_a_daemon_is_found_and_ended(machine: Machine, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    script = f"(setsid sh -c 'echo $$ >{pid}; exec sleep 600' &); until [ -s {pid} ]; do :; done"
    record = run_here(machine, command("sh", "-c", script))
    assert record.outcome == "failed"
    assert known(record.exit.left_behind)[0]["name"] == "sleep"
    assert not Path(f"/proc/{pid.read_text().strip()}").exists()


def test_a_trial_that_takes_too_long_is_ended(machine: Machine) -> None:
    record = run_here(machine, replace(command("sleep", "600"), timeout_seconds=1.0))
    assert (record.outcome, record.exit.status) == ("timed_out", -9)


def test_an_imposed_memory_limit_that_was_met_excludes_the_trial(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    hits = iter(range(0, 100, 5))
    limits = {"memory.max": "1073741824"}

    def imposed(*_: Any) -> dict[str, dict[str, str]]:
        return {"/docker/x": {**limits, cgroup_files.HITS: str(next(hits))}}

    monkeypatch.setattr("pagecage.agent.caging.read_imposed_limits", imposed)
    verdicts = evaluate(run_here(machine, free()))
    assert verdicts.excluded
    assert "which the cage does not request; it was met 5 times" in verdicts.reasons[0]
