"""Profiles of volumes, and cages that simulate them."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.cloud.catalogue import VolumeType
from pagecage.cloud.formulas import FULLNESS, LimitLayer, VolumeLimits, rate_periods, reachable
from pagecage.cloud.notes import notes
from pagecage.cloud.profile import (
    CageOptions,
    LimitProfile,
    attached,
    cage_of,
    find_instance,
    instance_names,
    limits_of,
    profile_of_cage,
)
from pagecage.cloud.volume_request import VolumeRequest, volume_limits
from pagecage.definitions.cage_file import CageFile, resolve_cage
from pagecage.definitions.cage_writer import cage_to_toml
from pagecage.errors import PagecageError
from pagecage.model.cage import (
    BurstCredits,
    Cage,
    CreditBucket,
    LatencyFloor,
    LatencyQuantiles,
    LayerLimit,
    SnapshotRestore,
    VolumeEvent,
    VolumeSimulation,
)
from pagecage.units import GIB, MIB
from tests.builders.volumes import (
    KINDS,
    PROVIDERS,
    any_profile,
    fractions,
    kinds,
    profile,
    request_at,
    size_at,
    sized,
)

TENTH = CageOptions(scale=Fraction(1, 10))


def text_of(profile: LimitProfile) -> str:
    return " ".join(notes(profile))


positive = st.fractions(Fraction(1), Fraction(10**6), max_denominator=100)


@given(kinds, fractions, fractions)
def test_no_volume_is_faster_than_its_type(kind: VolumeType, at: Fraction, share: Fraction) -> None:
    limits = volume_limits(kind, request_at(kind, size_at(kind, at), share))
    for layers, formula, rule in (
        (limits.read_iops, kind.read_iops, kind.iops_burst),
        (limits.write_iops, kind.write_iops, kind.iops_burst),
        (limits.read_bandwidth, kind.read_throughput, kind.throughput_burst),
        (limits.write_bandwidth, kind.write_throughput, kind.throughput_burst),
    ):
        most = formula.greatest if formula else None
        assert (most is None) == (layers == ())
        for layer in layers:
            assert most is not None
            assert 0 < layer.base <= most
            assert layer.burst is None or (rule and layer.burst <= (rule.rate.greatest or 0))


@given(sized, fractions, fractions)
def test_a_larger_volume_is_no_slower(kind: VolumeType, one: Fraction, other: Fraction) -> None:
    """Both have the included values, or the least that can be bought at the larger size."""
    small, large = sorted(size_at(kind, share) for share in (one, other))
    bought = request_at(kind, large, Fraction(0))
    slower, faster = (
        (
            volume_limits(kind, VolumeRequest(size, bought.iops, bought.throughput))
            for size in (small, large)
        )
        if _is_sold(kind, small, bought)
        else (VolumeLimits(), VolumeLimits())
    )
    for below, above in zip(vars(slower).values(), vars(faster).values(), strict=True):
        assert all(a.base <= b.base for a, b in zip(below, above, strict=True))


def _is_sold(kind: VolumeType, size: int, bought: VolumeRequest) -> bool:
    """Return whether the smaller volume may have the least of the larger one.

    Hyperdisk Extreme with a low ratio may not.
    """
    try:
        volume_limits(kind, VolumeRequest(size, bought.iops, bought.throughput))
    except PagecageError:
        return False
    return True


@given(sized, fractions)
def test_the_greatest_values_are_sold_and_larger_ones_are_not(
    kind: VolumeType, at: Fraction
) -> None:
    size = size_at(kind, at)
    request = request_at(kind, size, Fraction(1))
    volume_limits(kind, request)
    if request.iops is not None:
        with pytest.raises(PagecageError, match="IOPS, not"):
            volume_limits(kind, VolumeRequest(size, request.iops + 1, None))
    if request.throughput is not None:
        with pytest.raises(PagecageError, match="B/s, not"):
            volume_limits(kind, VolumeRequest(size, request.iops, request.throughput + MIB))


layers = st.builds(
    lambda by, base, more, held: LimitLayer(
        by, base, base + more if more else None, held if more else None
    ),
    st.sampled_from(["volume", "instance"]),
    positive,
    st.none() | positive,
    positive,
)


@given(st.lists(layers, min_size=1, max_size=4), st.sampled_from(sorted(FULLNESS)))
def test_speeds_only_fall_and_end_at_the_least_base(stack: list[LimitLayer], start: str) -> None:
    found = rate_periods(stack, start)
    rates = [phase.rate for phase in found]
    assert rates == sorted(set(rates), reverse=True)
    assert [phase.seconds is None for phase in found] == [False] * (len(found) - 1) + [True]
    assert rates[0] <= min(layer.rate(True) for layer in stack)
    if start == "drained":
        assert rates == [min(layer.base for layer in stack)]


@given(st.lists(layers, min_size=1, max_size=4))
def test_a_bucket_never_gives_more_than_it_holds(stack: list[LimitLayer]) -> None:
    """The use above a layer's base, over all periods that end, comes out of its bucket."""
    found = rate_periods(stack)
    for layer in stack:
        used = sum(
            (max(Fraction(0), p.rate - layer.base) * p.seconds for p in found if p.seconds),
            Fraction(0),
        )
        assert used <= (layer.credits or 0)


