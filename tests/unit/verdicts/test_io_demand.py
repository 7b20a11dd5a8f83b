"""The demand of stored trials: own time, waits for the disk, latency, and the use of a cap."""

from __future__ import annotations

import pytest

from pagecage.model.json_codec import Json
from pagecage.verdicts.counters import cpu_seconds, io_difference
from pagecage.verdicts.io_demand import IoDemand, io_demand
from tests.builders.known import known
from tests.fixtures.records import after, caged, make_record, series
from tests.fixtures.stored import NAMES, stored

ENDED = [name for name in NAMES if name != "killed"]


def demand_of(name: str) -> IoDemand:
    found = io_demand(*stored(name))
    assert isinstance(found, IoDemand), found
    return found


def measured(name: str) -> float:
    return known(stored(name)[0].measured).seconds


@pytest.mark.parametrize("name", ENDED)
def test_windows_hold_all_io_and_no_more_time_than_was_measured(name: str) -> None:
    record, _ = stored(name)
    found, measured_seconds = demand_of(name), measured(name)
    whole = measured_seconds / found.covered_share
    read_bytes = found.total("rbytes") * found.covered_share
    assert read_bytes == pytest.approx(io_difference(record, "rbytes"), rel=0.01)
    assert 0 < found.free_seconds <= whole * 1.01
    seconds = sum(window.seconds for window in found.windows)
    assert seconds == pytest.approx(measured_seconds, abs=0.02)
    for window in found.windows:
        assert min(window.own_seconds, window.disk_seconds, window.hidden_seconds) >= 0
        assert window.free_seconds <= window.seconds * (1 + 1e-9)


@pytest.mark.parametrize(
    ("name", "is_capped"),
    [("iops", True), ("bandwidth", True), ("iops-asynchronous", True), ("latency", False)],
)
def test_the_share_of_time_under_a_cap(name: str, is_capped: bool) -> None:
    assert (demand_of(name).capped_share > 0.5) == is_capped


def test_a_trial_without_caps_keeps_its_time() -> None:
    found = demand_of("latency")
    assert found.free_seconds == pytest.approx(measured("latency"), abs=0.02)
    assert found.used_share == 1.0


def test_asynchronous_reads_cost_computing_and_the_disk() -> None:
    record, _ = stored("iops-asynchronous")
    found = demand_of("iops-asynchronous")
    assert found.free_seconds < 0.75 * measured("iops-asynchronous")
    assert found.free_seconds >= (cpu_seconds(record) or 0) * 0.9


def test_single_pages_wait_one_at_a_time_and_read_ahead_does_not() -> None:
    assert demand_of("latency").depth == pytest.approx(1.0, abs=0.3)
    assert (demand_of("device").depth or 0) > 2


def test_the_latency_is_the_time_of_a_request_at_the_disk() -> None:
    record, _ = stored("latency")
    latency = known(demand_of("latency").latency_seconds)
    assert 0.2 < latency * 1e6 / (record.device.read_latency_us or 300) < 5


@pytest.mark.parametrize("name", ENDED)
def test_the_kernel_merges_and_never_splits_again(name: str) -> None:
    assert 0 < demand_of(name).unmerged_share <= 1


@pytest.mark.parametrize(("busy", "used"), [(0.05, 0.65), (0.95, 1.0)])
def test_a_slow_disk_near_a_cap_is_not_a_use_of_the_cap(busy: float, used: float) -> None:
    """13 of 20 MB/s are near the cap; a disk that is busy all the time explains them."""
    rows = series(rbytes=13e6, rios=100, io_wait=0.95, busy=busy)
    moved: Json = {"read_bytes": 130_000_000, "reads": 1000, "io_wait": 9.5, "busy": 10 * busy}
    record = make_record(cage=caged({"IOReadBandwidthMax": 20_000_000}), counters=after(**moved))
    found = io_demand(record, rows)
    assert isinstance(found, IoDemand)
    assert found.capped_share > 0.9
    assert found.used_share == pytest.approx(used, abs=0.01)


@pytest.mark.parametrize(("cpu", "is_capped"), [(0.1, True), (0.7, False)])
def test_an_idle_program_near_a_cap_waits_for_it(cpu: float, is_capped: bool) -> None:
    """430 of 500 reads a second, awaited asynchronously: pressure shows no wait."""
    rows = series(rbytes=430 * 4096, rios=430, cpu=cpu)
    moved: Json = {
        "read_bytes": 4300 * 4096,
        "reads": 4300,
        "io_wait": 0,
        "cpu": 10 * cpu,
        "busy": 0,
    }
    found = io_demand(make_record(counters=after(**moved)), rows)
    assert isinstance(found, IoDemand)
    assert (found.capped_share > 0.9) == is_capped
    assert found.used_share == pytest.approx(0.86 if is_capped else 1.0, abs=0.01)


def test_the_reason_is_given_where_nothing_can_be_predicted() -> None:
    assert io_demand(make_record(measured=None, counters={}), []) == "the measured part did not end"
