"""Conditions of a trial besides its cache state, and what its record says of the machine."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from pagecage.agent.programs import measured_part
from pagecage.agent.programs.command import HOME
from pagecage.agent.programs.measured_part import CacheChecks
from pagecage.verdicts.consistency import judge_consistency
from tests.builders.command_trials import carry_out
from tests.fake_host.machine import DATASET, Machine


def dataset(machine: Machine) -> str:
    return str(machine.data / DATASET.file_name)


def test_each_trial_has_an_empty_home_and_none_is_left(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    seen = machine.root / "seen"
    script = f'echo "$HOME $(ls -A "$HOME") $XDG_CACHE_HOME" >>{seen}; touch "$HOME/cache"'
    (machine.data / HOME).mkdir()
    (machine.data / HOME / "of-a-killed-agent").touch()
    for _ in range(2):
        record = carry_out(machine, script, conditions=("fresh-home",))
        assert (record.outcome, record.workload.home) == ("ok", "fresh")
    assert seen.read_text().splitlines() == [f"{machine.data / HOME}  "] * 2
    assert record.conditions == ("fresh-home",)
    assert not (machine.data / HOME).exists()


def test_without_the_condition_the_home_is_inherited(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/inherited")
    record = carry_out(machine, f'echo "$HOME" >{machine.root}/seen')
    assert (machine.root / "seen").read_text() == "/inherited\n"
    assert (record.workload.home, record.conditions) == ("inherited", ())


@pytest.mark.parametrize(
    ("script", "printed"),
    [
        ("printf abc", b"abc"),
        ("printf abc; exit 3", b"abc"),
        ("true", b""),
        ("head -c 300000 /dev/zero; echo an error >&2", bytes(300_000)),
    ],
)
def test_the_record_has_size_and_hash_of_the_output(
    machine: Machine, script: str, printed: bytes
) -> None:
    assert carry_out(machine, script).exit.stdout == {
        "bytes": len(printed),
        "hashed_bytes": len(printed),
        "sha256": hashlib.sha256(printed).hexdigest(),
    }


def test_a_program_that_serves_is_ended_so_its_output_is_not_compared(machine: Machine) -> None:
    record = carry_out(machine, "echo ready; exec sleep 60", ready_when="ready")
    assert (record.outcome, record.exit.stdout) == ("ok", None)


def test_a_queue_setting_that_is_changed_meanwhile_is_a_contradiction(machine: Machine) -> None:
    queue = machine.sys / "block/fakedisk/queue"
    record = carry_out(machine, f"sleep 0.1; echo 4096 >{queue}/read_ahead_kb")
    found = judge_consistency(record, ())
    assert found.verdict == "contradictory"
    assert "read_ahead_kb of fakedisk was 128 before the measured part and 4096" in found.reason
    assert judge_consistency(carry_out(machine, "sleep 0.1"), ()).verdict == "consistent"


def test_metadata_are_dropped_after_the_last_check_of_the_files(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    drop, checked = machine.root / "drop", []
    check = CacheChecks.at_go

    def at_go(checks: CacheChecks, evicted_bytes: int = 0) -> None:
        check(checks, evicted_bytes)
        checked.append(drop.exists())

    monkeypatch.setattr(CacheChecks, "at_go", at_go)
    monkeypatch.setattr(measured_part, "DROP", drop)
    monkeypatch.setattr(measured_part, "DEV", machine.root)
    (machine.root / "fakedisk").touch()
    cold = {"cache": "cold", "data_paths": (dataset(machine),)}
    record = carry_out(machine, f"test -s {drop}", conditions=("cold-metadata",), **cold)
    assert (record.outcome, record.cache.metadata) == ("ok", "cold")
    assert (checked, drop.read_text()) == ([False], "2")
    drop.unlink()
    record = carry_out(machine, f"test ! -e {drop}", **cold)
    assert (record.outcome, record.cache.metadata) == ("ok", "warm")
    assert carry_out(machine, "true").cache.metadata == "unknown"


def test_metadata_that_may_not_be_dropped_start_nothing(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured_part, "DROP", machine.root / "missing/drop_caches")
    record = carry_out(machine, f"touch {machine.root}/ran", conditions=("cold-metadata",))
    assert record.outcome == "requirement_missed"
    [missed] = record.missed_requirements
    assert missed.requirement == "metadata"
    assert "missing/drop_caches: No such file" in missed.reason
    assert not (machine.root / "ran").exists()


def test_the_record_has_the_settings_of_machine_and_process(machine: Machine) -> None:
    record = carry_out(machine, "true")
    before = record.machine.before or {}
    lines = Path("/proc/self/status").read_text().splitlines()
    [own] = [line.split()[1] for line in lines if line.startswith("Cpus_allowed_list")]
    assert (before["affinity"], before["nice"]) == (own, os.nice(0))
    assert set(record.machine.after or {}) <= set(before)


def test_the_record_has_the_cpu_time_around_the_trial(machine: Machine) -> None:
    record = carry_out(machine, "true")
    before, after = (
        (record.counters.around or {})["before"],
        (record.counters.around or {})["after"],
    )
    assert record.measured is not None
    assert after["monotonic_seconds"] - before["monotonic_seconds"] > record.measured.seconds
    assert after["agent_cpu_usec"] > before["agent_cpu_usec"]
    assert after["stat"]["user"] >= before["stat"]["user"]