@given(
    st.lists(layers, min_size=1, max_size=3),
    st.fractions(Fraction(1, 100), Fraction(10), max_denominator=100),
)
def test_scaling_changes_speeds_and_not_times(stack: list[LimitLayer], factor: Fraction) -> None:
    slow = rate_periods([layer.scaled(factor) for layer in stack])
    assert [(p.rate, p.by, p.seconds) for p in slow] == [
        (p.rate * factor, p.by, p.seconds) for p in rate_periods(stack)
    ]


Exact = Fraction | int
"""An exact number; a literal is an int."""


def steps(stack: Sequence[LimitLayer], start: str = "full") -> list[tuple[Exact, Exact | None]]:
    """Return the rate and the seconds of each period."""
    return [(period.rate, period.seconds) for period in rate_periods(stack, start)]


def setters(stack: Sequence[LimitLayer]) -> list[tuple[str, Exact]]:
    """Return each period's rate and the layer that sets it."""
    return [(period.by, period.rate) for period in rate_periods(stack)]


def test_the_test_bucket_drains_in_twenty_seconds() -> None:
    bucket = LimitLayer("x", Fraction(100), Fraction(1000), Fraction(18000))
    assert steps([bucket]) == [(1000, 20), (100, None)]
    assert steps([bucket], "half") == [(1000, 10), (100, None)]
    assert steps([bucket], "drained") == [(100, None)]


def test_two_buckets_drain_one_after_the_other() -> None:
    volume = LimitLayer("volume", Fraction(100), Fraction(300), Fraction(2000))
    machine = LimitLayer("machine", Fraction(50), Fraction(1000), Fraction(5000))
    # 10 s at 300 use 2500 of the machine's 5000; the rest lasts 50 s at 100.
    assert steps([volume, machine]) == [(300, 10), (100, 50), (50, None)]
    found = [(period.by, period.credits_of) for period in rate_periods([volume, machine])]
    assert found == [("volume", "volume"), ("volume", "machine"), ("machine", "")]


def test_a_burst_without_a_bucket_never_ends() -> None:
    endless = LimitLayer("x", Fraction(100), Fraction(1000))
    assert steps([endless], "drained") == [(1000, None)]
    assert rate_periods([]) == ()


def test_the_least_of_volume_and_instance_and_which_of_them() -> None:
    """The instance limits a gp3 of 125 MiB/s on an m7i.large once its burst is spent."""
    made = profile("aws-gp3", VolumeRequest(500 * GIB), "m7i.large")
    bandwidth = setters(made.limits.read_bandwidth)
    assert bandwidth == [("aws-gp3", 125 * MIB), ("m7i.large", 81_250_000)]
    assert rate_periods(made.limits.read_iops)[-1].by == "aws-gp3"
    assert (made.memory_bytes, made.memory_by) == (8 * GIB, "m7i.large")


def test_a_cage_carries_base_and_bucket() -> None:
    request = VolumeRequest(500 * GIB, Fraction(6000), Fraction(250 * MIB))
    made = cage_of(profile("aws-gp3", request, "m7i.large"), "x", "about")
    assert made.properties == {
        "MemoryMax": 8 * GIB,
        "IOReadBandwidthMax": 81_250_000,
        "IOReadIOPSMax": 3600,
        "IOWriteBandwidthMax": 81_250_000,
        "IOWriteIOPSMax": 3600,
        "MemorySwapMax": 0,
    }
    assert made.burst is not None
    assert made.burst.iops == CreditBucket(6000, (40_000 - 3600) * 1800)
    assert made.burst.bandwidth == CreditBucket(250 * MIB, (1_250_000_000 - 81_250_000) * 1800)


