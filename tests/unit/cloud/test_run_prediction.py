"""Predictions for volumes: the range, what widens it, and the order of its ends."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.cloud.catalogue import read_offers
from pagecage.cloud.formulas import LimitLayer, VolumeLimits
from pagecage.cloud.prediction import (
    EXPECTED,
    HIGHEST,
    LOWEST,
    Cause,
    LatencyBounds,
    VolumeOutlook,
    VolumePrediction,
    greatest_published_us,
    latency_bounds,
)
from pagecage.cloud.profile import LimitProfile
from pagecage.model.cage import IoAccounting
from pagecage.verdicts.io_demand import IoDemand
from tests.builders.demands import demand, window
from tests.tree import ROOT

PROVIDERS = read_offers(ROOT / "cgroups/catalogue")
KINDS = {kind.name: kind for provider in PROVIDERS for kind in provider.types}
APART = IoAccounting(combined=False)
NO_LATENCY = LatencyBounds((0.0, 0.0), (0.0, 0.0))


def volume(iops: int, bandwidth: int = 10**12) -> LimitProfile:
    ios, size = (LimitLayer("v", Fraction(iops)),), (LimitLayer("v", Fraction(bandwidth)),)
    return LimitProfile("v", "", VolumeLimits(ios, ios, size, size))


def predicted(
    of: IoDemand,
    iops: int,
    rules: IoAccounting = APART,
    latency: LatencyBounds | None = None,
) -> VolumePrediction:
    return VolumeOutlook(of, rules, latency).predict(volume(iops))


@pytest.mark.parametrize("is_capped", [False, True])
def test_under_a_limit_the_range_is_that_of_the_measured_errors(is_capped: bool) -> None:
    """A trial without a limit does not show how much the program computes beside one."""
    found = predicted(demand(window(reads=1000, own=1.0, capped=is_capped)), 100)
    beside = 0.0 if is_capped else 1.0
    assert (found.low, found.seconds, found.high) == pytest.approx(
        (
            10 * LOWEST.held,
            10.0 + beside * EXPECTED.serial,
            10 * HIGHEST.held + beside * HIGHEST.serial * HIGHEST.free,
        )
    )
    assert (found.cause, found.share, found.held_share) == (Cause("IOPS", "v"), 1.0, 1.0)


@pytest.mark.parametrize(
    ("is_capped", "low", "high"),
    [(False, LOWEST.free, HIGHEST.free), (True, LOWEST.capped, HIGHEST.capped)],
)
def test_the_programs_own_time_is_less_certain_if_a_cap_held_it(
    is_capped: bool, low: float, high: float
) -> None:
    found = predicted(demand(window(reads=10, own=10.0, capped=is_capped)), 10**6)
    assert (found.low, found.high) == pytest.approx((10 * low, 10 * high))
    assert found.cause == Cause("program")
    assert found.held_share == 0


def test_unknown_sharing_widens_the_range_and_counts_as_sharing() -> None:
    both = demand(window(reads=500, writes=500, own=0.1, capped=True))
    apart, together, unknown = (
        predicted(both, 100, IoAccounting(combined=combined)) for combined in (False, True, None)
    )
    assert (apart.seconds, together.seconds) == pytest.approx((5.0, 10.0))
    assert unknown.seconds == together.seconds
    assert (unknown.low, unknown.high) == (apart.low, together.high)


def test_merging_at_the_provider_lowers_the_low_end_alone() -> None:
    one = demand(window(reads=1000, kib=64, own=0.1), largest_request_bytes=65536)
    unit = 256 * 1024
    kept, merging = (
        predicted(one, 100, IoAccounting(unit, merged, combined=False)) for merged in (False, True)
    )
    assert merging.low == pytest.approx(kept.low / 4)
    assert (merging.seconds, merging.high) == (kept.seconds, kept.high)


def test_a_run_within_the_published_latency_keeps_its_own() -> None:
    one = demand(window(reads=1000, own=1.0, disk=0.5))
    found = predicted(one, 10**6, latency=LatencyBounds((0.0, 0.0), (0.01, 0.01)))
    assert found.seconds == pytest.approx(1.5)
    assert found.low == pytest.approx(LOWEST.free)
    assert found.high == pytest.approx(HIGHEST.free + HIGHEST.disk * 10)


@pytest.mark.parametrize(("bounds", "seconds"), [((0.002, 0.004), 3.0), ((0.0, 0.0001), 1.1)])
def test_a_run_outside_the_published_latency_takes_the_nearest(
    bounds: tuple[float, float], seconds: float
) -> None:
    one = demand(window(reads=1000, own=1.0, disk=0.5))
    least, greatest = bounds
    found = predicted(one, 10**6, latency=LatencyBounds((least,) * 2, (greatest,) * 2))
    assert found.seconds == pytest.approx(seconds)


def test_a_measured_mean_comes_before_the_latency_of_the_run() -> None:
    one = demand(window(reads=1000, own=1.0, disk=0.5))
    bounds = LatencyBounds((0.0, 0.0), (0.01, 0.01), (0.0007, None))
    assert predicted(one, 10**6, latency=bounds).seconds == pytest.approx(1.7)


def bounds_of(name: str, asked_us: int | None = None) -> LatencyBounds:
    return latency_bounds(KINDS[name], asked_us, greatest_published_us(PROVIDERS), 4096)


def test_published_bounds_of_latency() -> None:
    assert greatest_published_us(PROVIDERS) == 30_000
    throughput = bounds_of("gcp-hyperdisk-throughput")
    assert (throughput.least, throughput.greatest) == ((0.01, 0.0), (0.03, 0.03))
    assert bounds_of("azure-ultra") == LatencyBounds((0.0, 0.0), (0.001, 0.001))
    assert bounds_of("aws-io1") == LatencyBounds((0.0, 0.0), (0.03, 0.03))
    assert bounds_of("aws-io1", 500) == LatencyBounds((0.0005,) * 2, (0.0005,) * 2)


def test_what_users_measured_comes_before_a_statement() -> None:
    gp3 = bounds_of("aws-gp3")
    assert gp3.least == pytest.approx((0.00044, 0.0))
    assert gp3.greatest == pytest.approx((0.00072, 0.01))
    assert gp3.measured[0] == pytest.approx(0.0005, rel=0.1)
    assert gp3.measured[1] is None
    gp2 = bounds_of("aws-gp2")
    assert gp2.least[0] < (gp2.measured[0] or 0) < gp2.greatest[0] == pytest.approx(0.002128)


windows = st.builds(
    window,
    reads=st.integers(0, 5000),
    writes=st.integers(0, 5000),
    kib=st.sampled_from([4, 128, 300]),
    own=st.floats(0.01, 10),
    disk=st.sampled_from([0.0, 0.5]),
    capped=st.booleans(),
)
demands = st.builds(demand, windows, windows, windows, used_share=st.floats(0.5, 1))
rules = st.builds(
    IoAccounting,
    st.sampled_from([None, 16384, 262_144]),
    st.sampled_from([None, True, False]),
    st.sampled_from([None, True, False]),
)
latencies = st.sampled_from([None, NO_LATENCY, LatencyBounds((0.001, 0), (0.01, 0.02))])


@given(demands, rules, latencies, st.integers(20, 10**5), st.integers(1, 9))
def test_every_part_of_the_range_is_in_order_and_falls_with_the_rates(
    of: IoDemand, counting: IoAccounting, latency: LatencyBounds | None, iops: int, factor: int
) -> None:
    outlook = VolumeOutlook(of, counting, latency)
    slow, fast = (outlook.predict(volume(iops * one)) for one in (1, factor))
    for found in (slow, fast):
        assert 0 < found.low <= found.seconds <= found.high
    for end in ("low", "seconds", "high"):
        assert getattr(fast, end) <= getattr(slow, end) * (1 + 1e-9)
    assert outlook.seconds(volume(iops)) == slow.seconds
    assert outlook.high(volume(iops)) == slow.high


@given(demands, rules, st.integers(20, 10**5))
def test_less_knowledge_never_narrows_the_range(
    of: IoDemand, counting: IoAccounting, iops: int
) -> None:
    known = predicted(of, iops, counting)
    for unknown in (replace(counting, merged=None), replace(counting, combined=None)):
        found = predicted(of, iops, unknown)
        assert found.low <= known.low * (1 + 1e-9)
        assert found.high >= known.high * (1 - 1e-9)
