"""The parameters of a simulated volume, the same volume slowed down, and its latencies."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.model.cage import (
    IO_MAX_KEY,
    BurstCredits,
    Cage,
    CreditBucket,
    IoAccounting,
    LatencyFloor,
    LatencyQuantiles,
    LayerLimit,
    SnapshotRestore,
    VolumeEvent,
    VolumeSimulation,
)
from pagecage.model.volume_model import (
    dilated,
    latency_at,
    mean_us,
    mean_us_at_size,
    volume_limits,
    volume_model,
)
from tests.builders.strategies import cages as any_cages
from tests.builders.strategies import latency_quantiles

cages = any_cages.map(
    lambda cage: replace(cage, properties={name: n or 1 for name, n in cage.properties.items()})
)


SIMULATION = VolumeSimulation(
    (LayerLimit("instance", "both", "operations", 3600.0, 40_000.0, 65_520_000.0),),
    (LatencyQuantiles(4096, ((0.5, 410.0), (0.999, 5216.0))),),
    (),
    SnapshotRestore(2_500_000.0, 524_288),
    (
        VolumeEvent("degrade", 60.0, 120.0, 0.9),
        VolumeEvent("delay", 0.0, None, 0.01, 50_000.0),
        VolumeEvent("fail", 10.0, None, 0.5, None, 4096, 8192),
    ),
)


def test_every_part_of_the_model() -> None:
    cage = Cage(
        "x",
        {"IOReadIOPSMax": 1},
        burst=BurstCredits("half"),
        accounting=IoAccounting(262_144, True, True),
        simulation=SIMULATION,
    )
    bucket = {"burst_per_second": 4e4, "capacity": 65_520_000.0, "start": 32_760_000.0}
    broken = {"share": 0.5, "first_byte": 4096, "end_byte": 8192}
    assert volume_model(cage, 7) == {
        "limits": [
            {
                "layer": "instance",
                "scope": "both",
                "unit": "operations",
                "per_second": 3600.0,
                "credits": bucket,
            }
        ],
        "accounting": {"io_size_bytes": 262_144, "merged": True},
        "read_latency": [{"size_bytes": 4096, "quantiles": [[0.5, 410.0], [0.999, 5216.0]]}],
        "write_latency": [],
        "restore": {"bytes_per_second": 2_500_000.0, "block_bytes": 524_288},
        "events": [
            {"kind": "degrade", "from_seconds": 60.0, "until_seconds": 120.0, "share": 0.9},
            {"kind": "delay", "from_seconds": 0.0, "share": 0.01, "latency_us": 50_000.0},
            {"kind": "fail", "from_seconds": 10.0, **broken},
        ],
        "seed": 7,
    }


def test_a_cage_without_a_volume_has_no_limit() -> None:
    assert volume_model(Cage("x", {"MemoryMax": 5}), 0) == {
        "limits": [],
        "accounting": {"io_size_bytes": None, "merged": False},
        "read_latency": [],
        "write_latency": [],
        "restore": None,
        "events": [],
        "seed": 0,
    }


@given(cages, st.integers(0, 2**63 - 1))
def test_a_model_is_json_and_every_bucket_holds_its_start(cage: Cage, seed: int) -> None:
    model = volume_model(cage, seed)
    assert json.loads(json.dumps(model)) == model
    for limit in model["limits"]:
        credits_ = limit["credits"]
        assert limit["per_second"] > 0
        assert credits_ is None or 0 <= credits_["start"] <= credits_["capacity"]


BOTH = {
    "IOReadIOPSMax": 3000,
    "IOWriteIOPSMax": 3000,
    "IOReadBandwidthMax": 125_000_000,
    "IOWriteBandwidthMax": 60_000_000,
}


@pytest.mark.parametrize("combined", [True, False, None])
def test_properties_are_the_limits_of_the_volume(combined: bool | None) -> None:
    """Equal limits of both directions are one if the provider combines them."""
    cage = Cage("x", BOTH, accounting=IoAccounting(combined=combined))
    iops = [LayerLimit("volume", of, "operations", 3000) for of in ("read", "write")]
    if combined:
        iops = [LayerLimit("volume", "both", "operations", 3000)]
    assert volume_limits(cage) == (
        *iops,
        LayerLimit("volume", "read", "bytes", 125_000_000),
        LayerLimit("volume", "write", "bytes", 60_000_000),
    )


def test_a_direction_without_a_property_has_no_limit() -> None:
    burst = BurstCredits("full", CreditBucket(3000, 540_000), None)
    cage = Cage("x", {"IOReadIOPSMax": 300}, burst=burst, accounting=IoAccounting(combined=True))
    assert volume_limits(cage) == (LayerLimit("volume", "read", "operations", 300, 3000, 540_000),)


def test_the_limits_of_a_simulation_replace_the_properties() -> None:
    assert volume_limits(Cage("x", BOTH, simulation=SIMULATION)) == SIMULATION.limits
    without = replace(SIMULATION, limits=())
    assert volume_limits(Cage("x", BOTH, simulation=without)) == volume_limits(Cage("x", BOTH))


def test_a_floor_is_a_constant_latency_and_a_distribution_replaces_it() -> None:
    floor = LatencyFloor(1000, None)
    model = volume_model(Cage("x", {}, latency=floor), 0)
    assert model["read_latency"] == [{"size_bytes": 4096, "quantiles": [[0.0, 1000.0]]}]
    assert model["write_latency"] == []
    model = volume_model(Cage("x", {}, latency=LatencyFloor(9, 9), simulation=SIMULATION), 0)
    assert model["read_latency"][0]["quantiles"][0] == [0.5, 410.0]
    assert model["write_latency"][0]["quantiles"] == [[0.0, 9.0]]


def test_sizes_rise_because_the_server_refuses_others() -> None:
    sizes = tuple(LatencyQuantiles(size, ((0.5, 9.0),)) for size in (65_536, 512, 4096))
    model = volume_model(Cage("x", {}, simulation=VolumeSimulation((), sizes, sizes)), 0)
    for key in ("read_latency", "write_latency"):
        assert [one["size_bytes"] for one in model[key]] == [512, 4096, 65_536]


@pytest.mark.parametrize(("start", "held"), [("full", 5400.0), ("half", 2700.0), ("drained", 0.0)])
def test_credits_at_the_start(start: str, held: float) -> None:
    burst = BurstCredits(start, CreditBucket(3000, 5400))
    limits = volume_model(Cage("x", {"IOReadIOPSMax": 300}, burst=burst), 0)["limits"]
    assert limits[0]["credits"] == {"burst_per_second": 3000, "capacity": 5400, "start": held}


def test_a_dilated_volume_takes_ten_times_as_long() -> None:
    cage = Cage(
        "x",
        {**BOTH, "MemoryMax": 2**30, "CPUQuota": 50},
        burst=BurstCredits("full", CreditBucket(6000, 540_000), CreditBucket(250, 99)),
        latency=LatencyFloor(500, None),
        simulation=SIMULATION,
        dilation=2.0,
    )
    slow = dilated(cage, 10)
    assert slow.dilation == 20
    assert slow.properties == {
        "IOReadIOPSMax": 300,
        "IOWriteIOPSMax": 300,
        "IOReadBandwidthMax": 12_500_000,
        "IOWriteBandwidthMax": 6_000_000,
        "MemoryMax": 2**30,
        "CPUQuota": 50,
    }
    assert slow.burst == BurstCredits("full", CreditBucket(600, 540_000), CreditBucket(25, 99))
    assert slow.latency == LatencyFloor(5000, None)
    assert slow.simulation == VolumeSimulation(
        (LayerLimit("instance", "both", "operations", 360.0, 4000.0, 65_520_000.0),),
        (LatencyQuantiles(4096, ((0.5, 4100.0), (0.999, 52_160.0))),),
        (),
        SnapshotRestore(250_000.0, 524_288),
        (
            VolumeEvent("degrade", 600.0, 1200.0, 0.9),
            VolumeEvent("delay", 0.0, None, 0.01, 500_000.0),
            VolumeEvent("fail", 100.0, None, 0.5, None, 4096, 8192),
        ),
    )


@given(cages, st.sampled_from([1.0, 2.0, 1024.0]))
def test_a_dilation_changes_times_and_neither_sizes_nor_shares(cage: Cage, factor: float) -> None:
    """A bucket of equal credits, whose rates are divided, lasts the factor times longer."""
    before, after = volume_limits(cage), volume_limits(dilated(cage, factor))
    if cage.simulation and cage.simulation.limits:
        for fast, slow in zip(before, after, strict=True):
            assert slow.per_second * factor == fast.per_second
            assert slow.credits == fast.credits
    others = {name: n for name, n in cage.properties.items() if name not in IO_MAX_KEY}
    slow_cage = dilated(cage, factor)
    assert {n: v for n, v in slow_cage.properties.items() if n not in IO_MAX_KEY} == others
    assert all(n >= 1 for name, n in slow_cage.properties.items() if name in IO_MAX_KEY)
    assert slow_cage.dilation == cage.dilation * factor


@given(cages)
def test_a_dilation_of_one_changes_nothing(cage: Cage) -> None:
    assert dilated(cage, 1) == cage


@pytest.mark.parametrize(
    "quantiles",
    [
        ((0.5, 410.0),),
        ((0.0, 100.0), (1.0, 1000.0)),
        ((0.5, 440.0), (0.95, 720.0)),
        ((0.25, 10.0), (0.5, 10.0), (0.75, 4000.0), (0.999, 4000.0)),
    ],
)
def test_the_mean_is_that_of_many_draws(quantiles: tuple[tuple[float, ...], ...]) -> None:
    count = 20_000
    mean = math.fsum(latency_at(quantiles, (n + 0.5) / count) for n in range(count)) / count
    assert mean_us(quantiles) == pytest.approx(mean, rel=1e-3)


def test_between_two_quantiles_the_logarithm_is_linear() -> None:
    """The values of volume/src/latency.rs for the same quantiles."""
    quantiles = ((0.25, 100.0), (0.75, 10_000.0))
    found = [latency_at(quantiles, p) for p in (0, 0.25, 0.5, 0.625, 0.75, 1)]
    assert found == pytest.approx([100, 100, 1000, 3162.28, 10_000, 10_000])


@given(latency_quantiles)
def test_a_mean_lies_within_the_quantiles(latency: LatencyQuantiles) -> None:
    lowest, highest = latency.quantiles[0][1], latency.quantiles[-1][1]
    assert lowest * (1 - 1e-9) <= mean_us(latency.quantiles) <= highest * (1 + 1e-9)


@given(latency_quantiles, st.integers(1, 2**31))
def test_one_size_holds_for_all(latency: LatencyQuantiles, size_bytes: int) -> None:
    assert mean_us_at_size([latency], size_bytes) == mean_us(latency.quantiles)


def test_a_size_between_two_has_a_mean_between_theirs() -> None:
    sizes = [LatencyQuantiles(65_536, ((0.5, 1600.0),)), LatencyQuantiles(4096, ((0.5, 400.0),))]
    means = [mean_us_at_size(sizes, size) for size in (512, 4096, 16_384, 65_536, 2**20)]
    assert means == pytest.approx([400, 400, 800, 1600, 1600])
    assert mean_us_at_size([], 4096) == 0
