"""Trials of workloads on the fake host."""

from __future__ import annotations

import io
import shutil

import pytest

from pagecage.agent.host_session import HostSession
from pagecage.agent.session import run_trial
from pagecage.hosts.agent_package import AgentPackage, agent_bytes
from pagecage.model.record import Record, read_records
from pagecage.model.trial import Trial
from tests.builders.known import known
from tests.builders.programs import install_first
from tests.fake_host.machine import WORKLOADS, Machine, make_session

FIO = """#!/bin/sh
[ "$1" != --enghelp ] || { printf '\\tmmap\\n'; exit; }
for word in "$@"; do
  case $word in --output=*) out=${word#--output=} ;; *.fio) job=$word ;; esac
done
grep -qx invalidate=0 "$job" || exit 1
echo "$FAKE_MAJ_MIN rbytes=8192 rios=2 wbytes=0" >"$FAKE_SLICE/io.stat"
cat >"$out" <<'JSON'
{"fio version": "fio-3.39", "jobs": [{"jobname": "trial", "error": 0, "majf": 1, "minf": 0,
 "read": {"io_bytes": 4096, "total_ios": 1, "runtime": 500, "clat_ns": {"bins": {"2000": 1}}}}]}
JSON
"""


def carry_out(
    machine: Machine,
    trial: Trial,
    session: HostSession | None = None,
    out: io.BytesIO | None = None,
) -> Record:
    """Run one trial; return the one record that it adds to the host's file."""
    before = list(read_records(machine.records))
    run_trial(session or make_session(machine, out or io.BytesIO(), trial), trial, 1)
    *earlier, record = read_records(machine.records)
    assert len(earlier) == len(before)
    return record


def assert_read_back(record: Record) -> None:
    """Every expected limit was read back."""
    assert known(record.cage.read_back).items() >= known(record.cage.expected).items()


def collector_states(record: Record) -> dict[str, str]:
    return {name: found["status"] for name, found in record.collectors.items()}


def install_fio(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put an fio first on PATH that reports one read."""
    install_first(machine.root / "tools/fio", FIO, monkeypatch)


def last_record(machine: Machine) -> Record:
    return list(read_records(machine.records))[-1]


@pytest.fixture
def package(machine: Machine) -> AgentPackage:
    agent = machine.root / "agent.pyz"
    agent.write_bytes(agent_bytes())
    programs = shutil.copytree(
        WORKLOADS, machine.root / "programs", ignore=shutil.ignore_patterns("__pycache__")
    )
    return AgentPackage(agent, tuple(sorted(programs.glob("*.py"))), "0" * 64)