def test_a_drained_cage_begins_at_the_base_and_may_fill() -> None:
    drained = profile("aws-gp2", VolumeRequest(500 * GIB), "", CageOptions(start="drained"))
    made = cage_of(drained, "x", "about")
    assert made.properties["IOReadIOPSMax"] == 1500
    assert made.burst == BurstCredits("drained", CreditBucket(3000, 5_400_000), None)


def test_a_scaled_cage_bursts_as_long() -> None:
    made = cage_of(profile("aws-gp2", VolumeRequest(500 * GIB), options=TENTH), "x", "about")
    assert made.burst is not None
    assert made.properties["IOReadIOPSMax"] == 150
    assert made.burst.iops == CreditBucket(300, 540_000)
    assert made.volume is not None
    assert made.volume.scale == 0.1


@given(kinds, fractions, fractions, st.sampled_from(sorted(FULLNESS)))
def test_every_volume_makes_a_cage_that_is_no_faster(
    kind: VolumeType, at: Fraction, share: Fraction, start: str
) -> None:
    made = any_profile(kind, request_at(kind, size_at(kind, at), share), start)
    cage = cage_of(made, "x", "about")
    for name, found in (
        ("IOReadIOPSMax", made.limits.read_iops),
        ("IOWriteBandwidthMax", made.limits.write_bandwidth),
    ):
        first = rate_periods(found, start)[0]
        assert cage.properties[name] <= first.rate
    if cage.burst and cage.burst.iops:
        bursting = rate_periods(made.limits.read_iops)[0].rate
        assert cage.properties["IOReadIOPSMax"] < cage.burst.iops.rate <= bursting


def test_less_than_one_a_second_is_refused() -> None:
    with pytest.raises(PagecageError, match="I/Os per second are less than the kernel can count"):
        cage_of(profile("aws-sc1", VolumeRequest(125 * GIB), options=TENTH), "x", "about")


def test_only_a_stated_least_latency_is_imposed() -> None:
    gp3 = profile("aws-gp3", VolumeRequest(GIB))
    assert gp3.latency is None, "below 10 ms says nothing of the least"
    request = VolumeRequest(2048 * GIB, None, Fraction(180 * MIB))
    assert profile("gcp-hyperdisk-throughput", request).latency == LatencyFloor(10_000, None)
    asked = profile("aws-gp3", VolumeRequest(GIB), "", CageOptions(latency_us=800))
    assert asked.latency == LatencyFloor(800, 800)
    assert asked.simulation is not None
    assert asked.simulation.read_latency == (), "what was asked for replaces what was measured"


@pytest.mark.parametrize(
    ("name", "found"), [("Standard_D2s_v5", "D2s_v5"), ("d2s_V5", "D2s_v5"), ("D96s_v5", "D96s_v5")]
)
def test_an_instance_is_found_by_the_names_in_use(name: str, found: str) -> None:
    assert find_instance(PROVIDERS["azure"], KINDS["azure-ultra"], name).name == found


@pytest.mark.parametrize(
    ("machine", "iops"),
    [
        ("n2-standard-2", 15000),
        ("n2-highmem-7", 15000),
        ("n2-custom-16-65536", 20000),
        ("n2-standard-32", 50000),
        ("n2-highcpu-96", 80000),
        ("e2-medium", 12000),
        ("e2-standard-2", 15000),
        ("n1-standard-1", 15000),
    ],
)
def test_a_machines_caps_follow_its_vcpus(machine: str, iops: int) -> None:
    assert find_instance(PROVIDERS["gcp"], KINDS["gcp-pd-balanced"], machine).caps.read_iops == iops


@pytest.mark.parametrize(
    "name", ["n2", "n2-standard", "n2-standard-0", "n3-standard-4", "e2-medium-standard-4", ""]
)
def test_names_of_no_machine_are_refused(name: str) -> None:
    with pytest.raises(PagecageError, match=r"in the catalogue|has no limits of"):
        find_instance(PROVIDERS["gcp"], KINDS["gcp-pd-balanced"], name)


def test_every_instance_that_is_listed_is_found() -> None:
    for provider in PROVIDERS.values():
        for name in instance_names(provider):
            kind = next(
                each for each in provider.types if not provider.machines or each.type == "pd-ssd"
            )
            instance = find_instance(provider, kind, name)
            assert all(vars(attached(VolumeLimits(), instance)).values())


