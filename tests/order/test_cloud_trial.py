"""Trials in a cloud volume's cage: burst credits, split requests, and latency."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace

import pytest

from pagecage.cli import execution
from pagecage.cli.execution import create_run
from pagecage.errors import PagecageError
from pagecage.hosts.local import LocalHost
from pagecage.model.cage import BurstCredits, Cage, CreditBucket, IoAccounting, LatencyFloor
from pagecage.model.plan import Plan
from pagecage.model.record import Record
from pagecage.model.trial import Trial
from pagecage.planning import enforcement
from pagecage.runner.run_folder import RunFolder
from tests.builders import trial_runs
from tests.builders.known import known
from tests.fake_host.machine import (
    LIGHT,
    Machine,
    frames_of,
    make_session,
    make_trial,
    trace_of,
)
from tests.record_schema import breaches

BURSTING = replace(
    LIGHT,
    burst=BurstCredits("full", iops=CreditBucket(2000, 100_000)),
    accounting=IoAccounting(262_144, True, True),
)
SLOW = replace(LIGHT, latency=LatencyFloor(1000, 1000))


def carry_out(
    machine: Machine, trial: Trial, out: io.BytesIO | None = None, **facts: object
) -> Record:
    session = make_session(machine, out or io.BytesIO(), trial)
    session.facts.update(facts)
    return trial_runs.carry_out(machine, trial, session)


def carried(record: Record) -> dict[str, str]:
    return {one["aspect"]: one["state"] for one in known(record.cage.fidelity)}


def test_credits_are_enforced_and_recorded(machine: Machine) -> None:
    out = io.BytesIO()
    trial = make_trial(cage=BURSTING, collectors=())
    record = carry_out(machine, trial, out, kernel="6.12.57+deb13-amd64")
    assert (record.outcome, record.error) == ("ok", None)
    credits_ = known(record.cage.credits)
    assert credits_["buckets"][0]["credits_at_start"] == 100_000
    assert [set(change) for change in credits_["changes"]] == [{"t", "IOReadIOPSMax"}]
    assert credits_["changes"][0]["IOReadIOPSMax"] == 2000
    assert credits_["error"] is None
    assert known(record.cage.read_back)["io.max.riops"] == "500", "systemd was given the base"
    assert record.collectors["credits"]["status"] == "ok"
    trace = trace_of(frames_of(out.getvalue()), "credits.jsonl")
    [bucket] = json.loads(trace.splitlines()[0])["buckets"]
    assert bucket == {"credits": 100000, "caps": {"IOReadIOPSMax": 2000}}
    assert not breaches(json.loads(machine.records.read_text().splitlines()[-1]))
    assert machine.left() == []


def test_the_record_has_the_cages_cloud_parts(machine: Machine) -> None:
    burst = BurstCredits("drained", CreditBucket(1000, 18000))
    record = carry_out(machine, make_trial(cage=replace(LIGHT, burst=burst), collectors=()))
    assert record.outcome == "ok"
    iops = {"rate": 1000, "credits": 18000}
    assert record.cage.burst == {"start": "drained", "iops": iops, "bandwidth": None}
    others = {"volume", "accounting", "latency"}
    assert not others & record.cage.present, "the cage has none of them"


def test_an_old_kernel_enforces_no_credits(machine: Machine) -> None:
    record = carry_out(machine, make_trial(cage=BURSTING), kernel="5.15.0-91-generic")
    assert (record.outcome, record.phase) == ("requirement_missed", "requirements")
    [missed] = record.missed_requirements
    assert "may hang throttled I/O on kernel 5.15.0-91-generic" in missed.reason


def test_request_splitting_is_set_for_the_trial_and_restored(machine: Machine) -> None:
    record = carry_out(machine, make_trial(cage=BURSTING, collectors=()), kernel="6.12.0")
    assert carried(record) == {"io_size": "exact", "merged": "stricter", "combined": "looser"}
    assert known(record.device.queue_settings)["max_sectors_kb"] == "256"
    lines = [line for line in machine.log_lines() if line.startswith("max_sectors_kb")]
    assert lines == ["max_sectors_kb 256", "max_sectors_kb 1280"]


def test_a_shared_limit_is_divided_without_credits_too(machine: Machine) -> None:
    both = {**LIGHT.properties, **dict.fromkeys(("IOReadIOPSMax", "IOWriteIOPSMax"), 500)}
    cage = Cage("shared", both, accounting=IoAccounting(None, None, True))
    record = carry_out(machine, make_trial(cage=cage, collectors=()), kernel="6.12.0")
    assert carried(record) == {"combined": "exact"}
    credits_ = known(record.cage.credits)
    assert credits_["buckets"][0]["properties"] == ["IOReadIOPSMax", "IOWriteIOPSMax"]
    assert credits_["changes"] == []
    assert record.collectors["credits"]["status"] == "ok"
    old = carry_out(machine, make_trial(cage=cage, collectors=()), kernel="5.15.0")
    assert (old.outcome, carried(old)) == ("ok", {"combined": "looser"})
    assert "credits" not in old.cage.present


def test_a_latency_that_a_cgroup_cannot_add_is_reported(machine: Machine) -> None:
    record = carry_out(machine, make_trial(cage=SLOW, collectors=()))
    assert (record.outcome, record.device.storage) == ("ok", "data")
    [fidelity] = known(record.cage.fidelity)
    assert (fidelity["aspect"], fidelity["state"]) == ("latency", "absent")


@pytest.mark.parametrize(
    ("cage", "read_ahead_kb", "named"),
    [
        (BURSTING, None, "max_sectors_kb"),
        (BURSTING, 128, "read_ahead_kb and max_sectors_kb"),
        (LIGHT, None, None),
    ],
)
def test_a_setting_of_the_disk_under_the_system_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, cage: Cage, read_ahead_kb: int | None, named: str | None
) -> None:
    host = LocalHost()
    disk = {"maj_min": "8:0", "node": "/dev/sda"}
    monkeypatch.setattr(LocalHost, "facts", lambda _: {"disk": disk})
    monkeypatch.setattr(enforcement, "_disk_of_root", lambda: "8:0")
    monkeypatch.setattr(RunFolder, "create", lambda *_: None)
    for name in ("prepare", "require_programs", "make_agent_package", "refuse_limits"):
        monkeypatch.setattr(execution, name, lambda *_: None)
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    plan = Plan("x", (make_trial(cage=cage, read_ahead_kb=read_ahead_kb),), {})
    if named is None:
        assert create_run(plan, host, False, print).plan is plan
    else:
        with pytest.raises(PagecageError, match=f"Set {named} of /dev/sda, which holds /"):
            create_run(plan, host, False, print)
    assert create_run(plan, host, True, print).plan is plan
