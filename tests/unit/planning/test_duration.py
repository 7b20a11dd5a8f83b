"""Estimates of the duration of a trial against what was measured on one machine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pagecage.model.cage import Cage
from pagecage.model.trial import Dataset, Trial, Workload
from pagecage.planning.plan import make_trials
from pagecage.planning.size import DiskSpeed, making_seconds, trial_seconds
from pagecage.units import GIB, MIB
from tests.builders.plans import BASE, CAGES, CHOICES

DISK = DiskSpeed(756e6, 500e6, 80e-6, 430e-6, trial_seconds=0.0)
RANDOM = ("--source", "mmap", "--pattern", "random", "--block-bytes", "4096")
ORDERED = ("--source", "mmap", "--pattern", "sequential", "--block-bytes", "4096")


def trial(arguments: tuple[str, ...], cache: str = "cold", **properties: int) -> Trial:
    return replace(
        make_trials(BASE, CAGES, CHOICES)[0],
        workload=Workload("pcread", arguments),
        cage=Cage("cage", properties, {}),
        cache=cache,
        dataset=Dataset(GIB),
        files=1,
        read_ahead_kb=128,
        collectors=(),
        max_seconds=None,
    )


@pytest.mark.parametrize(
    ("arguments", "memory", "measured"),
    [(ORDERED, 0, 1.46), (RANDOM, 0, 2.81), (ORDERED, GIB // 10, 1.42), (RANDOM, GIB // 10, 106.5)],
)
def test_reads_of_a_mapped_file(arguments: tuple[str, ...], memory: int, measured: float) -> None:
    limits = {"MemoryMax": memory} if memory else {}
    assert trial_seconds(trial(arguments, **limits), DISK) == pytest.approx(measured, rel=0.35)


def test_blocks_shorter_than_a_page_fault_once_each() -> None:
    pages = trial_seconds(trial(RANDOM, MemoryMax=GIB // 10), DISK)
    short = trial_seconds(trial((*RANDOM, "--block-bytes", "1024"), MemoryMax=GIB // 10), DISK)
    assert short / pages == pytest.approx(4, rel=0.05)


def test_a_pass_is_cut_at_the_limit_of_time() -> None:
    cut = replace(trial(RANDOM, MemoryMax=GIB // 10), max_seconds=15)
    assert trial_seconds(cut, DISK) == 15
    in_fio = replace(trial(("rw=randread", "time_based=1")), max_seconds=20)
    assert trial_seconds(in_fio, DISK) == 20


def test_a_resident_file_costs_its_reading_beforehand() -> None:
    resident = trial_seconds(trial(RANDOM, "resident", MemoryMax=GIB // 10), DISK)
    assert GIB / 756e6 < resident < 2.5


def test_caps_prolong_a_pass() -> None:
    by_bytes = trial_seconds(trial(ORDERED, IOReadBandwidthMax=20_000_000), DISK)
    assert by_bytes == pytest.approx(GIB / 20e6)
    by_count = trial_seconds(trial(ORDERED, IOReadIOPSMax=100), DISK)
    assert by_count == pytest.approx(GIB / (128 * 1024) / 100)


def test_the_trial_itself_takes_time_and_collectors_a_second() -> None:
    bare = trial(ORDERED)
    fixed = trial_seconds(bare, replace(DISK, trial_seconds=0.2)) - trial_seconds(bare, DISK)
    assert fixed == pytest.approx(0.2)
    observed = replace(bare, collectors=("iostat", "sar"))
    assert trial_seconds(observed, DISK) == trial_seconds(bare, DISK) > 1
    assert trial_seconds(replace(observed, dataset=Dataset(MIB)), DISK) == 1
    assert trial_seconds(replace(bare, dataset=Dataset(MIB)), DISK) < 0.1


def test_datasets_are_made_once() -> None:
    one = trial(ORDERED)
    many = [replace(one, files=2, dataset=Dataset(100 * MIB)), replace(one, files=2)]
    assert making_seconds([one, one], DISK) == pytest.approx(GIB / 500e6)
    assert making_seconds(many, DISK) == pytest.approx((200 * MIB + 2 * GIB) / 500e6)


def test_threads_wait_together() -> None:
    one = trial_seconds(trial(RANDOM, MemoryMax=GIB // 10), DISK)
    four = trial_seconds(trial((*RANDOM, "--threads", "4"), MemoryMax=GIB // 10), DISK)
    assert one / 4 < four < one / 2  # the disk's rate holds them too
