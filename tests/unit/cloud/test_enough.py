"""The smallest volume that is enough, and the time that no volume falls below."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.cloud.catalogue import read_offers
from pagecage.cloud.comparison import (
    AS_FAST,
    IoAmount,
    LimitFloor,
    VolumeOffer,
    choose,
    seconds_for,
    time_floors,
)
from pagecage.cloud.formulas import LimitLayer, VolumeLimits, rate_periods
from pagecage.cloud.prediction import VolumeOutlook, latency_bounds
from pagecage.cloud.profile import CageOptions, LimitProfile, example_instance, find_instance
from pagecage.cloud.volume_request import VolumeRequest
from pagecage.errors import PagecageError
from pagecage.model.cage import IoAccounting, LatencyFloor, LatencyQuantiles, VolumeSimulation
from pagecage.units import GIB, MIB
from pagecage.verdicts.io_demand import IoDemand
from tests.builders.demands import demand, window
from tests.tree import ROOT

PROVIDERS = {provider.name: provider for provider in read_offers(ROOT / "cgroups/catalogue")}
NAMES = [kind.name for provider in PROVIDERS.values() for kind in provider.types]
FREE = VolumeRequest()
PAGES = demand(window(reads=400_000, own=5.0))
STREAM = demand(window(reads=8_000, kib=1024, own=5.0))


def offer(name: str, fixed: VolumeRequest = FREE, *, on: str = "", least: int = 0) -> VolumeOffer:
    """The volumes of a type, on an instance if its limits depend on one."""
    provider = PROVIDERS[name.partition("-")[0]]
    [kind] = [kind for kind in provider.types if kind.name == name]
    if not on and not (kind.read_iops and kind.read_throughput):
        on = example_instance(provider, kind)
    instance = find_instance(provider, kind, on) if on else None
    return VolumeOffer(provider, kind, instance, CageOptions(), fixed, least)


def outlook_of(volumes: VolumeOffer, of: IoDemand = PAGES) -> VolumeOutlook:
    latency = latency_bounds(volumes.kind, None, 30_000, of.request_bytes)
    return VolumeOutlook(of, volumes.kind.accounting, latency)


@pytest.mark.parametrize("of", [PAGES, STREAM], ids=["pages", "stream"])
@pytest.mark.parametrize("name", NAMES)
def test_the_chosen_volume_is_enough_and_the_next_smaller_one_is_not(
    name: str, of: IoDemand
) -> None:
    volumes = offer(name)
    outlook = outlook_of(volumes, of)
    fastest = outlook.high(volumes.profile(volumes.fastest(outlook.seconds)))
    slowest = outlook.high(volumes.profile(volumes.smallest(lambda _: True)))
    under = (fastest * slowest) ** 0.5 if slowest > fastest * 1.1 else fastest * 1.05
    found = choose(volumes, outlook, under)
    assert outlook.high(volumes.profile(found)) <= under
    for smaller in next_smaller(volumes, found):
        try:
            profile = volumes.profile(smaller)
        except PagecageError:
            continue
        assert outlook.high(profile) > under, smaller


def next_smaller(volumes: VolumeOffer, found: VolumeRequest) -> list[VolumeRequest]:
    """The volume with one value a step lower, as far as the provider sells such a one."""
    unit, size = volumes.kind.throughput_unit_bytes, volumes.kind.size
    lower = []
    if found.iops is not None:
        lower.append(VolumeRequest(found.size_bytes, found.iops - 100, found.throughput))
    if found.throughput is not None:
        lower.append(VolumeRequest(found.size_bytes, found.iops, found.throughput - unit))
    if found.iops is None and found.throughput is None and size and found.size_bytes:
        tiers = [tier.size_bytes for tier in volumes.kind.tiers.values()]
        below = [one for one in tiers if one < found.size_bytes]
        step = found.size_bytes - size.step_bytes
        lower.append(VolumeRequest(max(below) if below else step if not tiers else 0))
    return lower


@pytest.mark.parametrize("name", NAMES)
def test_a_larger_volume_is_never_slower_unless_tiers_lose_their_burst(name: str) -> None:
    """The search halves the sizes of a type without tiers."""
    volumes = offer(name)
    outlook = outlook_of(volumes)
    sizes = volumes._sizes()
    chosen = [sizes[len(sizes) * share // 12] for share in range(12)] + [sizes[-1]]
    times = [outlook.seconds(volumes.profile(volumes._fastest_of(size))) for size in chosen]
    falls = all(later <= earlier * 1.0001 for earlier, later in itertools.pairwise(times))
    assert falls == (name != "azure-standard-ssd")


def test_a_tier_that_bursts_beats_a_larger_one_that_does_not() -> None:
    volumes = offer("azure-standard-ssd")
    outlook = outlook_of(volumes)
    under = outlook.high(volumes.profile(VolumeRequest(1024 * GIB)))
    assert under < outlook.high(volumes.profile(VolumeRequest(2048 * GIB)))
    found = choose(volumes, outlook, under)
    assert found.size_bytes is not None
    assert found.size_bytes <= 1024 * GIB


@pytest.mark.parametrize("name", NAMES)
def test_out_of_reach_the_volume_is_as_fast_as_the_fastest(name: str) -> None:
    volumes = offer(name)
    outlook = outlook_of(volumes)
    found = volumes.profile(choose(volumes, outlook, 1e-3))
    fastest = outlook.seconds(volumes.profile(volumes.fastest(outlook.seconds)))
    assert outlook.seconds(found) <= AS_FAST * fastest


def test_the_expected_time_counts_where_the_upper_end_is_out_of_reach() -> None:
    """Nothing is stated about io1's latency, and the reader waits for each of its requests."""
    volumes = offer("aws-io1")
    outlook = outlook_of(volumes, demand(window(reads=100_000, own=5.0, disk=20.0)))
    assert outlook.high(volumes.profile(volumes.fastest(outlook.seconds))) > 1000
    found = choose(volumes, outlook, 27.0)
    assert found == VolumeRequest(78 * GIB, Fraction(3900))


