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
    IO_MAX_KEY,
    BurstCredits,
    Cage,
    CloudVolume,
    CreditBucket,
    IoAccounting,
    LatencyFloor,
)

counts = st.integers(1, 2**50)
percents = st.integers(1, 2**31 - 1)
words = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)
properties = st.fixed_dictionaries(
    {"MemorySwapMax": st.just(0)},
    optional={**dict.fromkeys((*IO_MAX_KEY, "MemoryMax"), counts), "CPUQuota": percents},
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
)


def can_be_a_file(cage: Cage) -> bool:
    """Return whether each bucket has a limit, without which a file refuses it."""
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
        cage_to_toml(cage, ["from a catalogue"])
        == '#:schema ../docs/schema/cage.schema.json\n# from a catalogue\nabout = "a \\"small\\"'
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
