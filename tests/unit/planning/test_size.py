"""Durations of plans, and the largest size that fits a budget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from pagecage.definitions.experiment import Experiment
from pagecage.model.cage import Cage
from pagecage.model.disk_speed import DiskSpeed
from pagecage.model.trial import Dataset, Trial, Workload
from pagecage.planning.plan import make_trials
from pagecage.planning.size import fitting_size, has_datasets, making_seconds, trial_seconds
from pagecage.units import GIB, MIB
from tests.builders.plans import BASE, CAGES, CHOICES, size_table

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
    limited = trial(arguments, MemoryMax=memory) if memory else trial(arguments)
    assert trial_seconds(limited, DISK) == pytest.approx(measured, rel=0.35)


def test_blocks_shorter_than_a_page_fault_once_each() -> None:
    pages = trial_seconds(trial(RANDOM, MemoryMax=GIB // 10), DISK)
    short = trial_seconds(trial((*RANDOM, "--block-bytes", "1024"), MemoryMax=GIB // 10), DISK)
    assert short / pages == pytest.approx(4, rel=0.05)


def test_a_pass_is_cut_at_the_limit_of_time() -> None:
    cut = replace(trial(RANDOM, MemoryMax=GIB // 10), max_seconds=15)
    assert trial_seconds(cut, DISK) == 15
    in_fio = replace(trial(("rw=randread", "time_based=1")), max_seconds=20)
    assert trial_seconds(in_fio, DISK) == 20


DIRECT = ("ioengine=libaio", "direct=1", "iodepth=64", "rw=randread", "bs=4k", "numjobs=24")


@pytest.mark.parametrize(("runtime", "seconds"), [("runtime=60", 60), ("runtime=2m", 120)])
def test_a_job_of_fio_ends_after_its_own_runtime(runtime: str, seconds: float) -> None:
    job = replace(trial((*DIRECT, runtime)), max_seconds=3600, dataset=Dataset(10 * GIB))
    assert trial_seconds(job, DISK) == seconds
    short = replace(trial(("rw=randread", "time_based=1", runtime)), max_seconds=20)
    assert trial_seconds(short, DISK) == seconds, "it replaces max_seconds in the job file"


def test_direct_jobs_of_fio_each_read_the_file_and_keep_requests_in_flight() -> None:
    each = trial_seconds(trial(DIRECT), DISK)
    assert each == pytest.approx(24 * GIB / 756e6)
    apart = trial_seconds(trial((*DIRECT, "size=4%", "offset_increment=4%")), DISK)
    assert apart == pytest.approx(each / 24)
    deep, alone = (*DIRECT, "numjobs=1"), (*DIRECT, "numjobs=1", "iodepth=1")
    assert trial_seconds(trial(deep), DISK) < trial_seconds(trial(alone), DISK) / 10
    blocks = trial_seconds(trial((*alone, "bs=128k")), DISK)
    assert blocks == pytest.approx(GIB / (128 * 1024) * 430e-6)


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


SIZES = {
    "full": size_table(dataset="10GiB", max_seconds=3600.0),
    "default": size_table(dataset="1GiB", max_seconds=300.0),
    "emulated": size_table(dataset="128MiB", max_seconds=15.0, repeats=1),
    "smoke": size_table(dataset="32MiB", max_seconds=4.0, repeats=1, treatments="covering"),
}
TABLES = {"full": {"dataset": "10GiB"}, "emulated": {"dataset": "128MiB", "repeats": 1}}
SIZED = replace(BASE, sizes=SIZES, repeats=3, definition={"sizes": TABLES})


def by_bytes(seconds_per_gib: float) -> Callable[[Experiment, str], tuple[float, float]]:
    """An estimate in which only the dataset counts; to make it takes a tenth of a repeat."""

    def estimate(experiment: Experiment, size: str) -> tuple[float, float]:
        block = (experiment.sizes[size].total_bytes or 0) / GIB * seconds_per_gib
        return block / 10, block

    return estimate


@pytest.mark.parametrize(
    ("seconds_per_gib", "size"),
    [(5, "full"), (10, "4GiB"), (60, "default"), (70, "512MiB"), (500, "128MiB"), (1500, "32MiB")],
)
def test_the_largest_size_that_fits(seconds_per_gib: float, size: str) -> None:
    found = fitting_size(SIZED, None, 190, by_bytes(seconds_per_gib))
    assert (found.size, found.repeats) == (size, 3)
    total = found.experiment.sizes[size].total_bytes or 0
    assert found.expected_seconds == pytest.approx(3.1 * seconds_per_gib * total / GIB)
    if size == "full":
        assert found.reason == "about 2 min 35 s at 10 GiB"
    else:
        assert "; SIZE=full is 10 GiB, about" in found.reason


def test_below_default_the_design_of_default_stays() -> None:
    found = fitting_size(SIZED, None, 180, by_bytes(1500))
    assert found.experiment.sizes["32MiB"].treatments == "all"
    assert found.experiment.definition["sizes"]["32MiB"] == {
        "dataset": "32MiB",
        "max_seconds": 4,
        "treatments": "all",
    }
    assert found.experiment.sizes["smoke"] == SIZES["smoke"]


def test_the_limit_of_time_lies_between_those_of_the_neighbours() -> None:
    found = fitting_size(SIZED, None, 180, by_bytes(100))
    assert found.size == "512MiB"
    assert found.experiment.sizes["512MiB"].max_seconds == 110  # 15 * 20 ** (2 / 3)


def test_repeats_are_reduced_only_at_the_smallest_dataset_and_told() -> None:
    found = fitting_size(SIZED, None, 180, by_bytes(32 * 80))
    assert (found.size, found.repeats) == ("32MiB", 2)
    assert found.reason.startswith("2 repeats, because 3 take about 4 min 08 s; about 2 min 48 s")


def test_repeats_that_were_asked_for_stay() -> None:
    found = fitting_size(SIZED, 7, 180, by_bytes(100))
    assert (found.size, found.repeats) == ("256MiB", 7)
    assert fitting_size(SIZED, 9, 180, by_bytes(32 * 80)).size == "smoke"


def test_smoke_is_the_last_resort() -> None:
    found = fitting_size(SIZED, None, 180, by_bytes(32 * 500))
    assert (found.size, found.repeats) == ("smoke", 1)
    assert found.reason.startswith("about 9 min 10 s at 32 MiB; SIZE=full")


def test_published_figures_are_named() -> None:
    found = fitting_size(replace(SIZED, claims=({"id": "1"},)), None, 180, by_bytes(100))
    assert "; SIZE=full is 10 GiB as published, about 51 min 40 s" in found.reason


def test_sizes_that_differ_in_more_than_data_have_none_between_them() -> None:
    default = SIZES["default"].model_copy(update={"places": {"customer": "customer"}})
    cages = {**SIZES, "default": default}
    assert fitting_size(replace(SIZED, sizes=cages), None, 180, by_bytes(10)).size == "default"


def test_an_experiment_without_datasets() -> None:
    assert has_datasets(SIZED)
    assert not has_datasets(replace(SIZED, sizes={**SIZES, "full": size_table(max_seconds=60.0)}))
