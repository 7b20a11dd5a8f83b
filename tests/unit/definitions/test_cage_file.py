"""Imported limits become a cage file that loads as the same cage."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagecage.definitions.cage_file import cage_of_tables
from pagecage.definitions.cage_writer import cage_to_toml
from pagecage.definitions.reader import Definitions
from pagecage.errors import PagecageError
from pagecage.model.cage import CloudVolume, IoAccounting
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
