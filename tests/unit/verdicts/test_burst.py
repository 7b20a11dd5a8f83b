"""Caps that burst credits change while a trial runs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.verdicts.evaluate import evaluate
from pagecage.verdicts.limits import (
    cap_change_count,
    caps_between,
    drained_after_seconds,
    measured_caps,
)
from tests.fixtures.records import SECONDS, START, after, caged, make_record, series

CAGE = {"IOReadIOPSMax": 100}
BUCKET = {
    "kind": "iops",
    "properties": ["IOReadIOPSMax"],
    "base": 100,
    "rate": 1000,
    "capacity": 18_000,
    "credits_at_start": 3600,
}
FOUR_SECONDS = [{"t": START - 1, "IOReadIOPSMax": 1000}, {"t": START + 4, "IOReadIOPSMax": 100}]


def bursting(changes=FOUR_SECONDS, reads=4600, error=None):
    """Return a record with 1,000 reads per second for four seconds, then 100 for six."""
    credits_section = {"buckets": [BUCKET], "changes": changes, "overwritten": 0, "error": error}
    cage = {**caged(CAGE), "credits": credits_section}
    return make_record(cage=cage, counters=after(read_bytes=reads * 4096, reads=reads))


def read_limit(record):
    [limit] = evaluate(record).limits
    return limit


def test_the_cap_is_the_average_of_those_in_force():
    assert measured_caps(bursting()) == {"IOReadIOPSMax": pytest.approx(460)}
    assert caps_between(bursting(), START, START + 4) == {"IOReadIOPSMax": 1000}
    assert caps_between(bursting(), START + 5, START + 6) == {"IOReadIOPSMax": 100}
    assert cap_change_count(bursting(), "IOReadIOPSMax") == 1


def test_without_credits_the_cap_is_the_requested_one():
    assert measured_caps(make_record(cage=caged(CAGE))) == {"IOReadIOPSMax": 100}
    assert measured_caps(make_record(cage=caged(CAGE), measured=None)) == {"IOReadIOPSMax": 100}


def test_a_burst_is_no_leak():
    limit = read_limit(bursting())
    assert (limit.verdict, limit.cap) == ("enforced", 100)
    assert (
        "460 I/Os per second of 100 I/Os per second (on average 460 I/Os per second with burst"
        " credits)" in limit.reason
    )


def test_the_same_reads_without_credits_are_a_leak():
    assert read_limit(bursting(changes=[])).verdict == "leaky"


def test_more_than_credits_allowed_is_a_leak():
    limit = read_limit(bursting(reads=5500))
    assert limit.verdict == "leaky"
    assert "on average 460 I/Os per second with burst credits" in limit.reason


def test_credits_that_were_not_enforced_to_the_end_are_a_leak():
    limit = read_limit(bursting(error="burst credits ended early: no such file"))
    assert limit.verdict == "leaky"
    assert "did not follow its credits: burst credits ended early" in limit.reason


def test_the_floor_spends_the_credits_first():
    floor = evaluate(bursting()).floor
    assert floor.floor_seconds == pytest.approx((4600 - 3600) / 100)
    assert floor.closeness == pytest.approx(10 / SECONDS)


def test_each_second_is_judged_by_its_own_cap():
    rows = series(rios=1000, rbytes=4_096_000, io_wait=0.5)
    later = [row for row in rows if row["t"] > START + 4]
    for number, row in enumerate(later, start=1):
        row["io"] = {**row["io"], "rios": 4000 + 10 * number, "rbytes": (4000 + 10 * number) * 4096}
    found = evaluate(bursting(), rows)
    assert {second.bound_by for second in found.diagnosis.seconds} == {"iops"}
    assert "Burst credits ran out after 4 s" in found.diagnosis.sentence
    assert round(found.diagnosis.seconds[0].read.iops_cap) == 1000


def test_when_credits_ran_out():
    assert drained_after_seconds(bursting()) == pytest.approx(4)
    assert drained_after_seconds(bursting(changes=FOUR_SECONDS[:1])) is None
    assert drained_after_seconds(bursting(changes=[{"t": START - 1, "IOReadIOPSMax": 100}])) is None
    assert drained_after_seconds(make_record(measured=None)) is None


@given(
    st.lists(st.tuples(st.floats(START - 2, START + 12), st.integers(100, 1000)), max_size=8),
    st.floats(0, 8),
)
def test_averages_lie_between_the_least_and_the_most(pairs, since):
    changes = [{"t": t, "IOReadIOPSMax": cap} for t, cap in sorted(pairs)]
    [average] = caps_between(bursting(changes=changes), START + since, START + 10).values()
    assert (
        min([100, *(cap for _, cap in pairs)]) - 1e-6
        <= average
        <= max([100, *(cap for _, cap in pairs)]) + 1e-6
    )
