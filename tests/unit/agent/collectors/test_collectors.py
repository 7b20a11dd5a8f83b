"""Collectors: recording before the workload starts, complete at the end, or reported as partial."""

from __future__ import annotations

import json
import shutil
import threading
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.agent.collectors import sampler
from pagecage.agent.collectors.bpftrace import FAULT_FLAGS, VM_FLAGS, decode
from pagecage.agent.collectors.collector import Collector, CollectorContext
from pagecage.agent.collectors.iostat import Iostat
from pagecage.agent.collectors.sampler import Sampler
from pagecage.agent.collectors.sar import Sar
from pagecage.agent.collectors.vmtouch import Vmtouch, parse_vmtouch
from pagecage.linux.child_processes import ToolProcesses
from tests.builders.known import known
from tests.builders.trial_runs import carry_out, collector_states
from tests.fake_host.machine import LIGHT, MAJ_MIN, Machine, make_trial


def collect(collector: Collector, seconds: float = 0.0) -> Any:
    collector.start()
    collector.wait_until_recording()
    time.sleep(seconds)
    return collector.stop()


def slice_of(around: CollectorContext) -> Path:
    return known(around.processes.cgroup).directories[0]


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_sampler_samples_ten_times_a_second(around: CollectorContext) -> None:
    outcome = collect(Sampler(around), 0.95)
    assert (outcome.status, outcome.reason) == ("ok", None)
    [path] = outcome.files
    series = rows(path)
    times = [row["t"] for row in series]
    assert 0.05 < median(later - t for t, later in pairwise(times)) < 0.2
    assert series[0]["io"] == {"rbytes": 5, "rios": 1, "wbytes": 0, "wios": 0}
    assert series[0]["memory_events"] == {"max": 3, "oom": 0, "oom_kill": 0}
    assert series[0]["cpu"] == {}
    assert times == sorted(times)


def test_the_sampler_takes_a_last_sample_at_the_end(around: CollectorContext) -> None:
    sampler = Sampler(around)
    sampler.start()
    sampler.wait_until_recording()
    (slice_of(around) / "io.stat").write_text(f"{MAJ_MIN} rbytes=999 wbytes=0 rios=7 wios=0\n")
    assert rows(sampler.stop().files[0])[-1]["io"]["rbytes"] == 999


