"""A volume of the catalogue as a simulated volume: layers apart, exact rates, latencies."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pagecage.cloud.catalogue import VolumeType
from pagecage.cloud.formulas import rate_periods
from pagecage.cloud.notes import notes
from pagecage.cloud.profile import CageOptions, LimitProfile, cage_of, limits_of, profile_of_cage
from pagecage.cloud.volume_request import VolumeRequest
from pagecage.definitions.cage_file import CageFile, resolve_cage
from pagecage.definitions.cage_writer import cage_to_toml
from pagecage.errors import PagecageError
from pagecage.model.cage import (
    Cage,
    LatencyQuantiles,
    LayerLimit,
    SnapshotRestore,
    VolumeEvent,
    VolumeSimulation,
)
from pagecage.units import GIB, MIB
from tests.builders.volumes import any_profile, fractions, kinds, profile, request_at, size_at


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
        assert [layer.by for layer in simulated] == [
            "volume" if layer.by == kind.name else "instance" for layer in layers
        ]
        assert [layer.credits and float(layer.credits) for layer in simulated] == [
            layer.credits and float(layer.credits) for layer in layers
        ]
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
    assert [(p.rate, p.by) for p in rate_periods(shown.limits.read_iops)] == [
        (300, "volume"),
        (200, "instance"),
    ]
    assert [layer.by for layer in shown.limits.write_iops] == ["volume"]
    assert (shown.cage, shown.is_volume) == (volume, True)


def text_of(profile: LimitProfile) -> str:
    return " ".join(notes(profile))


def test_notes_say_what_a_latency_is_based_on() -> None:
    nothing = text_of(profile("aws-st1", VolumeRequest(1024 * GIB)))
    assert "Latency: not published." in nothing
    assert "--enforced-by" not in nothing
    only_words = text_of(
        profile("azure-ultra", VolumeRequest(GIB * 64, Fraction(500), Fraction(10**8)))
    )
    assert "at the provider: sub-millisecond; no distribution is published." in only_words
    measured = text_of(profile("aws-gp2", VolumeRequest(1024 * GIB)))
    assert "The cage imposes no latency" in measured
    assert "With --enforced-by volume, a simulated volume imposes the latencies." in measured
    assert "Requests of every size take the latency of the one size" in measured
    assert "Latency of reads: The thread does not name the type" in measured
    asked = text_of(profile("aws-gp2", VolumeRequest(1024 * GIB), "", CageOptions(latency_us=7)))
    assert "a least latency of 7 us for a read and 7 us for a write" in asked
    assert "--enforced-by" not in asked


def test_notes_on_the_kernel_do_not_apply_to_a_simulated_volume() -> None:
    made = profile("aws-st1", VolumeRequest(1024 * GIB))
    assert "the kernel" in text_of(made)
    by_volume = text_of(replace(made, enforced_by="volume"))
    assert "the kernel" not in by_volume
    assert "The simulated volume has no latency within its limits." in by_volume
    cage = Cage("x", {}, simulation=VolumeSimulation((), (LatencyQuantiles(1, ((0.5, 5.0),)),)))
    assert "A simulated volume imposes the latencies." in text_of(
        profile_of_cage(replace(cage, enforced_by="volume"), None)
    )


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
