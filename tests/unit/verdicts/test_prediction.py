"""Predicted times under other caps, from stored trials, compared with measured ones."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagecage.verdicts.counters import io_difference
from pagecage.verdicts.io_demand import find_knee, predict
from pagecage.verdicts.limits import requested_caps
from pagecage.verdicts.windows import windows_and_remainder, windows_of
from tests.builders.known import known
from tests.fixtures.records import make_record, with_sections
from tests.fixtures.stored import NAMES, stored

ENDED = [name for name in NAMES if name != "killed"]
TENTH = {"IOReadBandwidthMax": 20_000_000, "IOReadIOPSMax": 500}


def predicted(name: str, caps: Mapping[str, float]) -> float:
    """Return the time that a stored trial would take under these caps."""
    return known(predict(*stored(name), caps).seconds)


def whole(name: str) -> float:
    record, _ = stored(name)
    return known(record.measured).seconds / (record.response.get("covered_fraction") or 1.0)


@pytest.mark.parametrize("name", ENDED)
def test_under_its_own_caps_the_prediction_is_the_measured_time(name: str) -> None:
    caps = requested_caps(stored(name)[0])
    assert predicted(name, caps) == pytest.approx(whole(name), rel=0.02)


def test_single_pages_without_caps_predict_the_time_under_an_iops_cap() -> None:
    found = predict(*stored("latency"), TENTH)
    assert found.seconds == pytest.approx(whole("iops"), rel=0.02)
    assert found.held_share == pytest.approx(1.0)


def test_sequential_reading_below_its_caps_predicts_the_time_at_a_tenth_of_them() -> None:
    assert predicted("cpu", TENTH) == pytest.approx(whole("bandwidth-in-order"), rel=0.05)


@pytest.mark.parametrize(
    ("caps", "factor"),
    [
        ({**TENTH, "IOReadIOPSMax": 250}, 2.0),
        ({**TENTH, "IOReadIOPSMax": 1000}, 0.5),
        ({"IOReadBandwidthMax": 1_024_000, "IOReadIOPSMax": 100_000}, 2.0),
    ],
)
def test_half_the_cap_takes_twice_as_long_and_twice_the_cap_half(
    caps: dict[str, float], factor: float
) -> None:
    """In the last case the other cap is the tighter one."""
    assert predicted("iops", caps) == pytest.approx(factor * whole("iops"), rel=0.02)


def test_without_caps_the_programs_own_time_remains_and_nothing_holds_it_back() -> None:
    found = predict(*stored("iops"), {})
    # a reader that wakes late computes longer
    assert found.seconds == pytest.approx(whole("latency"), rel=0.7)
    assert known(found.seconds) < 0.5 * whole("iops")
    assert found.held_share == 0


def test_asynchronous_reads_that_pressure_does_not_see() -> None:
    name = "iops-asynchronous"
    assert predicted(name, {"IOReadIOPSMax": 1000}) < 0.75 * whole(name)


def test_a_part_that_did_not_end_predicts_nothing() -> None:
    found = predict(make_record(measured=None, counters={}), [], {})
    assert (found.seconds, found.reason) == (None, "the measured part did not end")


BUCKET = {
    "kind": "iops",
    "properties": ["IOReadIOPSMax"],
    "base": 500,
    "capacity": 10,
    "credits_at_start": 0,
}


@pytest.mark.parametrize(
    ("rate", "changed_after", "is_predicted"),
    [(1000, None, False), (500, 1.0, True), (500, None, True)],
)
def test_a_cap_that_credits_changed_is_not_predicted(
    rate: float, changed_after: float | None, is_predicted: bool
) -> None:
    record, series = stored("iops")
    start = known(record.measured).start_monotonic_seconds
    changes = [{"t": start + changed_after, "IOReadIOPSMax": 400}] if changed_after else []
    buckets = [{**BUCKET, "rate": rate}]
    section = {"buckets": buckets, "changes": changes, "overwritten": 0, "error": None}
    found = predict(with_sections(record, cage={"credits": section}), series, TENTH)
    assert (found.seconds is not None) == is_predicted
    assert ("changed the cap while the trial ran" in found.reason) != is_predicted


@pytest.mark.parametrize("name", ENDED)
def test_windows_and_the_remainder_are_the_whole_part(name: str) -> None:
    record, series = stored(name)
    parts, whole_seconds = windows_and_remainder(record, series), known(record.measured).seconds
    assert len(parts) - len(windows_of(record, series)) in (0, 1)
    assert sum(part.seconds for part in parts) == pytest.approx(whole_seconds, abs=0.02)
    read_bytes = sum(part.moved["rbytes"] for part in parts)
    assert read_bytes == pytest.approx(io_difference(record, "rbytes"), rel=0.01)


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(ENDED), st.floats(50, 1e5), st.floats(1e5, 1e9), st.floats(1.01, 10))
def test_higher_caps_never_take_longer(
    name: str, iops: float, bandwidth: float, factor: float
) -> None:
    record, series = stored(name)
    caps = {"IOReadIOPSMax": iops, "IOReadBandwidthMax": bandwidth}
    tight = predict(record, series, caps)
    loose = predict(record, series, {name: cap * factor for name, cap in caps.items()})
    assert 0 < known(loose.seconds) <= known(tight.seconds)
    assert 0 <= known(tight.held_share) <= 1


@pytest.mark.parametrize(
    ("points", "value", "says"),
    [
        (
            [(4000, 15.4), (500, 66), (1000, 33), (2000, 16.6)],
            2000,
            "above 2,000 the time falls by 10% at most",
        ),
        ([(500, 66), (1000, 33)], None, "the time still falls at 1,000, the largest value"),
        ([(500, 10.0), (1000, 10.2), (2000, 9.8)], None, "this limit does not bind"),
        ([(500, 66), (1000, 20), (2000, 21), (4000, 19)], 1000, ""),  # noise is not a gain
        ([(500, 66)], None, ""),
    ],
)
def test_the_knee_is_the_value_above_which_more_does_not_pay(
    points: list[tuple[float, float]], value: float | None, says: str
) -> None:
    knee = find_knee(points)
    assert knee.value == value
    assert says in knee.reason


@given(
    st.lists(
        st.tuples(st.floats(1, 1e6), st.floats(0.01, 1e4)),
        min_size=2,
        max_size=8,
        unique_by=lambda p: p[0],
    )
)
def test_a_knee_is_one_of_the_values_and_nothing_above_it_gains(
    points: list[tuple[float, float]],
) -> None:
    knee = find_knee(points)
    if knee.value is not None:
        times = dict(points)
        assert all(time >= 0.9 * times[knee.value] for limit, time in points if limit >= knee.value)


def test_a_cap_counts_as_what_the_kernel_lets_through() -> None:
    requested, actual, more = (predicted("iops", {"IOReadIOPSMax": cap}) for cap in (38, 30, 40))
    assert requested == actual
    assert more < requested