def test_notes_name_differences_between_provider_and_cage() -> None:
    text = text_of(profile("aws-st1", VolumeRequest(1024 * GIB), "t3.micro"))
    for word in (
        "share each limit",
        "above 1 MiB counts as several",
        "in steps of 128 KiB gets",
        "A cgroup imposes no latency",
    ):
        assert word in text
    assert "t3.micro alone: 500 IOPS, 10.88 MB/s (10.38 MiB/s); in a burst 11800 IOPS" in text
    assert "share each limit" not in text_of(profile("gcp-pd-ssd", VolumeRequest(100 * GIB)))
    three = notes(profile("aws-gp2", VolumeRequest(334 * GIB), "t3.micro"))
    assert any("one bucket for IOPS: it lacks the drop after 8 h 16 min" in note for note in three)


def test_without_credits_small_volumes_are_bound_by_their_ios() -> None:
    assert reachable(Fraction(128 * MIB), Fraction(100), 256 * 1024) == 25 * MIB
    assert reachable(Fraction(128 * MIB), Fraction(100), None) == 128 * MIB


def test_a_low_iops_limit_loses_to_the_kernels_slices() -> None:
    """A tenth of P4's 120 IOPS is 12, of which blk-throttle allows 10; 30 and 3000 are exact."""
    p4 = profile("azure-premium-ssd", VolumeRequest(32 * GIB), options=TENTH)
    assert "12 per second are 10 in the cage" in text_of(p4)
    for exact in (
        profile("aws-gp2", VolumeRequest(100 * GIB), options=TENTH),
        profile("aws-gp3", VolumeRequest(100 * GIB)),
    ):
        assert "ten times per second" not in text_of(exact)


@given(kinds, fractions, fractions, st.sampled_from([Fraction(1), Fraction(1, 10), Fraction(7, 3)]))
def test_the_simulation_of_a_volume_has_its_layers_unrounded(
    kind: VolumeType, at: Fraction, share: Fraction, scale: Fraction
) -> None:
    made = any_profile(kind, request_at(kind, size_at(kind, at), share), scale=scale)
    assert made.simulation is not None
    limits = limits_of(made.simulation)
    for quantity, layers in vars(made.limits).items():
        simulated = getattr(limits, quantity)
        lasting = [
            layer.base if layer.credits or not layer.bursts else layer.burst for layer in layers
        ]
        assert [float(layer.base) for layer in simulated] == list(map(float, lasting))
        setters = ["volume" if layer.by == kind.name else "instance" for layer in layers]
        assert [layer.by for layer in simulated] == setters
        credits_ = [layer.credits and float(layer.credits) for layer in layers]
        assert [layer.credits and float(layer.credits) for layer in simulated] == credits_
    shared = {limit.of for limit in made.simulation.limits} == {"both"}
    assert shared == bool(kind.accounting.combined)


@given(kinds, fractions, fractions, st.sampled_from([Fraction(1), Fraction(3, 7)]))
def test_a_volumes_cage_reads_back_from_its_file(
    kind: VolumeType, at: Fraction, share: Fraction, scale: Fraction
) -> None:
    """Properties are whole numbers, and the limits of the simulation are exact."""
    made = any_profile(kind, request_at(kind, size_at(kind, at), share), scale=scale)
    try:
        cage = cage_of(made, "x", "about")
    except PagecageError:
        return  # less than one I/O per second
    assert cage.enforced_by == "cgroup"
    text = cage_to_toml(cage)
    assert resolve_cage("x", CageFile.model_validate(tomllib.loads(text)), None, Path()) == cage


def test_volume_and_instance_are_simulated_apart() -> None:
    request = VolumeRequest(500 * GIB, Fraction(6000), Fraction(250 * MIB))
    made = cage_of(profile("aws-gp3", request, "m7i.large"), "x", "about")
    assert made.simulation == VolumeSimulation(
        (
            LayerLimit("volume", "both", "operations", 6000.0),
            LayerLimit("instance", "both", "operations", 3600.0, 40_000.0, 36_400.0 * 1800),
            LayerLimit("volume", "both", "bytes", 250.0 * MIB),
            LayerLimit("instance", "both", "bytes", 81.25e6, 1250e6, 1168.75e6 * 1800),
        ),
        (LatencyQuantiles(512, ((0.5, 440.0), (0.95, 720.0))),),
    )


