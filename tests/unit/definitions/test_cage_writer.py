"""A cage written as a file and read again is the same cage."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.definitions.cage_file import CageFile, resolve_cage
from pagecage.definitions.cage_writer import cage_to_toml
from pagecage.model.cage import (
    ENFORCERS,
    IO_MAX_KEY,
    MEMORY_EVENT,
    BurstCredits,
    Cage,
    CloudVolume,
    CreditBucket,
    IoAccounting,
    LatencyFloor,
    LatencyQuantiles,
    LayerLimit,
    SnapshotRestore,
    VolumeEvent,
    VolumeSimulation,
)
from tests.builders.strategies import simulations

counts = st.integers(1, 2**50)
percents = st.integers(1, 2**31 - 1)
words = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)
properties = st.fixed_dictionaries(
    {"MemorySwapMax": st.just(0)},
    optional={**dict.fromkeys((*IO_MAX_KEY, *MEMORY_EVENT), counts), "CPUQuota": percents},
)
flags = st.none() | st.booleans()
buckets = st.none() | st.builds(CreditBucket, st.integers(2**50 + 1, 2**51), counts)
sources = st.fixed_dictionaries(dict.fromkeys(("title", "author", "date", "url"), words))
cages = st.builds(
    Cage,
    name=st.just("x"),
    properties=properties,
    provenance=st.fixed_dictionaries({"about": words}, optional={"source": sources}),
    volume=st.none()
    | st.builds(
        CloudVolume,
        words,
        words,
        st.none() | counts,
        st.none() | counts,
        st.none() | counts,
        words,
        st.sampled_from([1.0, 0.1, 2.5]),
    ),
    burst=st.none()
    | st.builds(BurstCredits, st.sampled_from(["full", "half", "drained"]), buckets, buckets),
    accounting=st.none() | st.builds(IoAccounting, st.none() | counts, flags, flags),
    latency=st.none() | st.builds(LatencyFloor, st.none() | counts, st.none() | counts),
    simulation=st.none() | simulations,
    enforced_by=st.sampled_from(ENFORCERS),
)


def can_be_a_file(cage: Cage) -> bool:
    """Return whether each bucket has a limit, and each event a volume: a file needs both."""
    simulation = cage.simulation
    if simulation and (simulation.restore or simulation.events) and not cage.is_volume:
        return False
    if cage.burst is None:
        return True
    has_base = {"iops": "IOReadIOPSMax", "bandwidth": "IOReadBandwidthMax"}
    buckets = [key for key in has_base if getattr(cage.burst, key)]
    return bool(buckets) and all(has_base[key] in cage.properties for key in buckets)


def read(text: str) -> Cage:
    return resolve_cage("x", CageFile.model_validate(tomllib.loads(text)), None, Path("x.toml"))


@given(cages.filter(can_be_a_file))
def test_a_cage_reads_back(cage: Cage) -> None:
    assert read(cage_to_toml(cage, ["a comment"])) == cage


def test_the_file_is_as_a_person_would_write_it() -> None:
    cage = Cage(
        "x",
        {"IOReadBandwidthMax": 131_072_000, "IOReadIOPSMax": 3000, "MemorySwapMax": 0},
        {
            "about": 'a "small" disk',
            "source": {"title": "somewhere", "author": "", "date": "2023-05", "url": ""},
        },
        CloudVolume("aws", "gp3", 500 * 2**30, scale=0.1),
        BurstCredits("half", CreditBucket(6000, 540_000)),
        IoAccounting(2**18, True, None),
        LatencyFloor(1000, None),
    )
    assert (
        cage_to_toml(cage, ["from a catalogue"]) == '# from a catalogue\nabout = "a \\"small\\"'
        ' disk"\nIOReadBandwidthMax = "125MiB"\nIOReadIOPSMax = 3000\n[source]\ntitle ='
        ' "somewhere"\ndate = "2023-05"\n[volume]\nprovider = "aws"\ntype = "gp3"\nsize ='
        ' "500GiB"\nscale = 0.1\n[burst]\nstart = "half"\niops = { rate = 6000, credits = 540000'
        ' }\n[accounting]\nio_size = "256KiB"\nmerged = true\n[latency]\nread_us = 1000\n'
    )


@pytest.mark.parametrize("properties", [{}, {"MemoryMax": 4096}])
def test_open_swap_is_written(properties: dict[str, int]) -> None:
    text = cage_to_toml(Cage("x", properties, {"about": "open"}))
    assert 'MemorySwapMax = "infinity"' in text
    assert read(text).properties == properties


def test_a_simulation_is_as_a_person_would_write_it() -> None:
    cage = Cage(
        "x",
        {"MemorySwapMax": 0},
        {"about": "a volume"},
        simulation=VolumeSimulation(
            (
                LayerLimit("volume", "both", "operations", 300.0, 3000.0, 5_400_000.0),
                LayerLimit("instance", "read", "bytes", 13421772.8),
            ),
            (LatencyQuantiles(4096, ((0.5, 410.0), (0.999, 5216.5))),),
            restore=SnapshotRestore(2_500_000.0, 524_288),
            events=(VolumeEvent("degrade", 60.0, 120.0, 0.9), VolumeEvent("detach", 300.0)),
        ),
        enforced_by="volume",
    )
    assert cage_to_toml(cage).split('about = "a volume"\n')[1] == (
        'enforced_by = "volume"\n[simulation]\nlimits = [\n  { layer = "volume", of = "both",'
        " iops = 300, iops_burst = { rate = 3000, credits = 5400000 } },\n  { layer ="
        ' "instance", of = "read", bandwidth = "13421772.8B" },\n]\nread_latency = [\n  { size ='
        ' "4KiB", percentiles_us = { "50" = 410, "99.9" = 5216.5 } },\n]\nrestore = { rate ='
        ' "2.5MB", block = "512KiB" }\nevents = [\n  { kind = "degrade", from_seconds = 60,'
        ' until_seconds = 120, share = 0.9 },\n  { kind = "detach", from_seconds = 300 },\n]\n'
    )


@pytest.mark.parametrize("simulation", [None, VolumeSimulation()])
def test_the_enforcer_is_written_only_where_it_matters(simulation: VolumeSimulation | None) -> None:
    plain = Cage("x", {"MemorySwapMax": 0}, {"about": "x"}, simulation=simulation)
    assert ("enforced_by" in cage_to_toml(plain)) == (simulation is not None)
    volume = Cage("x", {"MemorySwapMax": 0}, {"about": "x"}, enforced_by="volume")
    assert 'enforced_by = "volume"' in cage_to_toml(volume)