def test_iostat_is_given_every_device_of_the_stack(
    around: CollectorContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = ("dm-0", "vdb1", "vdb")
    monkeypatch.setattr("pagecage.agent.collectors.iostat.stack_names", lambda disk: stack)
    started: list[list[str]] = []
    monkeypatch.setattr(ToolProcesses, "start", lambda self, argv, **options: started.append(argv))
    Iostat(around).start()
    assert started[0][started[0].index("-d") + 1 :] == [*stack, "1"]


def test_resident_pages_are_those_of_all_files_or_not_known(around: CollectorContext) -> None:
    [first] = around.datasets
    second = first.with_name("second.bin")
    second.write_bytes(bytes(8 * 4096))
    both = replace(around, datasets=(first, second))
    alone = rows(collect(Sampler(around)).files[0])[-1]["resident_pages"]
    together = rows(collect(Sampler(both)).files[0])[-1]["resident_pages"]
    assert together is None if alone is None else together == alone + 8
    missing = replace(around, datasets=(first, first.with_name("none.bin")))
    assert rows(collect(Sampler(missing)).files[0])[-1]["resident_pages"] is None


def test_slow_queries_of_residency_are_rare(
    around: CollectorContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query of 50 ms in each sample would take half of a CPU from the workload."""
    queries = []

    def slow(_descriptor: int) -> int:
        queries.append(time.monotonic())
        time.sleep(0.05)
        return 1

    monkeypatch.setattr(sampler, "cachestat_pages", slow)
    samples = rows(collect(Sampler(around), 1.0).files[0])
    assert len(samples) >= 4
    assert len(queries) <= 2 + (queries[-1] - queries[0]), "the first, one a second, the last"
    assert [row["resident_pages"] for row in (*samples[:2], samples[-1])] == [1, None, 1]


def test_the_bars_of_several_files_are_one() -> None:
    first = f"a.bin\n[{'o' * 60}] 30/60\r[{'O' * 60}] 60/60\n"
    text = f"{first}b.bin\n[{' ' * 60}] 0/60\n\n           Files: 2\n"
    bar = "O" * 30 + " " * 30
    assert parse_vmtouch(text) == {"resident_pages": 60, "total_pages": 120, "bar": bar}


def test_a_sampler_that_never_began_can_be_stopped(around: CollectorContext) -> None:
    assert Sampler(around).stop().status in ("ok", "partial", "failed", "missing")


def test_a_cgroup_that_goes_away_does_not_stop_the_sampler(around: CollectorContext) -> None:
    sampler = Sampler(around)
    sampler.start()
    sampler.wait_until_recording()
    shutil.rmtree(slice_of(around))
    time.sleep(0.15)
    assert sampler.stop().status == "ok"


def test_a_sampler_that_dies_reports_it(around: CollectorContext) -> None:
    (slice_of(around) / "io.pressure").write_text("some avg10=no\n")
    outcome = collect(Sampler(around))
    assert outcome.status == "failed"
    assert "sampling ended early" in outcome.reason


def test_a_gap_of_over_a_second_is_reported(
    around: CollectorContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampler = Sampler(around)
    real, slept = sampler._sample, threading.Event()

    def slow() -> dict[str, Any]:
        if not slept.is_set():
            slept.set()
            time.sleep(1.3)
        return real()

    monkeypatch.setattr(sampler, "_sample", slow)
    outcome = collect(sampler, 0.2)
    assert (outcome.status, outcome.reason) == ("partial", "1 gaps of over a second")


def test_iostat_ends_with_whole_json(around: CollectorContext) -> None:
    outcome = collect(Iostat(around))
    assert outcome.status == "ok"
    assert json.loads(outcome.files[0].read_text())["sysstat"]["hosts"]


UNREADABLE = "sadf cannot read sar.bin: Invalid system activity file"


@pytest.mark.parametrize(
    ("kind", "misbehaviour", "tool", "status", "reason"),
    [
        (Iostat, "DIES", "iostat", "failed", "iostat died while the trial ran"),
        (Iostat, "CUTS", "iostat", "partial", "iostat's JSON is cut off"),
        (Sar, "DIES", "sar", "failed", "sar died while the trial ran"),
        (Sar, "FAILS", "sadf", "partial", UNREADABLE),
    ],
)
def test_a_tool_that_misbehaves(
    around: CollectorContext,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[Any],
    misbehaviour: str,
    tool: str,
    status: str,
    reason: str,
) -> None:
    monkeypatch.setenv(f"FAKE_{misbehaviour}", tool)
    outcome = collect(kind(around), 0.3)
    assert (outcome.status, outcome.reason) == (status, reason)
    if reason == UNREADABLE:
        assert [path.name for path in outcome.files] == ["sar.bin"]


def test_iostat_that_does_not_end_is_ended(
    around: CollectorContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_STALLS", "iostat")
    monkeypatch.setattr("pagecage.linux.child_processes._STOP_SECONDS", 0.3)
    assert collect(Iostat(around)).status == "partial"


def test_sar_is_read_back(around: CollectorContext) -> None:
    outcome = collect(Sar(around))
    assert outcome.status == "ok"
    assert [path.name for path in outcome.files] == ["sar.bin", "sar.json"]


@pytest.mark.parametrize("kind", [Iostat, Sar, Vmtouch])
def test_a_tool_that_is_not_installed_is_missing(
    around: CollectorContext, monkeypatch: pytest.MonkeyPatch, kind: type[Any]
) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    outcome = collect(kind(around))
    assert outcome.status == "missing"
    assert outcome.reason.endswith("is not installed")
    assert outcome.files == ()


def test_vmtouch_draws_its_bars(around: CollectorContext) -> None:
    outcome = collect(Vmtouch(around))
    assert outcome.status == "ok"
    first, bar = rows(outcome.files[0])[0], "O" * 30 + " " * 30
    assert (first["resident_pages"], first["total_pages"], first["bar"]) == (128, 256, bar)


def test_vmtouch_that_prints_no_bar(
    around: CollectorContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_FAILS", "vmtouch")
    begin = time.monotonic()
    outcome = collect(Vmtouch(around), 0.1)
    assert time.monotonic() - begin < 3.0, "a bar that will not come is not waited for"
    assert (outcome.status, outcome.reason) == ("partial", "vmtouch printed no bar (exit status 1)")


def test_without_a_dataset_vmtouch_does_not_run(around: CollectorContext) -> None:
    bare = CollectorContext(around.directory, around.disk, around.processes, (), around.children)
    assert collect(Vmtouch(bare)).reason == "the trial has no dataset"
    assert rows(collect(Sampler(bare)).files[0])[0]["resident_pages"] is None


@given(st.text("oO ", min_size=60, max_size=60), st.integers(0, 2**40), st.integers(0, 2**40))
def test_any_bar_is_read(bar: str, resident: int, total: int) -> None:
    text = f"data.bin\n[{' ' * 60}] 0/{total}\r[{bar}] {resident}/{total}\n\n           Files: 1\n"
    assert parse_vmtouch(text) == {"resident_pages": resident, "total_pages": total, "bar": bar}


@pytest.mark.parametrize(
    "text", ["", "vmtouch: FATAL\n", "[oO] 1/2\n", f"[{'x' * 60}] 1/2\n", f"[{'O' * 60}] a/b\n"]
)
def test_output_without_a_bar(text: str) -> None:
    assert parse_vmtouch(text) is None


@given(st.integers(0, 2**40))
def test_flags_are_named_and_none_is_lost(word: int) -> None:
    for table in (VM_FLAGS, FAULT_FLAGS):
        values = {name: bit for bit, name in table.items()}
        names = decode(word, table)
        assert sum(values.get(name) or int(name, 16) for name in names) == word


def test_flags_of_a_random_read_mapping() -> None:
    names = "VM_READ VM_MAYREAD VM_MAYEXEC VM_MAYSHARE VM_SEQ_READ"
    assert decode(0x80D1, VM_FLAGS) == names.split()


def test_a_collector_that_died_is_in_the_record(machine: Machine) -> None:
    machine.misbehave(DIES="iostat sar")
    record = carry_out(machine, make_trial(cage=LIGHT))
    assert record.outcome == "ok"
    others = {"sampler": "ok", "vmtouch": "ok"}
    assert collector_states(record) == {**others, "iostat": "failed", "sar": "failed"}
