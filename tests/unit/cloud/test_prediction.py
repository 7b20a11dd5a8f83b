"""Predicted times on a volume: of a demand, of a run, and of every stored run."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.cloud.catalogue import read_offers
from pagecage.cloud.formulas import LimitLayer, VolumeLimits
from pagecage.cloud.prediction import (
    COVERED,
    EXPECTED,
    HIGHEST,
    LOWEST,
    Assumptions,
    Cause,
    LatencyBounds,
    VolumeOutlook,
    VolumePrediction,
    WalkedTime,
    greatest_published_us,
    io_meters,
    latency_bounds,
    walk,
    window_needs,
)
from pagecage.cloud.profile import LimitProfile
from pagecage.model.cage import IoAccounting
from pagecage.verdicts.io_demand import DemandWindow, IoDemand
from tests.builders.demands import demand, window
from tests.fixtures.predictions import (
    BUNDLES,
    LATENCY,
    LIMIT,
    OWN,
    OWN_CAPPED,
    PredictedPair,
    predicted_pairs,
    table,
)
from tests.tree import ROOT

PROVIDERS = read_offers(ROOT / "cgroups/catalogue")
KINDS = {kind.name: kind for provider in PROVIDERS for kind in provider.types}
APART = IoAccounting(combined=False)
NO_LATENCY = LatencyBounds((0.0, 0.0), (0.0, 0.0))


def rated_volume(iops: int, bandwidth: int = 10**12) -> LimitProfile:
    ios, size = (LimitLayer("v", Fraction(iops)),), (LimitLayer("v", Fraction(bandwidth)),)
    return LimitProfile("v", "", VolumeLimits(ios, ios, size, size))


def predicted(
    of: IoDemand, iops: int, rules: IoAccounting = APART, latency: LatencyBounds | None = None
) -> VolumePrediction:
    return VolumeOutlook(of, rules, latency).predict(rated_volume(iops))


@pytest.mark.parametrize("is_capped", [False, True])
def test_under_a_limit_the_range_is_that_of_the_measured_errors(is_capped: bool) -> None:
    """A trial without a limit does not show how much the program computes beside one."""
    found = predicted(demand(window(reads=1000, own=1.0, capped=is_capped)), 100)
    beside = 0.0 if is_capped else 1.0
    high = 10 * HIGHEST.held + beside * HIGHEST.serial * HIGHEST.free
    expected = (10 * LOWEST.held, 10.0 + beside * EXPECTED.serial, high)
    assert (found.low, found.seconds, found.high) == pytest.approx(expected)
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


run_windows = st.builds(
    window,
    reads=st.integers(0, 5000),
    writes=st.integers(0, 5000),
    kib=st.sampled_from([4, 128, 300]),
    own=st.floats(0.01, 10),
    disk=st.sampled_from([0.0, 0.5]),
    capped=st.booleans(),
)
run_demands = st.builds(demand, run_windows, run_windows, run_windows, used_share=st.floats(0.5, 1))
rules = st.builds(
    IoAccounting,
    st.sampled_from([None, 16384, 262_144]),
    st.sampled_from([None, True, False]),
    st.sampled_from([None, True, False]),
)
latencies = st.sampled_from([None, NO_LATENCY, LatencyBounds((0.001, 0), (0.01, 0.02))])


@given(run_demands, rules, latencies, st.integers(20, 10**5), st.integers(1, 9))
def test_every_part_of_the_range_is_in_order_and_falls_with_the_rates(
    of: IoDemand, counting: IoAccounting, latency: LatencyBounds | None, iops: int, factor: int
) -> None:
    outlook = VolumeOutlook(of, counting, latency)
    slow, fast = (outlook.predict(rated_volume(iops * one)) for one in (1, factor))
    for found in (slow, fast):
        assert 0 < found.low <= found.seconds <= found.high
    for end in ("low", "seconds", "high"):
        assert getattr(fast, end) <= getattr(slow, end) * (1 + 1e-9)
    assert outlook.seconds(rated_volume(iops)) == slow.seconds
    assert outlook.high(rated_volume(iops)) == slow.high


@given(run_demands, rules, st.integers(20, 10**5))
def test_less_knowledge_never_narrows_the_range(
    of: IoDemand, counting: IoAccounting, iops: int
) -> None:
    known = predicted(of, iops, counting)
    for unknown in (replace(counting, merged=None), replace(counting, combined=None)):
        found = predicted(of, iops, unknown)
        assert found.low <= known.low * (1 + 1e-9)
        assert found.high >= known.high * (1 - 1e-9)


KIB256 = 256 * 1024
NO_RULES = IoAccounting()


def volume(
    iops: float = 1e9, bandwidth: float = 1e12, *, start: str = "full", **burst: float
) -> LimitProfile:
    """A volume of these rates; `rate` and `credits` make a bucket of I/Os."""
    bucket = [Fraction(burst[key]) for key in ("rate", "credits") if burst]
    ios = (LimitLayer("volume", Fraction(iops), *bucket),)
    size = (LimitLayer("volume", Fraction(bandwidth)),)
    return LimitProfile("volume", "", VolumeLimits(ios, ios, size, size), start)


def walked(
    of: IoDemand, on: LimitProfile, rules: IoAccounting = NO_RULES, **given_: Any
) -> WalkedTime:
    given = Assumptions(**{"count": "expected", "combined": False, **given_})
    needs = window_needs(of, rules, given)
    return walk(needs, io_meters(on, combined=given.combined), on.name)


def test_a_window_takes_the_longest_of_its_needs() -> None:
    large = window(reads=10, kib=1024, own=1.0)
    three = demand(window(reads=100, own=1.0), window(reads=400, own=1.0), large)
    found = walked(three, volume(iops=200, bandwidth=5 * 1024**2))
    assert found.seconds == pytest.approx(1.0 + 2.0 + 2.0)
    by_limits = {Cause("IOPS", "volume"): 2.0, Cause("bandwidth", "volume"): 2.0}
    assert found.parts == pytest.approx({Cause("program"): 1.0, **by_limits})


def test_the_tighter_layer_is_named() -> None:
    one = demand(window(reads=1000, own=0.1))
    layers = (LimitLayer("volume", Fraction(1000)), LimitLayer("m7i.large", Fraction(500)))
    found = walked(one, LimitProfile("volume", "", VolumeLimits(read_iops=layers)))
    assert found.parts == {Cause("IOPS", "m7i.large"): 2.0}


def test_reads_and_writes_share_a_limit_or_have_one_each() -> None:
    both = demand(window(reads=300, writes=200, own=0.1))
    assert walked(both, volume(iops=100)).seconds == pytest.approx(3.0)
    assert walked(both, volume(iops=100), combined=True).seconds == pytest.approx(5.0)


def test_a_share_of_a_cap_and_of_the_pass_stretch_the_time() -> None:
    half = demand(window(reads=100, own=0.1), used_share=0.8, covered_share=0.5)
    assert walked(half, volume(iops=100)).seconds == pytest.approx(1.0 / 0.8 / 0.5)
    idle = demand(window(own=3.0), used_share=0.8, covered_share=0.5)
    assert walked(idle, volume(iops=100)).seconds == pytest.approx(6.0)


@pytest.mark.parametrize(("start", "seconds"), [("full", 5.5), ("half", 7.75), ("drained", 10.0)])
def test_credits_drain_in_the_middle_of_the_run(start: str, seconds: float) -> None:
    """1000 I/Os: full, 500 of them at 1000/s, for which 450 credits pay; the rest at 100/s."""
    ten = demand(*(window(reads=100, own=0.01) for _ in range(10)))
    bucket = volume(iops=100, rate=1000, credits=450, start=start)
    found = walked(ten, bucket)
    assert found.seconds == pytest.approx(seconds)
    assert bool(found.drained) == (start != "drained")


def test_the_moment_is_told_at_which_credits_are_used_up() -> None:
    one = demand(window(reads=5000, own=0.1), window(reads=10, own=0.1))
    found = walked(one, volume(iops=100, rate=1000, credits=450))
    assert found.drained == {Cause("IOPS", "volume"): pytest.approx(0.5)}


def test_credits_that_last_are_not_told() -> None:
    found = walked(demand(window(reads=400, own=0.1)), volume(iops=100, rate=1000, credits=450))
    assert found.seconds == pytest.approx(0.4)
    assert not found.drained


def test_computing_refills_the_bucket() -> None:
    """A minute of computing brings the bucket back to its capacity, and not above it."""
    burst = window(reads=1000, own=0.01)
    found = walked(demand(burst, window(own=60.0), burst), volume(iops=10, rate=1000, credits=500))
    alone = walked(demand(burst), volume(iops=10, rate=1000, credits=500)).seconds
    assert found.seconds == pytest.approx(alone + 60.0 + alone)


@pytest.mark.parametrize(
    ("kib", "rules", "operations"),
    [
        (4, IoAccounting(), (100, 100, 100)),
        (4, IoAccounting(KIB256), (100 / 64, 100, 100 + 100 / 64)),
        (4, IoAccounting(KIB256, merged=False), (100, 100, 100 + 100 / 64)),
        (256, IoAccounting(KIB256, merged=True), (100, 100, 200)),
        (1024, IoAccounting(KIB256, merged=False), (400, 400, 500)),
        (300, IoAccounting(KIB256, merged=False), (300 / 256 * 100, 200, 100 + 300 / 256 * 100)),
    ],
)
def test_operations_are_counted_within_bounds(
    kib: float, rules: IoAccounting, operations: tuple[float, ...]
) -> None:
    one = demand(window(reads=100, kib=kib, own=0.001))
    counts = ("fewest", "expected", "most")
    found = [walked(one, volume(iops=1), rules, count=count).seconds for count in counts]
    assert found == pytest.approx(list(operations))


def test_an_average_of_exactly_one_unit_is_one_operation() -> None:
    """22 * (15 / 22) is less than 15 by rounding."""
    moved = {"rios": 22.0, "rbytes": 15 * KIB256, "wios": 0.0, "wbytes": 0.0}
    exact = DemandWindow(moved, 1.0, False, 0.1, 0.0, 0.0, requests=15, queued_seconds=0.1)
    rules = IoAccounting(KIB256, merged=False)
    assert walked(demand(exact), volume(iops=1), rules).seconds == pytest.approx(15)


def test_a_bound_on_the_size_of_requests_bounds_their_parts() -> None:
    """No request of at most 128 KiB counts as two, whatever the average is."""
    one = demand(window(reads=100, kib=100), largest_request_bytes=128 * 1024)
    rules = IoAccounting(KIB256, merged=False)
    assert walked(one, volume(iops=1), rules, count="most").seconds == pytest.approx(100)


def test_neighbours_that_the_kernel_merged_count_once() -> None:
    """Of 100 reads, 25 reached the disk."""
    moved = window(reads=100, own=0.1).moved
    merged = demand(DemandWindow(moved, 1.0, False, 0.1, 0.0, 0.0, 25, 0.1))
    assert walked(merged, volume(iops=1)).seconds == pytest.approx(25)
    assert walked(merged, volume(iops=1), count="most").seconds == pytest.approx(100)


def test_a_reader_that_waits_for_each_request_takes_the_new_latency() -> None:
    one = demand(window(reads=1000, own=1.0, disk=0.5))
    assert walked(one, volume()).seconds == pytest.approx(1.5)
    slower = walked(one, volume(), latency=(0.005, 0.005))
    assert slower.seconds == pytest.approx(1.0 + 5.0)
    assert slower.parts == {Cause("latency", "volume"): slower.seconds}


def test_reads_and_writes_have_a_latency_each() -> None:
    one = demand(window(reads=300, writes=100, own=1.0, disk=0.5))
    found = walked(one, volume(), latency=(0.001, 0.010))
    assert found.seconds == pytest.approx(1.0 + 0.3 + 1.0)


def test_requests_in_flight_and_the_disk_beside_the_program_hide_latency() -> None:
    """Four in flight for a second, half of it beside the program, which goes on computing."""
    of_disk = DemandWindow(
        window(reads=400).moved, 3.0, False, 2.5, 0.5, 0.5, requests=400, queued_seconds=4.0
    )
    found = walked(demand(of_disk), volume(), latency=(0.02, 0.02))
    assert found.seconds == pytest.approx(2.5 + 400 * 0.02 / 4 - 0.5)


@pytest.mark.parametrize(("is_capped", "worst"), [(True, 1.0), (False, 100 * 0.01 / 50)])
def test_only_a_window_that_a_cap_held_may_have_had_one_request_in_flight(
    is_capped: bool, worst: float
) -> None:
    held = DemandWindow(
        window(reads=100).moved, 3.0, is_capped, 1.0, 0.1, 0.0, requests=100, queued_seconds=5.0
    )
    seconds = [
        walked(demand(held), volume(), latency=(0.01, 0.01), is_shallow=shallow).seconds
        for shallow in (False, True)
    ]
    assert seconds == pytest.approx([1.0 + 100 * 0.01 / 50, 1.0 + worst])


windows = st.builds(
    window,
    reads=st.integers(0, 5000),
    writes=st.integers(0, 5000),
    kib=st.sampled_from([4, 16, 128, 300, 1024]),
    own=st.floats(0, 10),
    disk=st.sampled_from([0.0, 0.01, 1.0]),
    capped=st.booleans(),
)
demands = st.builds(
    demand,
    windows,
    windows,
    windows,
    windows,
    used_share=st.floats(0.5, 1),
    covered_share=st.floats(0.1, 1),
)
rates = st.floats(10, 1e4)
factors = st.floats(1, 10)
EXACT = 1 + 1e-9


@given(demands, rates, factors, st.sampled_from(["fewest", "expected", "most"]), st.booleans())
def test_more_iops_never_take_longer(
    of: IoDemand, iops: float, factor: float, count: str, combined: bool
) -> None:
    rules = IoAccounting(KIB256, merged=True)
    slow, fast = (
        walked(of, volume(iops=rate), rules, count=count, combined=combined).seconds
        for rate in (iops, iops * factor)
    )
    assert fast <= slow * EXACT


@given(demands, rates, factors, st.floats(0, 1e5), factors, factors)
def test_a_faster_burst_and_more_credits_never_take_longer(
    of: IoDemand, base: float, burst: float, credits_: float, more: float, faster: float
) -> None:
    plain = volume(iops=base, rate=base * burst * EXACT, credits=credits_)
    fuller = volume(iops=base, rate=base * burst * EXACT, credits=credits_ * more)
    quicker = volume(iops=base, rate=base * burst * faster * EXACT, credits=credits_)
    higher = volume(iops=base * faster, rate=base * burst * faster * EXACT, credits=credits_)
    times = [walked(of, one).seconds for one in (plain, fuller, quicker, higher)]
    assert all(time <= times[0] * EXACT for time in times[1:])


@given(demands, rates, st.floats(1, 1e5))
def test_a_fuller_bucket_never_takes_longer(of: IoDemand, base: float, credits_: float) -> None:
    times = [
        walked(of, volume(iops=base, rate=base * 5, credits=credits_, start=start)).seconds
        for start in ("full", "half", "drained")
    ]
    assert times[0] <= times[1] * EXACT
    assert times[1] <= times[2] * EXACT


@given(demands, st.floats(0, 0.05), factors)
def test_a_lower_latency_never_takes_longer(of: IoDemand, latency: float, factor: float) -> None:
    low, high = (
        walked(of, volume(), latency=(one, one)).seconds for one in (latency, latency * factor)
    )
    assert low <= high * EXACT


@given(demands, rates, st.floats(1e4, 1e9))
def test_the_parts_add_up_and_no_window_is_faster_than_its_limits(
    of: IoDemand, iops: float, bandwidth: float
) -> None:
    found = walked(of, volume(iops=iops, bandwidth=bandwidth))
    assert sum(found.parts.values()) == pytest.approx(found.seconds)
    for key, rate in (("rios", iops), ("rbytes", bandwidth), ("wbytes", bandwidth)):
        assert found.seconds >= of.total(key) / rate / EXACT
    assert found.seconds >= of.free_seconds / EXACT


def of_cause(cause: str) -> list[PredictedPair]:
    return [pair for pair in predicted_pairs() if pair.cause == cause]


def test_the_stored_runs_have_pairs_of_every_cause() -> None:
    assert len(BUNDLES) > 5
    assert len(predicted_pairs()) > 250
    for cause in (LIMIT, LATENCY, OWN, OWN_CAPPED):
        assert len(of_cause(cause)) >= 5


def test_ranges_cover_what_was_measured() -> None:
    covered = [pair for pair in predicted_pairs() if pair.is_covered]
    assert len(covered) >= COVERED * len(predicted_pairs())


@pytest.mark.parametrize(("cause", "most"), [(LIMIT, 0.15), (LATENCY, 0.20), (OWN, 0.30)])
def test_the_expected_time_is_near(cause: str, most: float) -> None:
    """Of nine in ten; docs/CLOUD.md names the pairs that are off by more."""
    errors = sorted(abs(pair.error) for pair in of_cause(cause))
    assert errors[int(0.9 * len(errors))] <= most
    assert errors[len(errors) // 2] <= most / 3


def test_from_a_trial_without_a_limit_every_volume_is_near() -> None:
    errors = [abs(pair.error) for pair in predicted_pairs() if "uncaged" in pair.source]
    assert len(errors) >= 20
    assert max(errors) <= 0.15


def test_after_a_tight_limit_the_time_without_limits_is_too_long_and_the_range_reaches_it() -> None:
    found = of_cause(OWN_CAPPED)
    assert sum(pair.error > 0 for pair in found) > 0.8 * len(found)
    assert sum(pair.is_covered for pair in found) >= 0.9 * len(found)


def test_the_document_has_the_table() -> None:
    """`python -m tests.fixtures.predictions` prints it."""
    document = (ROOT / "docs/CLOUD.md").read_text()
    assert "\n".join(table(predicted_pairs())) in document