def test_a_burst_without_end_is_simulated_as_the_limit() -> None:
    made = profile("azure-premium-ssd-on-demand", VolumeRequest(1024 * GIB)).simulation
    assert made is not None
    assert made.limits == (
        LayerLimit("volume", "both", "operations", 30_000.0),
        LayerLimit("volume", "both", "bytes", 1e9),
    )


def test_a_cage_that_a_volume_enforces_shows_its_layers() -> None:
    limits = (
        LayerLimit("volume", "both", "operations", 300.0),
        LayerLimit("instance", "read", "operations", 200.0, 900.0, 700.0),
    )
    cage = Cage("x", {"IOReadIOPSMax": 5}, simulation=VolumeSimulation(limits))
    shown = profile_of_cage(cage, None)
    assert [layer.base for layer in shown.limits.read_iops] == [5], "a cgroup has no layers"
    volume = replace(cage, enforced_by="volume")
    shown = profile_of_cage(volume, None)
    assert setters(shown.limits.read_iops) == [("volume", 300), ("instance", 200)]
    assert [layer.by for layer in shown.limits.write_iops] == ["volume"]
    assert (shown.cage, shown.is_volume) == (volume, True)


def test_notes_say_what_a_latency_is_based_on() -> None:
    nothing = text_of(profile("aws-st1", VolumeRequest(1024 * GIB)))
    assert "Latency: not published." in nothing
    assert "--enforced-by" not in nothing
    ultra = VolumeRequest(GIB * 64, Fraction(500), Fraction(10**8))
    only_words = text_of(profile("azure-ultra", ultra))
    assert "at the provider: sub-millisecond; no distribution is published." in only_words
    measured = text_of(profile("aws-gp2", VolumeRequest(1024 * GIB)))
    assert "A cgroup imposes no latency" in measured
    assert "With --enforced-by volume, a simulated volume imposes the latencies." in measured
    assert "Requests of every size take the latency of the one size" in measured
    assert "Latency of reads: The thread does not name the type" in measured
    asked = text_of(profile("aws-gp2", VolumeRequest(1024 * GIB), "", CageOptions(latency_us=7)))
    least = "a least latency of 7 us for a read and 7 us for a write"
    assert f"With --enforced-by volume, a simulated volume imposes {least}." in asked
    assert "A cgroup imposes no latency" in asked
    latency = profile("aws-st1", VolumeRequest(1024 * GIB), "", CageOptions(latency_us=7))
    assert f"A simulated volume imposes {least}." in text_of(replace(latency, enforced_by="volume"))


def test_notes_on_the_kernel_do_not_apply_to_a_simulated_volume() -> None:
    made = profile("aws-st1", VolumeRequest(1024 * GIB))
    assert "the kernel" in text_of(made)
    by_volume = text_of(replace(made, enforced_by="volume"))
    assert "the kernel" not in by_volume
    assert "The simulated volume has no latency within its limits." in by_volume
    cage = Cage("x", {}, simulation=VolumeSimulation((), (LatencyQuantiles(1, ((0.5, 5.0),)),)))
    imposing = profile_of_cage(replace(cage, enforced_by="volume"), None)
    assert "A simulated volume imposes the latencies." in text_of(imposing)


def test_notes_name_the_restore_and_every_event() -> None:
    simulation = VolumeSimulation(
        restore=SnapshotRestore(2_500_000.0, 524_288),
        events=(
            VolumeEvent("degrade", 60.0, 120.0, 0.9),
            VolumeEvent("delay", 0.0, None, 0.01, 50_000.0),
            VolumeEvent("pause", 5.0, 7.5),
            VolumeEvent("fail", 10.0, None, 0.5, None, 4096, 8192),
            VolumeEvent("fail", 10.0, None, 1.0),
            VolumeEvent("detach", 300.0),
        ),
    )
    found = text_of(profile_of_cage(Cage("x", {}, simulation=simulation), None))
    for sentence in (
        "the first touch of each 512 KiB loads it at 2.5 MB/s (2.384 MiB/s).",
        "From 60 s to 2 min 00 s, the volume delivers 90 % of its rates.",
        "From 0 s, 1 % of the I/Os take 50 ms longer.",
        "From 5 s to 7.5 s, no I/O starts.",
        "From 10 s, 50 % of the I/Os from byte 4096 to before byte 8192 fail with EIO.",
        "From 10 s, 100 % of the I/Os fail with EIO.",
        "From 5 min 00 s, the volume is detached and every I/O fails with EIO.",
    ):
        assert sentence in found
