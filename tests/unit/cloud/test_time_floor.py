"""The least time of an amount of I/O under the limits of a profile."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.cloud.enough import IoAmount, LimitFloor, seconds_for, time_floors
from pagecage.cloud.formulas import LimitLayer, VolumeLimits, rate_periods
from pagecage.cloud.profile import LimitProfile
from pagecage.model.cage import IoAccounting, LatencyFloor, LatencyQuantiles, VolumeSimulation


def layer(rate: int, by: str = "volume", **burst: Fraction) -> tuple[LimitLayer, ...]:
    return (LimitLayer(by, Fraction(rate), **burst),)


CUSTOMER = LimitProfile(
    "customer",
    "",
    VolumeLimits(layer(5000), layer(5000), layer(200_000_000), layer(200_000_000)),
)


def test_the_customers_start_takes_minutes_by_its_limits_alone() -> None:
    in_windows = time_floors(CUSTOMER, IoAmount(read_bytes=28_000_000_000, reads=213_624))
    assert [floor.limit for floor in in_windows] == ["read bandwidth", "read IOPS"]
    assert in_windows[0].seconds == pytest.approx(140)
    by_page = time_floors(CUSTOMER, IoAmount(read_bytes=28_000_000_000, reads=6_835_938))
    assert (by_page[0].limit, round(by_page[0].seconds)) == ("read IOPS", 1367)


def test_every_layer_has_a_floor_of_its_own() -> None:
    both = (*layer(3000), *layer(1000, "m7i.large"))
    profile = LimitProfile("gp3", "", VolumeLimits(read_iops=both))
    assert time_floors(profile, IoAmount(reads=6000)) == [
        LimitFloor("read IOPS", "m7i.large", 6000, 6.0),
        LimitFloor("read IOPS", "volume", 6000, 2.0),
    ]


def test_a_burst_is_used_up_first() -> None:
    [one] = layer(300, burst=Fraction(3000), credits=Fraction(54_000))
    assert seconds_for(60_000, rate_periods((one,))) == pytest.approx(20)
    assert seconds_for(60_300, rate_periods((one,))) == pytest.approx(21)
    assert seconds_for(300, rate_periods((one,), "drained")) == pytest.approx(1)


@pytest.mark.parametrize(
    ("accounting", "operations"),
    [
        (IoAccounting(), 100),
        (IoAccounting(io_size_bytes=262_144), 400),
        (IoAccounting(io_size_bytes=4 << 20), 100),
        (IoAccounting(io_size_bytes=4 << 20, merged=True), 25),
    ],
)
def test_operations_are_counted_as_the_provider_does(
    accounting: IoAccounting, operations: int
) -> None:
    profile = LimitProfile("x", "", VolumeLimits(read_iops=layer(1)), accounting=accounting)
    [one] = time_floors(profile, IoAmount(read_bytes=100 << 20, reads=100))
    assert one.amount == operations


def test_reads_and_writes_that_share_a_limit_are_added() -> None:
    profile = LimitProfile(
        "x",
        "",
        VolumeLimits(layer(100), layer(100), layer(1000), layer(1000)),
        accounting=IoAccounting(combined=True),
    )
    floors = time_floors(profile, IoAmount(2000, 100, 3000, 300))
    assert [(floor.limit, floor.seconds) for floor in floors] == [
        ("bandwidth, reads and writes", 5.0),
        ("IOPS, reads and writes", 4.0),
    ]


def test_latency_counts_only_with_a_known_depth() -> None:
    profile = LimitProfile("x", "", VolumeLimits(), latency=LatencyFloor(read_us=500))
    assert time_floors(profile, IoAmount(reads=1000)) == []
    [one] = time_floors(profile, IoAmount(reads=1000, depth=4))
    assert (one.limit, one.seconds) == ("read latency, 4 in flight", 0.125)


def test_a_simulated_volume_takes_its_mean_latency() -> None:
    """The latency of 128 KiB that the article's customer implies takes the published 15 minutes."""
    reads = (LatencyQuantiles(131_072, ((0.5, 4100.0),)), LatencyQuantiles(512, ((0.5, 1000.0),)))
    simulation = VolumeSimulation((), reads)
    profile = replace(CUSTOMER, simulation=simulation, enforced_by="volume")
    io = IoAmount(read_bytes=28_000_000_000, reads=213_624, writes=5, depth=1)
    first = time_floors(profile, io)[0]
    assert first.limit == "mean read latency, 1 in flight"
    assert first.seconds == pytest.approx(875.9, rel=1e-3)
    by_cgroup = time_floors(replace(profile, enforced_by="cgroup"), io)
    assert [floor.limit for floor in by_cgroup] == ["read bandwidth", "read IOPS", "write IOPS"]
    pages = time_floors(profile, IoAmount(reads=1000, depth=2))
    assert pages[0].seconds == pytest.approx(0.5 * 1.0 * (4.1 ** (3 / 8)), rel=1e-3)


@given(st.integers(1, 10**12), st.integers(1, 10**6), st.integers(1, 10**6))
def test_more_takes_longer_and_a_burst_never_takes_longer(
    amount: int, base: int, above: int
) -> None:
    plain = rate_periods(layer(base))
    burst = rate_periods(layer(base, burst=Fraction(base + above), credits=Fraction(1000)))
    assert seconds_for(amount, burst) <= seconds_for(amount, plain) * (1 + 1e-9)
    assert seconds_for(amount, plain) <= seconds_for(amount + 1, plain)
