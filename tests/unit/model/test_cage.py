"""A cage's properties as arguments of systemd, and as expected cgroup files."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.model.cage import (
    IO_MAX_KEY,
    Cage,
    cage_from_json,
    cage_to_json,
    cloud_to_json,
    expected_read_back,
    limits_not_in_force,
    property_arguments,
)
from pagecage.units import LEAST_PAGE_BYTES
from tests.builders.documents import as_line
from tests.builders.strategies import cages
from tests.record_schema import breaches

FULL = Cage(
    "full",
    {
        "MemoryMax": 10_000_000,
        "MemorySwapMax": 0,
        "IOReadBandwidthMax": 20_000_000,
        "IOReadIOPSMax": 500,
        "IOWriteBandwidthMax": 30_000_000,
        "IOWriteIOPSMax": 600,
        "CPUQuota": 50,
    },
)


@given(cages)
def test_a_cage_travels_unchanged(cage: Cage) -> None:
    assert cage_from_json(cage_to_json(cage)) == cage


@given(cages)
def test_a_cage_survives_being_written_as_json(cage: Cage) -> None:
    assert cage_from_json(json.loads(json.dumps(cage_to_json(cage)))) == cage


@given(cages)
def test_a_record_has_the_cloud_parts_of_the_cage(cage: Cage) -> None:
    cloud = cloud_to_json(cage)
    assert set(cloud) == {
        key
        for key in ("volume", "burst", "accounting", "latency", "simulation")
        if getattr(cage, key) is not None
    }
    line = json.loads(json.dumps(as_line(cage={"name": cage.name, **cloud})))
    assert breaches(line) == []


def test_a_plan_from_before_clouds_is_read() -> None:
    assert cage_from_json({"name": "old", "properties": {"MemoryMax": 1}}) == Cage(
        "old", {"MemoryMax": 1}
    )


def test_systemd_gets_plain_numbers_and_one_path_of_the_disk() -> None:
    assert property_arguments(FULL, "/dev/vdb") == [
        "MemoryAccounting=yes",
        "IOAccounting=yes",
        "CPUAccounting=yes",
        "MemoryMax=10000000",
        "MemorySwapMax=0",
        "IOReadBandwidthMax=/dev/vdb 20000000",
        "IOReadIOPSMax=/dev/vdb 500",
        "IOWriteBandwidthMax=/dev/vdb 30000000",
        "IOWriteIOPSMax=/dev/vdb 600",
        "CPUQuota=50%",
    ]


def test_accounting_is_on_without_limits_too() -> None:
    assert property_arguments(Cage("uncaged", {}), "/dev/vdb") == [
        "MemoryAccounting=yes",
        "IOAccounting=yes",
        "CPUAccounting=yes",
    ]


def test_expected_cgroup_files() -> None:
    assert expected_read_back(FULL, LEAST_PAGE_BYTES) == {
        "memory.max": "9998336",
        "memory.swap.max": "0",
        "io.max.rbps": "20000000",
        "io.max.riops": "500",
        "io.max.wbps": "30000000",
        "io.max.wiops": "600",
        "cpu.max": "50000 100000",
    }


@pytest.mark.parametrize("name", sorted(IO_MAX_KEY))
def test_every_io_property_needs_the_io_controller(name: str) -> None:
    assert Cage("x", {name: 1}).limits_io
    assert not Cage("x", {"MemoryMax": 1, "CPUQuota": 1}).limits_io


@given(cages)
def test_matching_limits_are_in_force(cage: Cage) -> None:
    read_back = {
        "memory.max": "max",
        "memory.swap.max": "max",
        "cpu.max": "max 100000",
        **expected_read_back(cage, LEAST_PAGE_BYTES),
    }
    assert (
        limits_not_in_force(
            expected_read_back(cage, LEAST_PAGE_BYTES),
            read_back,
            {"pagecage.slice": {"memory.max": "max"}},
        )
        == []
    )


@given(cages.filter(lambda cage: cage.properties), st.data())
def test_a_different_or_missing_limit_is_found(cage: Cage, data: st.DataObject) -> None:
    expected = expected_read_back(cage, LEAST_PAGE_BYTES)
    broken = data.draw(st.sampled_from(sorted(expected)))
    other = {**expected, broken: "max"}
    missing = {key: value for key, value in expected.items() if key != broken}
    assert limits_not_in_force(expected, other, {}) == [f"{broken} is max, not {expected[broken]}"]
    assert limits_not_in_force(expected, missing, {}) == [
        f"{broken} is missing, not {expected[broken]}"
    ]


def test_an_unrequested_limit_is_found() -> None:
    assert limits_not_in_force({}, {"memory.max": "4096", "cpu.max": "max 100000"}, {}) == [
        "memory.max is 4096, which was not requested"
    ]


@pytest.mark.parametrize(
    ("above", "tighter"),
    [
        ({"memory.max": "max", "cpu.max": "max 100000"}, False),
        ({"memory.max": "9998336"}, False),
        ({"memory.max": "9998335"}, True),
        ({"io.max.rbps": "19999999"}, True),
        ({"io.max.rbps": "20000001"}, False),
        ({"cpu.max": "20000 100000"}, True),
        ({"cpu.max": "100000 200000"}, False),
        ({"cpu.max": "99999 200000"}, True),
    ],
)
def test_a_tighter_limit_of_an_ancestor_is_found(above: dict[str, str], tighter: bool) -> None:
    expected = expected_read_back(FULL, LEAST_PAGE_BYTES)
    wrong = limits_not_in_force(expected, expected, {"user.slice": above})
    assert bool(wrong) is tighter
    if tighter:
        assert "user.slice has a tighter" in wrong[0]


def test_any_limit_above_is_tighter_than_none() -> None:
    assert limits_not_in_force({}, {}, {"machine.slice": {"memory.max": "99999999999"}})
