"""The walk of windows over the meters of a volume: amounts, bursts, latency, order."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.cloud.formulas import LimitLayer, VolumeLimits
from pagecage.cloud.prediction import Assumptions, Cause, WalkedTime, io_meters, walk, window_needs
from pagecage.cloud.profile import LimitProfile
from pagecage.model.cage import IoAccounting
from pagecage.verdicts.io_demand import DemandWindow, IoDemand
from tests.builders.demands import demand, window

KIB256 = 256 * 1024
NO_RULES = IoAccounting()


def volume(
    iops: float = 1e9, bandwidth: float = 1e12, *, start: str = "full", **burst: float
) -> LimitProfile:
    """A volume of these rates; `rate` and `credits` make a bucket of I/Os."""
    bucket = (
        {"burst": Fraction(burst["rate"]), "credits": Fraction(burst["credits"])} if burst else {}
    )
    ios = (LimitLayer("volume", Fraction(iops), **bucket),)
    size = (LimitLayer("volume", Fraction(bandwidth)),)
    return LimitProfile("volume", "", VolumeLimits(ios, ios, size, size), start)


def walked(
    of: IoDemand, on: LimitProfile, rules: IoAccounting = NO_RULES, **given_: Any
) -> WalkedTime:
    given = Assumptions(**{"count": "expected", "combined": False, **given_})
    needs = window_needs(of, rules, given)
    return walk(needs, io_meters(on, combined=given.combined), on.name)


def test_a_window_takes_the_longest_of_its_needs() -> None:
    three = demand(
        window(reads=100, own=1.0),
        window(reads=400, own=1.0),
        window(reads=10, kib=1024, own=1.0),
    )
    found = walked(three, volume(iops=200, bandwidth=5 * 1024**2))
    assert found.seconds == pytest.approx(1.0 + 2.0 + 2.0)
    assert found.parts == pytest.approx(
        {Cause("program"): 1.0, Cause("IOPS", "volume"): 2.0, Cause("bandwidth", "volume"): 2.0}
    )


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
    assert (found.seconds, found.drained) == (pytest.approx(0.4), {})


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
