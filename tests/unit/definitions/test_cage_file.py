"""Disks and simulated volumes of cage files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.definitions.cage_file import LatencyQuantilesTable, cage_of_tables
from pagecage.definitions.cage_writer import cage_to_toml
from pagecage.definitions.reader import Definitions
from pagecage.errors import PagecageError
from pagecage.model.cage import (
    Cage,
    CloudVolume,
    IoAccounting,
    LatencyQuantiles,
    LayerLimit,
    SnapshotRestore,
    VolumeEvent,
    VolumeSimulation,
)
from pagecage.units import percent_text
from tests.builders.definitions import definitions
from tests.builders.imports import FOLDER, fixture


@pytest.mark.parametrize("name", sorted(p.name for p in FOLDER.iterdir() if p.name != "README.md"))
def test_imported_limits_are_a_cage_that_loads(name: str, tmp_path: Path) -> None:
    found = fixture(name, "db", "data", "vol-0000000000000001a")
    (tmp_path / "cgroups").mkdir()
    cage = cage_of_tables("theirs", found.cage())
    (tmp_path / "cgroups/theirs.toml").write_text(cage_to_toml(cage))
    assert Definitions(tmp_path, []).cage("theirs", None) == cage
    assert {key: cage.properties.get(key) for key in ("IOReadIOPSMax", "CPUQuota")} == {
        key: found.cage().get(key) for key in ("IOReadIOPSMax", "CPUQuota")
    }


@pytest.mark.parametrize(
    "tables",
    [
        {"about": "x", "IOReadIOPSMax": -1},
        {"about": "x", "MemoryMax": "5"},
        {},
        {"about": "x", "Mem": "1B"},
        {"about": "x", "disks": {"data": {"IOReadIOPSMax": 5}}},
        {"about": "x", "disks": {"WAL": {"IOReadIOPSMax": 5}}},
        {"about": "x", "disks": {"w/al": {}}},
        {"about": "x", "disks": {"morethaneleven": {}}},
        {"about": "x", "disks": {"wal": {"MemoryMax": "1GiB"}}},
        {"about": "x", "disks": {"wal": {"burst": {"iops": {"rate": 5, "credits": 5}}}}},
    ],
)
def test_tables_that_are_not_a_cage_are_refused(tables: dict[str, object]) -> None:
    with pytest.raises(PagecageError, match="is not a valid cage"):
        cage_of_tables("mine", tables)


def test_the_limits_of_further_disks() -> None:
    wal = {"IOWriteIOPSMax": 50, "accounting": {"combined": True}, "volume": {"size": "1GiB"}}
    cage = cage_of_tables("mine", {"about": "x", "IOReadIOPSMax": 200, "disks": {"wal": wal}})
    log = cage.on_disk("wal")
    assert cage.properties == {"IOReadIOPSMax": 200, "MemorySwapMax": 0}
    assert log.properties == {"IOWriteIOPSMax": 50}
    assert log.accounting == IoAccounting(combined=True)
    assert log.volume == CloudVolume(size_bytes=2**30)
    assert log.enforced_by == "cgroup"


def test_a_latency_of_a_further_disk_needs_a_volume() -> None:
    latency = [{"size": "4KiB", "percentiles_us": {"50": 500}}]
    tables = {"about": "x", "disks": {"wal": {"simulation": {"read_latency": latency}}}}
    assert cage_of_tables("mine", tables).on_disk("wal").is_volume


def test_a_misspelt_key_of_a_further_disk_is_found(tmp_path: Path) -> None:
    (tmp_path / "cgroups").mkdir()
    file = tmp_path / "cgroups/mine.toml"
    for key, nearest in (("IOReadIOPMax", "IOReadIOPSMax"), ("burst.iop", "iops")):
        file.write_text(f'about = "x"\n[disks.wal]\n{key} = 5\n')
        with pytest.raises(PagecageError, match=f"unknown key 'disks.wal.{key}'") as caught:
            Definitions(tmp_path, []).cage("mine", None)
        assert nearest in caught.value.hint


EVERYTHING = """
about = "a volume"
IOReadIOPSMax = 300
[simulation]
restore = { rate = "2MB" }
[[simulation.limits]]
iops = 300
iops_burst = { rate = 3000, credits = 5400000 }
[[simulation.limits]]
layer = "instance"
of = "read"
bandwidth = "0.13MiB"
bandwidth_burst = { rate = "1MiB", credits = "1GiB" }
[[simulation.read_latency]]
percentiles_us = { 99.9 = 5216, 50 = 410.5, 99 = 3312, 100 = 48211 }
[[simulation.read_latency]]
size = "128KiB"
percentiles_us.50 = 4100
[[simulation.write_latency]]
size = "1B"
percentiles_us = { 0 = 406 }
[[simulation.events]]
kind = "fail"
share = 0.25
first_byte = 4096
end_byte = 8192
[[simulation.events]]
kind = "pause"
from_seconds = 5
until_seconds = 7.5
"""
EVERYTHING = EVERYTHING.replace("99.9 =", '"99.9" =')


def cage(top: Path, text: str) -> Cage:
    (top / "cgroups/volume.toml").write_text(text)
    return definitions(top).cage("volume", None)


def test_every_key_of_a_simulation(top: Path) -> None:
    found = cage(top, EVERYTHING)
    assert found.simulation == VolumeSimulation(
        (
            LayerLimit("volume", "both", "operations", 300.0, 3000.0, 5_400_000.0),
            LayerLimit("instance", "read", "bytes", 136_314.88, 1_048_576.0, float(2**30)),
        ),
        (
            LatencyQuantiles(4096, ((0.5, 410.5), (0.99, 3312.0), (0.999, 5216.0), (1.0, 48211.0))),
            LatencyQuantiles(131_072, ((0.5, 4100.0),)),
        ),
        (LatencyQuantiles(1, ((0.0, 406.0),)),),
        SnapshotRestore(2_000_000.0, 524_288),
        (
            VolumeEvent("fail", share=0.25, first_byte=4096, end_byte=8192),
            VolumeEvent("pause", 5.0, 7.5),
        ),
    )
    assert found.enforced_by == "volume", "because a cgroup has no latency"


@pytest.mark.parametrize(
    ("text", "enforced_by"),
    [
        ("", "cgroup"),
        ("[simulation]\n", "cgroup"),
        ("[[simulation.limits]]\niops = 5\n", "cgroup"),
        ("[simulation]\nrestore.rate = '1MB'\n", "volume"),
        ("[[simulation.events]]\nkind = 'detach'\n", "volume"),
        ("[[simulation.write_latency]]\npercentiles_us.50 = 5\n", "volume"),
        ("enforced_by = 'cgroup'\n[[simulation.write_latency]]\npercentiles_us.50 = 5\n", "cgroup"),
        ("enforced_by = 'volume'\n", "volume"),
    ],
)
def test_what_enforces_a_cage_by_default(top: Path, text: str, enforced_by: str) -> None:
    assert cage(top, f"about = 'x'\n{text}").enforced_by == enforced_by


LIMITS, READS, EVENTS = ("simulation.limits", "simulation.read_latency", "simulation.events")


@pytest.mark.parametrize(
    ("table", "text", "message"),
    [
        (LIMITS, "", "a limit has either iops or bandwidth"),
        (LIMITS, "iops = 1\nbandwidth = '1B'", "a limit has either iops or bandwidth"),
        (LIMITS, "iops = 0", "iops: Input should be greater than 0"),
        (LIMITS, "iops = inf", "iops: Input should be a finite number"),
        (LIMITS, "iops = nan", "iops: Input should be a finite number"),
        (LIMITS, "bandwidth = '0B'", "bandwidth: Input should be greater than 0"),
        (LIMITS, "bandwidth = 5", "bandwidth: a size is a string with a unit"),
        (LIMITS, "bandwidth = '5M'", "bandwidth: '5M' has no clear unit"),
        (LIMITS, "iops = 5\niops_burst = { rate = 9, credits = 0 }", "iops_burst.credits: Input"),
        (LIMITS, "iops = 5\niops_burst = { rate = 5, credits = 1 }", "rate is not above iops"),
        (
            LIMITS,
            "bandwidth = '1MB'\nbandwidth_burst = { rate = '1kB', credits = '1B' }",
            "bandwidth_burst.rate is not above bandwidth",
        ),
        (LIMITS, "iops = 5\nbandwidth_burst = { rate = '1kB', credits = '1B' }", "needs bandwidth"),
        (LIMITS, "iops = 5\nlayer = 'machine'", "'volume' or 'instance'"),
        (READS, "", "percentiles_us: Field required"),
        (READS, "percentiles_us = {}", "at least 1 item"),
        (READS, "percentiles_us.50 = 0", "Input should be greater than 0"),
        (READS, "percentiles_us.p50 = 5", '"p50" is not a percentage from 0 to 100'),
        (READS, "percentiles_us.101 = 5", '"101" is not a percentage from 0 to 100'),
        (READS, "percentiles_us.-1 = 5", '"-1" is not a percentage from 0 to 100'),
        (READS, "percentiles_us = { 5 = 5, '05' = 6 }", "percentile 5 is given twice"),
        (
            READS,
            "percentiles_us = { 50 = 410, 100 = 500, '99.9' = 400 }",
            "percentile 99.9 (400 us) is below percentile 50 (410 us)",
        ),
        (
            READS,
            "percentiles_us.50 = 5\n[[simulation.read_latency]]\npercentiles_us.50 = 6",
            "read_latency: two distributions have the same size",
        ),
        (EVENTS, "kind = 'restart'", "Input should be 'degrade', 'delay', 'pause'"),
        (EVENTS, "kind = 'degrade'", "an event of kind degrade has share"),
        (EVENTS, "kind = 'delay'\nshare = 1", "kind delay has latency_us and share"),
        (EVENTS, "kind = 'pause'\nshare = 1", "has neither share nor latency_us"),
        (EVENTS, "kind = 'degrade'\nshare = 0", "share: Input should be greater than 0"),
        (EVENTS, "kind = 'degrade'\nshare = 1.5", "share: Input should be less than or equal to 1"),
        (EVENTS, "kind = 'pause'", "a pause needs until_seconds"),
        (EVENTS, "kind = 'pause'\nfrom_seconds = 5\nuntil_seconds = 5", "must be after"),
        (EVENTS, "kind = 'detach'\nuntil_seconds = 5", "a detached volume stays detached"),
        (EVENTS, "kind = 'detach'\nfirst_byte = 5", "only a fail has first_byte"),
        (EVENTS, "kind = 'fail'\nshare = 1\nfirst_byte = 5\nend_byte = 5", "must be after first_"),
        (EVENTS, "kind = 'detach'\nfrom_seconds = -1", "greater than or equal to 0"),
        (EVENTS, "kind = 'detach'\nfrom_seconds = inf", "finite number"),
    ],
)
def test_a_mistake_is_one_sentence_with_its_key(
    top: Path, table: str, text: str, message: str
) -> None:
    with pytest.raises(PagecageError) as caught:
        cage(top, f"about = 'x'\n[[{table}]]\n{text}\n")
    assert caught.value.exit_code == 2
    assert caught.value.message.startswith("volume.toml: simulation")
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("restore.rate = '0B'", "restore.rate: Input should be greater than 0"),
        ("restore = { rate = '1MB', block = '512B' }", "restore.block: Input should be greater"),
        ("events = [" + 300 * "{ kind = 'detach' }," + "]", "events: List should have at most 256"),
    ],
)
def test_bounds_of_the_server_are_those_of_the_file(top: Path, text: str, message: str) -> None:
    with pytest.raises(PagecageError, match=message):
        cage(top, f"about = 'x'\n[simulation]\n{text}\n")


@pytest.mark.parametrize(
    ("table", "key", "meant"),
    [
        ("[[simulation.limits]]\niops = 5", "ipos", "iops"),
        ("[[simulation.limits]]\niops = 5\n[simulation.limits.iops_burst]", "raet", "rate"),
        ("[[simulation.read_latency]]", "percentiles_su", "percentiles_us"),
        ("[[simulation.write_latency]]", "sizes", "size"),
        ("[[simulation.events]]\nkind = 'detach'", "from_second", "from_seconds"),
        ("[simulation.restore]\nrate = '1MB'", "blok", "block"),
        ("[simulation]", "event", "events"),
        ("", "enforced_bi", "enforced_by"),
    ],
)
def test_a_misspelt_key_gets_the_nearest_one(top: Path, table: str, key: str, meant: str) -> None:
    with pytest.raises(PagecageError, match="unknown key") as caught:
        cage(top, f"about = 'x'\n{table}\n{key} = 1\n")
    assert caught.value.hint == f'did you mean "{meant}"?'


@pytest.mark.parametrize("extra", ["restore.rate = '1MB'", "events = [{ kind = 'detach' }]"])
def test_a_cgroup_cannot_enforce_restores_and_events(top: Path, extra: str) -> None:
    with pytest.raises(PagecageError, match="restores and events need enforced_by"):
        cage(top, f"about = 'x'\nenforced_by = 'cgroup'\n[simulation]\n{extra}\n")


@pytest.mark.parametrize(
    ("text", "probability"),
    [("99.9", 0.999), ("99.99", 0.9999), ("99.99999", 0.9999999), ("7", 0.07), ("100", 1.0)],
)
def test_percentages_are_decimal(text: str, probability: float) -> None:
    """100 * 0.999 and 99.9 / 100 are 0.9990000000000001 and the like in binary."""
    table = LatencyQuantilesTable(percentiles_us={text: 5.0})
    assert table.to_model().quantiles == ((probability, 5.0),)
    assert percent_text(probability) == text


@given(st.floats(0, 1))
def test_every_probability_reads_back(probability: float) -> None:
    table = LatencyQuantilesTable(percentiles_us={percent_text(probability): 5.0})
    assert table.to_model().quantiles[0][0] == probability
