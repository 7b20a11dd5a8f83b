"""A limit shared by reads and writes: its split, and the sum of both."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.agent.limits.calibration import LimitMeter, meters
from pagecage.model.cage import (
    PARTS,
    BurstCredits,
    Cage,
    CreditBucket,
    IoAccounting,
    filled,
    less_debt,
    split,
)

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


def test_one_active_direction_has_the_full_limit():
    assert split(LIMIT, {"read": 400, "write": 0}) == {"read": 400, "write": LIMIT // 2}
    meter = meter_of()
    assert driven(meter, 10, reads=1000, writes=0) == {"rios": pytest.approx(LIMIT), "wios": 0}
    assert meter.wanted() == {"IOReadIOPSMax": LIMIT, "IOWriteIOPSMax": LIMIT}


def test_two_busy_directions_have_half_each():
    through = driven(meter_of(), 20, reads=1000, writes=1000)
    assert through["rios"] == through["wios"] == pytest.approx(LIMIT / 2, rel=0.03)


def test_a_light_direction_leaves_the_rest_to_the_other():
    through = driven(meter_of(), 20, reads=1000, writes=60)
    assert through["wios"] == pytest.approx(60, rel=0.02)
    assert 0.85 * LIMIT < sum(through.values()) <= 1.01 * LIMIT


@given(st.floats(1, 2000), st.floats(1, 2000))
def test_both_together_keep_to_the_limit(reads: float, writes: float):
    assert sum(driven(meter_of(), 20, reads, writes).values()) <= 1.02 * LIMIT


def test_a_burst_is_shared_too_until_it_is_drained():
    meter = meter_of(burst=BurstCredits("full", iops=CreditBucket(4000, 20_000)))
    assert sum(driven(meter, 4, reads=9000, writes=9000).values()) == pytest.approx(4000, rel=0.05)
    assert sum(driven(meter, 20, reads=9000, writes=9000).values()) == pytest.approx(
        LIMIT, rel=0.05
    )


def test_debts_are_paid_back_from_half_of_the_limit_at_most():
    assert less_debt(LIMIT, 0, 0.5) == LIMIT
    assert less_debt(LIMIT, LIMIT / PARTS / 2, 0.5) == LIMIT * (PARTS - 1) / PARTS
    assert less_debt(LIMIT, 10 * LIMIT, 0.5) == LIMIT / 2


def test_separate_limits_have_no_meter():
    assert list(meters(Cage("c", BOTH))) == []
    assert list(meters(Cage("c", {"IOReadIOPSMax": 400}, accounting=COMBINED))) == []
    assert (
        list(meters(Cage("c", {"IOReadIOPSMax": 400, "IOWriteIOPSMax": 300}, accounting=COMBINED)))
        == []
    )


def test_limits_between_base_and_burst_are_distinct_in_the_kernel():
    meter = LimitMeter("iops", {"IOReadIOPSMax": "rios"}, filled(35, 300, 10, "half"))
    assert (meter.bucket.cap, meter.wanted()) == (44, {"IOReadIOPSMax": 40})
    meter.charge({"rios": 4}, 0.0)
    assert (meter.bucket.cap, meter.wanted()) == (35, {"IOReadIOPSMax": 35})
