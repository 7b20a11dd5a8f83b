"""Cages for other tools: nothing is lost in silence, and what was exported reads back."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pagecage.definitions.cage_file import cage_of_tables
from pagecage.exporters.export import Export
from pagecage.exporters.formats import EXPORTERS
from pagecage.importers.result import DescribedVolume
from pagecage.model.cage import (
    IO_MAX_KEY,
    PROPERTIES,
    BurstCredits,
    Cage,
    CloudVolume,
    CreditBucket,
    IoAccounting,
    LatencyFloor,
)
from pagecage.process import run
from tests.builders.imports import read

NODE = "/dev/nvme1n1"
MIB = 1 << 20
SIZES = st.integers(1, 1 << 20).map(lambda count: count * 4096)
PROPERTY_SETS = st.fixed_dictionaries(
    {},
    optional={
        "MemoryMax": SIZES,
        "MemorySwapMax": st.one_of(st.just(0), SIZES),
        "CPUQuota": st.integers(1, 800),
        **{name: st.integers(1, 10**9) for name in IO_MAX_KEY},
    },
)
READABLE = {"systemd": PROPERTIES, "compose": PROPERTIES, "kubernetes": ("MemoryMax", "CPUQuota")}
"""Tools whose files `pagecage cage import` reads, and the properties that they can say."""
GP2 = Cage(
    "gp2",
    {"IOReadIOPSMax": 300, "IOWriteIOPSMax": 300, "IOReadBandwidthMax": 128 * MIB},
    burst=BurstCredits("half", iops=CreditBucket(3000, 5_400_000)),
    accounting=IoAccounting(256 * 1024, merged=True, combined=True),
    latency=LatencyFloor(1000, 2000),
)


def exported(tool: str, cage: Cage) -> Export:
    return EXPORTERS[tool](cage, NODE)


def read_back(text: str) -> dict[str, int]:
    return dict(cage_of_tables("read-back", read(text).cage()).properties)


@pytest.mark.parametrize("tool", EXPORTERS)
@given(properties=PROPERTY_SETS)
def test_each_limit_is_said_or_named_as_lost(tool: str, properties: dict[str, int]) -> None:
    cage = Cage("any", properties)
    export = exported(tool, cage)
    lost = " ".join(one.what for one in export.lost)
    for name, value in properties.items():
        without = exported(tool, replace(cage, properties=_without(properties, name)))
        is_said = export.body != without.body
        is_default = name == "MemorySwapMax" and value == 0
        is_shared = tool == "nbdkit" and "Bandwidth" in name and " rate=" in export.body
        assert is_said or name in lost or is_default or is_shared, name


def _without(properties: dict[str, int], name: str) -> dict[str, int]:
    return {key: value for key, value in properties.items() if key != name}


@pytest.mark.parametrize("tool", READABLE)
@given(properties=PROPERTY_SETS)
def test_an_export_reads_back_as_the_same_limits(tool: str, properties: dict[str, int]) -> None:
    says = [*READABLE[tool]]
    if tool == "compose" and "MemoryMax" not in properties:
        says.remove("MemorySwapMax")
    asked = {name: value for name, value in properties.items() if name in says}
    text = exported(tool, Cage("any", properties)).text("a cage")
    found = read_back(text)
    if "MemorySwapMax" not in asked and (tool == "kubernetes" or "MemoryMax" not in asked):
        del found["MemorySwapMax"]  # without a memory limit, that of a cage file is the default
    assert found == asked


def test_libvirt_says_bursts_shared_limits_and_the_size_of_an_io() -> None:
    export = exported("libvirt", GP2)
    iotune = ElementTree.fromstring(export.text("a -- b")).find("devices/disk/iotune")
    assert iotune is not None
    assert {child.tag: int(child.text or 0) for child in iotune} == {
        "read_bytes_sec": 128 * MIB,
        "total_iops_sec": 300,
        "total_iops_sec_max": 3000,
        "total_iops_sec_max_length": 2000,
        "size_iops_sec": 256 * 1024,
    }
    assert [one.what for one in export.lost] == [
        "level of the credits at the start",
        "merging",
        "least latency",
    ]


def test_nbdkit_takes_the_filters() -> None:
    cage = replace(GP2, properties={**GP2.properties, "IOWriteBandwidthMax": 64 * MIB})
    export = exported("nbdkit", cage)
    command = export.body.replace("\\\n", " ").replace("file disk.raw", "memory 1M").split()
    found = run([*command[:1], "--unix", "-", *command[1:], "--run", "echo served"])
    assert found.stdout == "served\n"
    assert command[-3:] == [f"rate={64 * MIB * 8}", "rdelay=1ms", "wdelay=2ms"]
    assert export.lost[0].what == "128 MiB/s for reads and 64 MiB/s for writes"


def test_a_volume_that_can_be_bought_comes_with_its_claim() -> None:
    volume = CloudVolume("aws", "gp3", 100 << 30, 6000, 250 * MIB)
    pod, claim, storage = yaml.safe_load_all(
        exported("kubernetes", replace(GP2, volume=volume)).body
    )
    assert pod["spec"]["containers"][0]["volumeMounts"][0]["name"] == "data"
    assert claim["spec"]["storageClassName"] == storage["metadata"]["name"]
    assert storage["parameters"] == {"type": "gp3", "iops": "6000", "throughput": "250"}


def test_a_volume_at_a_share_of_its_speed_cannot_be_bought() -> None:
    volume = CloudVolume("aws", "gp3", 100 << 30, scale=0.1)
    export = exported("kubernetes", replace(GP2, volume=volume))
    assert len([*yaml.safe_load_all(export.body)]) == 1
    assert "IOReadIOPSMax = 300" in [one.what for one in export.lost]


@given(limit=SIZES, percent=st.integers(90, 99))
def test_memory_qos_reads_back_at_the_kubelets_own_factor(limit: int, percent: int) -> None:
    high = limit * percent // 100 // 4096 * 4096
    cage = Cage("any", {"MemoryMax": limit, "MemoryHigh": high, "MemorySwapMax": 0})
    export = exported("kubernetes", cage)
    assert any(one.what.startswith("MemoryHigh = ") for one in export.lost)
    found = read(export.text("a cage"), memory_qos=0.9).cage()
    if 10 * high >= 9 * limit and high < limit:
        assert cage_of_tables("read-back", found).properties == cage.properties
    else:
        assert "requests" not in export.body


def test_a_volume_reads_back_with_its_pod() -> None:
    volume = CloudVolume("aws", "gp3", 500 << 30, 6000, 250 * MIB)
    cage = Cage("any", {"MemoryMax": 1 << 30}, volume=volume)
    found = read(exported("kubernetes", cage).text("a cage"))
    assert found.cage()["MemoryMax"] == "1GiB"
    assert found.volume == DescribedVolume("aws-gp3", 500 << 30, 6000, 250)
    assert found.unsupported == ()
