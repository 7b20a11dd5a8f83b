"""Trials with many files, a setup step, another disk, or less memory."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pagecage.agent import cache_state, phases
from pagecage.agent.host_session import sweep
from pagecage.agent.settings import DirtyLimits, MemoryReservation
from pagecage.linux import block_device, page_cache
from pagecage.linux.page_cache import Residency, measure_residency
from pagecage.linux.systemd import Systemd
from pagecage.model.cage import Cage
from pagecage.model.json_codec import Json, to_json
from pagecage.model.trial import SetupStep, Trial, Workload
from tests.builders.command_trials import bare_trial
from tests.builders.known import known
from tests.builders.trial_runs import carry_out, install_fio
from tests.fake_host.machine import DATASET, LIGHT, Machine, make_dataset, make_session, make_trial

UNIT = "pagecage-r1_tight.1"


@pytest.fixture
def two(machine: Machine) -> Trial:
    """Return a trial of two files for the fake workload."""
    make_dataset(machine.data, replace(DATASET, seed=2))
    workload = Workload("good.py", ("--files", "{files}"))
    return make_trial(workload=workload, cage=LIGHT, files=2, collectors=("vmtouch",))


def test_every_file_is_handed_over_and_cold(machine: Machine, two: Trial) -> None:
    record = carry_out(machine, two)
    assert record.outcome == "ok"
    paths = (str(machine.data / dataset.file_name) for dataset in two.datasets)
    assert known(record.workload.argv)[1:] == ("--files", *paths)
    assert record.cache.file_bytes == 2 * DATASET.size_bytes
    assert record.cache.resident_bytes_before == 0


def test_every_file_is_resident(machine: Machine, two: Trial) -> None:
    record = carry_out(machine, replace(two, cache="resident"))
    assert record.cache.resident_bytes_before == 2 * DATASET.size_bytes
    assert record.outcome == "ok"


def test_a_file_that_is_thinned_out_while_it_is_loaded_is_loaded_again(
    machine: Machine, two: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = []

    def load_and_lose(path: Path) -> Residency:
        found = page_cache.load(path)
        if path.name not in passes:
            passes.append(path.name)
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 4096, os.POSIX_FADV_DONTNEED)
        return found

    monkeypatch.setattr(cache_state, "load", load_and_lose)
    record = carry_out(machine, replace(two, cache="resident"))
    assert len(passes) == 2
    assert record.outcome == "ok"
    assert record.cache.resident_bytes_before == 2 * DATASET.size_bytes


def test_a_missing_file_is_reported(machine: Machine, two: Trial) -> None:
    """The fake machine has no pcgen, so a third file cannot be made."""
    record = carry_out(machine, replace(two, files=3))
    assert (record.outcome, record.phase) == ("failed", "dataset")


@pytest.mark.parametrize(
    ("where", "unit"), [("same", f"{UNIT}.slice"), ("other", f"{UNIT}.before.slice")]
)
def test_a_setup_step_runs_in_its_slice_before_the_counters(
    machine: Machine, where: str, unit: str
) -> None:
    step = SetupStep("loads.py", ("{file}",), where)
    record = carry_out(machine, make_trial(cage=LIGHT, before=step, collectors=()))
    log = machine.log_lines()
    assert record.outcome == "ok"
    assert f"scope pagecage-step-r1_tight.1 in {unit}: loads.py" in log
    assert log.index(f"workload loads {DATASET.size_bytes}") < log.index("workload ready")
    found = known(record.cache.step)
    assert found["slice"].endswith(unit)
    assert record.cache.charged_to == found["slice"]
    assert (found["exit_status"], found["resident_bytes_after"]) == (0, DATASET.size_bytes)
    assert set(found["charged_bytes"]) == {record.cage.slice, found["slice"]}
    assert record.cache.resident_bytes_before == 0, "cold is what the step found"
    assert machine.left() == []


def test_a_sibling_slice_has_the_trials_limits(machine: Machine) -> None:
    step = SetupStep("loads.py", ("{file}",), "other")
    carry_out(machine, make_trial(cage=LIGHT, before=step, collectors=()))
    lines = [line.split() for line in machine.log_lines() if f"{UNIT}.before.slice" in line]
    verbs = [words[0] for words in lines if words[0] != "scope"]
    assert verbs == ["set-property", "start", "stop"]


def test_a_setup_step_must_leave_the_files_resident(machine: Machine) -> None:
    step = SetupStep("loads.py", ("{file}",), "same")
    trial = make_trial(cage=LIGHT, cache="resident", before=step, collectors=())
    record = carry_out(machine, trial)
    assert record.outcome == "ok"
    assert record.cache.resident_bytes_before == DATASET.size_bytes
    lazy = carry_out(machine, replace(trial, before=replace(step, arguments=())))
    assert (lazy.outcome, lazy.phase) == ("not_prepared", "before")
    assert "0 of 1048576 bytes are resident, not resident" in (lazy.error or "")


@pytest.mark.parametrize(
    ("flag", "outcome", "word"),
    [
        ("--fails", "not_prepared", "nothing was loaded"),
        ("--cannot", "requirement_missed", "cachestat is switched off"),
    ],
)
def test_a_step_that_fails_starts_no_workload(
    machine: Machine, flag: str, outcome: str, word: str
) -> None:
    step = SetupStep("loads.py", (flag,), "other")
    record = carry_out(machine, make_trial(cage=LIGHT, before=step, collectors=()))
    assert (record.outcome, record.phase) == (outcome, "before")
    assert word in (record.error or "")
    assert "workload ready" not in machine.log_lines()
    assert machine.left() == []


def test_limits_on_writes_are_refused_on_a_file_system_that_would_pass_them(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    journalled = block_device.read_mountinfo().replace(" rw\n", " rw,data=journal\n")
    monkeypatch.setattr(block_device, "read_mountinfo", lambda: journalled)
    record = carry_out(machine, make_trial(cage=Cage("writes", {"IOWriteIOPSMax": 100})))
    assert record.outcome == "requirement_missed"
    [missed] = record.missed_requirements
    assert missed.requirement == "limits"
    assert "ext4 with writeback outside of the trial's cgroup" in missed.reason
    reads = carry_out(machine, make_trial(cage=Cage("reads", {"IOReadIOPSMax": 100})))
    assert reads.missed_requirements == ()


def test_a_workload_that_reads_no_file_is_told_where_to_write(machine: Machine) -> None:
    workload = Workload("good.py", ("--dir", "{data_dir}", "--max-seconds", "{max_seconds}"))
    record = carry_out(machine, bare_trial(workload, cage=LIGHT, collectors=("iostat",)))
    assert (record.outcome, record.error) == ("ok", None)
    assert known(record.workload.argv)[1:] == ("--dir", str(machine.data), "--max-seconds", "5.0")
    assert record.device.read_latency_us is None


@pytest.mark.parametrize(
    "asks",
    [
        {"storage": "container_layer", "driver": "docker"},
        {"machine_memory_bytes": 2**28},
        {"dirty_limits": {"dirty_bytes": 2**24}},
    ],
)
def test_only_root_may_ask_for_a_disk_or_memory(machine: Machine, asks: Json) -> None:
    session = make_session(machine, io.BytesIO(), make_trial())
    session.facts["uid"] = 1000
    record = carry_out(machine, make_trial(cage=LIGHT, read_ahead_kb=None, **asks), session)
    assert (record.outcome, record.phase) == ("requirement_missed", "requirements")
    assert record.missed_requirements[0].reason.startswith("only root may")


LIMITS = {"dirty_bytes": 2**24, "dirty_background_bytes": 2**23}


@pytest.mark.parametrize(
    ("asks", "phase", "requirement"),
    [
        ({"machine_memory_bytes": 2**28}, "memory", "machine_memory"),
        ({"dirty_limits": LIMITS}, "dirty", "dirty_limits"),
    ],
    ids=["give up memory", "change dirty limits"],
)
def test_only_guests_of_pagecage(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, asks: Json, phase: str, requirement: str
) -> None:
    monkeypatch.setattr(phases, "OF_OURS", machine.root / "no-such-port")
    monkeypatch.setattr(MemoryReservation, "leave", lambda *_: pytest.fail("nothing may be taken"))
    monkeypatch.setattr(DirtyLimits, "set", lambda *_: pytest.fail("nothing may be set"))
    record = carry_out(machine, make_trial(cage=LIGHT, **asks))
    assert (record.outcome, record.phase) == ("requirement_missed", phase)
    assert record.missed_requirements[0].requirement == requirement
    assert to_json(record.machine_memory) == {}


def noted(seen: list[str], what: str) -> Callable[[object], list[str]]:
    """Return a restoration that finds nothing to report and is noted."""

    def restore(_: object) -> list[str]:
        seen.append(what)
        return []

    return restore


def test_memory_is_reserved_before_the_cache_state_and_released(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = machine.data / DATASET.file_name
    path.read_bytes()
    seen: list[str] = []

    def leave(_: MemoryReservation, wanted: int) -> dict[str, int]:
        seen.append(f"leave {wanted} with {measure_residency(path).resident_bytes}")
        left = {"requested_bytes": wanted, "available_bytes": wanted}
        return {**left, "hugepages": 5, "hugepage_bytes": 2**21}

    monkeypatch.setattr(phases, "OF_OURS", machine.root)
    monkeypatch.setattr(MemoryReservation, "leave", leave)
    monkeypatch.setattr(MemoryReservation, "restore", noted(seen, "restore"))
    record = carry_out(machine, make_trial(cage=LIGHT, machine_memory_bytes=2**28, collectors=()))
    assert record.outcome == "ok"
    assert seen == [f"leave {2**28} with {DATASET.size_bytes}", "restore"]
    assert record.machine_memory.hugepages == 5


def test_dirty_limits_are_set_before_the_workload_and_restored(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(phases, "OF_OURS", machine.root)
    monkeypatch.setattr(DirtyLimits, "read", lambda _: {"dirty_ratio": 20})

    def set_limits(_: DirtyLimits, wanted: dict[str, int]) -> dict[str, int]:
        seen.append(str(machine.log_lines()))
        return dict(wanted)

    monkeypatch.setattr(DirtyLimits, "set", set_limits)
    monkeypatch.setattr(DirtyLimits, "restore", noted(seen, "restored"))
    record = carry_out(machine, make_trial(cage=LIGHT, dirty_limits=LIMITS, collectors=()))
    assert record.outcome == "ok"
    assert to_json(record.dirty_limits) == {"requested": LIMITS, "in_force": LIMITS}
    assert "workload" not in seen[0]
    assert seen[1:] == ["restored"]


def test_unrequested_dirty_limits_are_recorded_and_kept(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DirtyLimits, "read", lambda _: {"dirty_ratio": 20})
    monkeypatch.setattr(DirtyLimits, "set", lambda *_: pytest.fail("nothing may be set"))
    record = carry_out(machine, make_trial(cage=LIGHT, collectors=()))
    assert to_json(record.dirty_limits) == {"requested": {}, "in_force": {"dirty_ratio": 20}}


def test_a_sweep_releases_memory_and_removes_disks(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemoryReservation, "restore", lambda _: ["memory restored"])
    monkeypatch.setattr(DirtyLimits, "restore", lambda _: ["limits restored"])
    name = "pagecage.agent.host_session.unmount_volume"
    monkeypatch.setattr(name, lambda spool: [f"disk in {spool.name}"])
    removed = sweep(Systemd(False, 257), machine.spool)
    assert removed == ["memory restored", "limits restored", "disk in spool"]


def test_a_workloads_own_figures_stand_beside_the_standard_ones(machine: Machine) -> None:
    record = carry_out(machine, make_trial("tells_figures.py", cage=LIGHT, collectors=()))
    response = record.response
    assert response["heartbeat_p50_us"] == 12.5
    assert response["cache_misses_per_block"] is None
    assert response["read_seconds"] == 0.5


def test_a_workload_that_takes_a_standard_name_has_failed(machine: Machine) -> None:
    record = carry_out(machine, make_trial("takes_a_name.py", cage=LIGHT, collectors=()))
    error = "its response takes the name of read_seconds"
    assert (record.outcome, record.error) == ("failed", error)
    assert record.response == {}


def test_fio_is_run_by_its_job_file_and_its_figures_are_the_answer(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_fio(machine, monkeypatch)
    workload = Workload("fio", ("ioengine=mmap", "rw=randread", "runtime={max_seconds}"), "fio")
    trial = make_trial(workload=workload, collectors=())
    trial = replace(trial, cage=replace(LIGHT, properties={}))
    record = carry_out(machine, trial)
    assert (record.outcome, record.error) == ("ok", None)
    assert record.response["read_seconds"] == 0.5
    assert record.response["fio_p50_us"] == 2
    assert record.response["amplification"] == 2
    assert known(record.workload.end)["fio_version"] == "fio-3.39"
    assert record.collectors["fio"]["status"] == "ok"
    other = replace(trial, workload=replace(workload, arguments=("ioengine=rados",)))
    missing = carry_out(machine, other)
    assert missing.outcome == "requirement_missed"
    assert missing.error == "this fio has no ioengine rados"
    assert machine.left() == []