def test_without_a_target_the_included_rates_count() -> None:
    volumes = offer("aws-gp3", least=100 * GIB + 1)
    assert choose(volumes, outlook_of(volumes), None) == VolumeRequest(101 * GIB)
    tiered = offer("azure-premium-ssd", least=100 * GIB)
    assert choose(tiered, outlook_of(tiered), None) == VolumeRequest(128 * GIB)


def test_without_included_rates_it_is_as_fast_as_the_fastest() -> None:
    volumes = offer("aws-io1")
    assert not volumes.includes_rates
    outlook = outlook_of(volumes)
    found = choose(volumes, outlook, None)
    assert found.iops is not None
    assert found.iops < 64_000
    fastest = outlook.seconds(volumes.profile(volumes.fastest(outlook.seconds)))
    assert outlook.seconds(volumes.profile(found)) <= AS_FAST * fastest


@pytest.mark.parametrize(
    ("fixed", "chosen"),
    [
        (VolumeRequest(50 * GIB), VolumeRequest(50 * GIB)),
        (VolumeRequest(None, Fraction(16_000)), VolumeRequest(32 * GIB, Fraction(16_000))),
        (
            VolumeRequest(None, Fraction(4000), Fraction(500 * MIB)),
            VolumeRequest(8 * GIB, Fraction(4000), Fraction(500 * MIB)),
        ),
    ],
)
def test_fixed_values_stay_and_the_size_follows(
    fixed: VolumeRequest, chosen: VolumeRequest
) -> None:
    volumes = offer("aws-gp3", fixed)
    assert choose(volumes, outlook_of(volumes), None) == chosen


@pytest.mark.parametrize("under", [None, 60.0])
def test_what_is_not_sold_is_refused(under: float | None) -> None:
    volumes = offer("aws-gp3", VolumeRequest(GIB, Fraction(16_000)))
    with pytest.raises(PagecageError, match="may have 3000 to 3000 IOPS, not 16000"):
        volumes.profile(choose(volumes, outlook_of(volumes), under))


def test_the_instance_counts_in_the_search() -> None:
    volumes = offer("aws-io2", on="m7i.large")
    outlook = outlook_of(volumes)
    alone = offer("aws-io2")
    assert choose(volumes, outlook, 140.0) == choose(alone, outlook, 140.0)
    held, free = choose(volumes, outlook, 1.0), choose(alone, outlook, 1.0)
    assert (held.iops or 0) <= 40_000 < (free.iops or 0)


def layer(rate: int, by: str = "volume", **burst: Fraction) -> tuple[LimitLayer, ...]:
    return (LimitLayer(by, Fraction(rate), **burst),)


CUSTOMER = LimitProfile(
    "customer", "", VolumeLimits(layer(5000), layer(5000), layer(200_000_000), layer(200_000_000))
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
    limits = VolumeLimits(layer(100), layer(100), layer(1000), layer(1000))
    profile = LimitProfile("x", "", limits, accounting=IoAccounting(combined=True))
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
