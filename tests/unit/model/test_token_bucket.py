"""The token bucket: use that drains it, time that refills it, and the limit that it sets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.model.cage import STEP, TokenBucket, filled

TICK = 0.1


def small(start: str = "full") -> TokenBucket:
    """Return a bucket (base 100, burst 1,000, 18,000 credits): 20 s to drain, 180 s to refill."""
    return filled(100, 1000, 18_000, start)


def driven(
    bucket: TokenBucket, seconds: float, demand: float = float("inf")
) -> tuple[TokenBucket, list[float]]:
    """Return the bucket after `seconds` under a demand per second, and the use in each tick."""
    through = []
    for _ in range(round(seconds / TICK)):
        through.append(min(bucket.cap, demand) * TICK)
        bucket = bucket.after(through[-1], TICK)
    return bucket, through


def test_a_full_bucket_bursts_for_twenty_seconds():
    bucket, through = driven(small(), 30)
    assert sum(through[:190]) == pytest.approx(1000 * 19, rel=0.01)
    assert sum(through[:200]) == pytest.approx(1000 * 20, rel=0.05)
    assert through[-1] == pytest.approx(10)
    assert sum(through) == pytest.approx(18_000 + 100 * 30, rel=0.01)
    half = next(n for n, ios in enumerate(through) if ios < 50) * TICK
    assert half == pytest.approx(20, rel=0.05)
    assert bucket.credits < 100


def test_an_empty_bucket_is_full_again_after_three_minutes_of_rest():
    assert driven(small("drained"), 180, demand=0)[0].credits == pytest.approx(18_000)
    assert driven(small("drained"), 170, demand=0)[0].credits < 18_000


def test_half_a_bucket_bursts_half_as_long():
    bucket, through = driven(small("half"), 10)
    assert sum(through) == pytest.approx(10_000, rel=0.02)
    assert bucket.cap < 1000


def test_a_drained_bucket_leaves_the_base():
    _, through = driven(small("drained"), 10)
    assert set(through) == {10.0}


def test_unused_base_becomes_a_small_burst():
    bucket, _ = driven(small("drained"), 60, demand=50)
    assert bucket.credits == pytest.approx(3000)
    assert bucket.cap == 1000


def test_excess_use_is_paid_back_first():
    bucket = small("drained").after(500, 1)
    assert bucket.credits == -400
    assert bucket.after(0, 2).cap == 100
    assert bucket.after(0, 5).cap > 100


def test_the_least_time_spends_the_credits_first():
    assert small().least_seconds(10_000) == pytest.approx(10)
    assert small().least_seconds(20_000) == pytest.approx(20)
    assert small().least_seconds(21_000) == pytest.approx(30)
    assert small("drained").least_seconds(1000) == pytest.approx(10)


buckets = st.builds(
    lambda base, times, capacity, start: filled(base, base * times, capacity, start),
    st.floats(1, 1e9),
    st.floats(1.01, 100),
    st.floats(1, 1e12),
    st.sampled_from(["full", "half", "drained"]),
)


@given(buckets, st.lists(st.floats(0, 1e9), max_size=50))
def test_credits_never_exceed_the_capacity_and_caps_stay_between_base_and_burst(bucket, demands):
    for demand in demands:
        assert bucket.credits <= bucket.capacity
        assert bucket.base / STEP <= bucket.cap + 1
        assert bucket.cap <= bucket.rate + 1
        bucket = bucket.after(min(demand, bucket.cap) * TICK, TICK)


@given(buckets, st.lists(st.floats(0, 1e9), min_size=1, max_size=50))
def test_use_never_exceeds_credits_and_base(bucket, demands):
    through, seconds, before = 0.0, 0.0, bucket
    for demand in demands:
        used = min(demand, bucket.cap) * TICK
        bucket, through, seconds = bucket.after(used, TICK), through + used, seconds + TICK
    overshoot = before.cap * TICK + TICK * len(demands)  # one tick, and the rounding of each cap
    assert through <= before.credits + before.base * seconds + overshoot + 1e-6 * through
