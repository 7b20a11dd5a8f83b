"""A cage: its properties for systemd and cgroup files, its shared limits and its token buckets."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.agent.limits.calibration import LimitMeter, meters
from pagecage.model.cage import (
    IO_MAX_KEY,
    PARTS,
    STEP,
    BurstCredits,
    Cage,
    CreditBucket,
    IoAccounting,
    TokenBucket,
    cage_from_json,
    cage_to_json,
    cloud_to_json,
    expected_read_back,
    filled,
    less_debt,
    limits_not_in_force,
    property_arguments,
    split,
)
from pagecage.units import LEAST_PAGE_BYTES
from tests.builders.documents import as_line
from tests.builders.strategies import cages
from tests.record_schema import breaches

FULL = Cage(
    "full",
    {
        "MemoryMax": 10_000_000,
        "MemorySwapMax": 0,
        "IOReadBandwidthMax": 20_000_000,
        "IOReadIOPSMax": 500,
        "IOWriteBandwidthMax": 30_000_000,
        "IOWriteIOPSMax": 600,
        "CPUQuota": 50,
    },
)


@given(cages)
def test_a_cage_travels_unchanged(cage: Cage) -> None:
    assert cage_from_json(cage_to_json(cage)) == cage


@given(cages)
def test_a_cage_survives_being_written_as_json(cage: Cage) -> None:
    assert cage_from_json(json.loads(json.dumps(cage_to_json(cage)))) == cage


@given(cages)
def test_a_record_has_the_cloud_parts_of_the_cage(cage: Cage) -> None:
    cloud = cloud_to_json(cage)
    keys = ("volume", "burst", "accounting", "latency", "simulation")
    assert set(cloud) == {key for key in keys if getattr(cage, key) is not None}
    line = json.loads(json.dumps(as_line(cage={"name": cage.name, **cloud})))
    assert breaches(line) == []


def test_a_plan_from_before_clouds_is_read() -> None:
    old = {"name": "old", "properties": {"MemoryMax": 1}}
    assert cage_from_json(old) == Cage("old", {"MemoryMax": 1})


ACCOUNTING = ["MemoryAccounting=yes", "IOAccounting=yes", "CPUAccounting=yes"]


def test_systemd_gets_plain_numbers_and_one_path_of_the_disk() -> None:
    assert property_arguments(FULL, "/dev/vdb") == [
        *(*ACCOUNTING, "MemoryMax=10000000", "MemorySwapMax=0"),
        *("IOReadBandwidthMax=/dev/vdb 20000000", "IOReadIOPSMax=/dev/vdb 500"),
        *("IOWriteBandwidthMax=/dev/vdb 30000000", "IOWriteIOPSMax=/dev/vdb 600", "CPUQuota=50%"),
    ]


def test_accounting_is_on_without_limits_too() -> None:
    assert property_arguments(Cage("uncaged", {}), "/dev/vdb") == ACCOUNTING
    assert property_arguments(Cage("uncaged", {}), "/dev/vdb", {"wal": "/dev/vdc"}) == ACCOUNTING


def test_expected_cgroup_files() -> None:
    assert expected_read_back(FULL, LEAST_PAGE_BYTES) == {
        "memory.max": "9998336",
        "memory.swap.max": "0",
        "io.max.rbps": "20000000",
        "io.max.riops": "500",
        "io.max.wbps": "30000000",
        "io.max.wiops": "600",
        "cpu.max": "50000 100000",
    }


@pytest.mark.parametrize("name", sorted(IO_MAX_KEY))
def test_every_io_property_needs_the_io_controller(name: str) -> None:
    assert Cage("x", {name: 1}).limits_io
    assert not Cage("x", {"MemoryMax": 1, "CPUQuota": 1}).limits_io


@given(cages)
def test_matching_limits_are_in_force(cage: Cage) -> None:
    expected, above = expected_read_back(cage, LEAST_PAGE_BYTES), {"memory.max": "max"}
    none = {"memory.max": "max", "memory.swap.max": "max", "cpu.max": "max 100000"}
    read_back = none | expected
    assert limits_not_in_force(expected, read_back, {"pagecage.slice": above}) == []


@given(cages.filter(lambda cage: cage.properties), st.data())
def test_a_different_or_missing_limit_is_found(cage: Cage, data: st.DataObject) -> None:
    expected = expected_read_back(cage, LEAST_PAGE_BYTES)
    broken = data.draw(st.sampled_from(sorted(expected)))
    other = {**expected, broken: "max"}
    missing = {key: value for key, value in expected.items() if key != broken}
    for found, state in ((other, "max"), (missing, "missing")):
        reason = f"{broken} is {state}, not {expected[broken]}"
        assert limits_not_in_force(expected, found, {}) == [reason]


def test_an_unrequested_limit_is_found() -> None:
    assert limits_not_in_force({}, {"memory.max": "4096", "cpu.max": "max 100000"}, {}) == [
        "memory.max is 4096, which was not requested"
    ]


@pytest.mark.parametrize(
    ("above", "tighter"),
    [
        ({"memory.max": "max", "cpu.max": "max 100000"}, False),
        ({"memory.max": "9998336"}, False),
        ({"memory.max": "9998335"}, True),
        ({"io.max.rbps": "19999999"}, True),
        ({"io.max.rbps": "20000001"}, False),
        ({"cpu.max": "20000 100000"}, True),
        ({"cpu.max": "100000 200000"}, False),
        ({"cpu.max": "99999 200000"}, True),
    ],
)
def test_a_tighter_limit_of_an_ancestor_is_found(above: dict[str, str], tighter: bool) -> None:
    expected = expected_read_back(FULL, LEAST_PAGE_BYTES)
    wrong = limits_not_in_force(expected, expected, {"user.slice": above})
    assert bool(wrong) is tighter
    if tighter:
        assert "user.slice has a tighter" in wrong[0]


def test_any_limit_above_is_tighter_than_none() -> None:
    assert limits_not_in_force({}, {}, {"machine.slice": {"memory.max": "99999999999"}})


LIMIT, TICK = 400, 0.1


COMBINED = IoAccounting(None, None, True)


BOTH = {"IOReadIOPSMax": LIMIT, "IOWriteIOPSMax": LIMIT}


def meter_of(**more: object) -> LimitMeter:
    [meter] = meters(Cage("c", BOTH, accounting=COMBINED, **more))  # type: ignore[arg-type]
    return meter


def driven(meter: LimitMeter, seconds: float, reads: float, writes: float) -> dict[str, float]:
    """Return the rate of each in the second half of the time, under exact limits."""
    through = {"rios": 0.0, "wios": 0.0}
    ticks = round(seconds / TICK)
    for tick in range(ticks):
        caps = meter.caps = meter.wanted()
        moved = {
            "rios": min(reads, caps["IOReadIOPSMax"]) * TICK,
            "wios": min(writes, caps["IOWriteIOPSMax"]) * TICK,
        }
        meter.charge(moved, TICK)
        if tick >= ticks // 2:
            through = {key: through[key] + moved[key] for key in through}
    return {key: count / (ticks - ticks // 2) / TICK for key, count in through.items()}


def test_one_active_direction_has_the_full_limit() -> None:
    assert split(LIMIT, {"read": 400, "write": 0}) == {"read": 400, "write": LIMIT // 2}
    meter = meter_of()
    assert driven(meter, 10, reads=1000, writes=0) == {"rios": pytest.approx(LIMIT), "wios": 0}
    assert meter.wanted() == {"IOReadIOPSMax": LIMIT, "IOWriteIOPSMax": LIMIT}


def test_two_busy_directions_have_half_each() -> None:
    through = driven(meter_of(), 20, reads=1000, writes=1000)
    assert through["rios"] == through["wios"] == pytest.approx(LIMIT / 2, rel=0.03)


def test_a_light_direction_leaves_the_rest_to_the_other() -> None:
    through = driven(meter_of(), 20, reads=1000, writes=60)
    assert through["wios"] == pytest.approx(60, rel=0.02)
    assert 0.85 * LIMIT < sum(through.values()) <= 1.01 * LIMIT


@given(st.floats(1, 2000), st.floats(1, 2000))
def test_both_together_keep_to_the_limit(reads: float, writes: float) -> None:
    assert sum(driven(meter_of(), 20, reads, writes).values()) <= 1.02 * LIMIT


def test_a_burst_is_shared_too_until_it_is_drained() -> None:
    meter = meter_of(burst=BurstCredits("full", iops=CreditBucket(4000, 20_000)))
    for seconds, rate in ((4, 4000), (20, LIMIT)):
        through = driven(meter, seconds, reads=9000, writes=9000)
        assert sum(through.values()) == pytest.approx(rate, rel=0.05)


def test_debts_are_paid_back_from_half_of_the_limit_at_most() -> None:
    assert less_debt(LIMIT, 0, 0.5) == LIMIT
    assert less_debt(LIMIT, LIMIT / PARTS / 2, 0.5) == LIMIT * (PARTS - 1) / PARTS
    assert less_debt(LIMIT, 10 * LIMIT, 0.5) == LIMIT / 2


def test_separate_limits_have_no_meter() -> None:
    assert list(meters(Cage("c", BOTH))) == []
    for limits in ({"IOReadIOPSMax": 400}, {"IOReadIOPSMax": 400, "IOWriteIOPSMax": 300}):
        assert list(meters(Cage("c", limits, accounting=COMBINED))) == []


def test_limits_between_base_and_burst_are_distinct_in_the_kernel() -> None:
    meter = LimitMeter("iops", {"IOReadIOPSMax": "rios"}, filled(35, 300, 10, "half"))
    assert (meter.bucket.cap, meter.wanted()) == (44, {"IOReadIOPSMax": 40})
    meter.charge({"rios": 4}, 0.0)
    assert (meter.bucket.cap, meter.wanted()) == (35, {"IOReadIOPSMax": 35})


TICK = 0.1


def small(start: str = "full") -> TokenBucket:
    """Return a bucket (base 100, burst 1,000, 18,000 credits): 20 s to drain, 180 s to refill."""
    return filled(100, 1000, 18_000, start)


def drained(
    bucket: TokenBucket, seconds: float, demand: float = float("inf")
) -> tuple[TokenBucket, list[float]]:
    """Return the bucket after `seconds` under a demand per second, and the use in each tick."""
    through = []
    for _ in range(round(seconds / TICK)):
        through.append(min(bucket.cap, demand) * TICK)
        bucket = bucket.after(through[-1], TICK)
    return bucket, through


def test_a_full_bucket_bursts_for_twenty_seconds() -> None:
    bucket, through = drained(small(), 30)
    assert sum(through[:190]) == pytest.approx(1000 * 19, rel=0.01)
    assert sum(through[:200]) == pytest.approx(1000 * 20, rel=0.05)
    assert through[-1] == pytest.approx(10)
    assert sum(through) == pytest.approx(18_000 + 100 * 30, rel=0.01)
    half = next(n for n, ios in enumerate(through) if ios < 50) * TICK
    assert half == pytest.approx(20, rel=0.05)
    assert bucket.credits < 100


def test_an_empty_bucket_is_full_again_after_three_minutes_of_rest() -> None:
    assert drained(small("drained"), 180, demand=0)[0].credits == pytest.approx(18_000)
    assert drained(small("drained"), 170, demand=0)[0].credits < 18_000


def test_half_a_bucket_bursts_half_as_long() -> None:
    bucket, through = drained(small("half"), 10)
    assert sum(through) == pytest.approx(10_000, rel=0.02)
    assert bucket.cap < 1000


def test_a_drained_bucket_leaves_the_base() -> None:
    _, through = drained(small("drained"), 10)
    assert set(through) == {10.0}


def test_unused_base_becomes_a_small_burst() -> None:
    bucket, _ = drained(small("drained"), 60, demand=50)
    assert bucket.credits == pytest.approx(3000)
    assert bucket.cap == 1000


def test_excess_use_is_paid_back_first() -> None:
    bucket = small("drained").after(500, 1)
    assert bucket.credits == -400
    assert bucket.after(0, 2).cap == 100
    assert bucket.after(0, 5).cap > 100


def test_the_least_time_spends_the_credits_first() -> None:
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
def test_credits_never_exceed_the_capacity_and_caps_stay_between_base_and_burst(
    bucket: TokenBucket, demands: list[float]
) -> None:
    for demand in demands:
        assert bucket.credits <= bucket.capacity
        assert bucket.base / STEP <= bucket.cap + 1
        assert bucket.cap <= bucket.rate + 1
        bucket = bucket.after(min(demand, bucket.cap) * TICK, TICK)


@given(buckets, st.lists(st.floats(0, 1e9), min_size=1, max_size=50))
def test_use_never_exceeds_credits_and_base(bucket: TokenBucket, demands: list[float]) -> None:
    through, seconds, before = 0.0, 0.0, bucket
    for demand in demands:
        used = min(demand, bucket.cap) * TICK
        bucket, through, seconds = bucket.after(used, TICK), through + used, seconds + TICK
    overshoot = before.cap * TICK + TICK * len(demands)  # one tick, and the rounding of each cap
    assert through <= before.credits + before.base * seconds + overshoot + 1e-6 * through
