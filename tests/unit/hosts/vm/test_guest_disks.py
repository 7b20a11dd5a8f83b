from __future__ import annotations

from pathlib import Path

import pytest

from pagecage.errors import PagecageError
from pagecage.hosts.host import ResourceNeeds
from pagecage.hosts.vm.cache import GuestCache
from pagecage.hosts.vm.disks import disk_directories, ensure_disks, serial
from pagecage.units import GIB


def test_a_file_for_each_disk(tmp_path: Path) -> None:
    cache = GuestCache(tmp_path)
    need = ResourceNeeds(0, 0, disks=("index", "wal"))
    assert ensure_disks(cache, need, lambda _: None) == ("data", "index", "wal")
    assert [path.name for path in cache.disks()] == ["data.raw", "data-index.raw", "data-wal.raw"]
    assert {path.stat().st_size for path in cache.disks()} == {8 * GIB}


def test_more_disks_than_ports(tmp_path: Path) -> None:
    need = ResourceNeeds(0, 0, disks=("a", "b", "c", "d"))
    with pytest.raises(PagecageError, match=r"ports for 3 disks .* names 4: a, b, c, d"):
        ensure_disks(GuestCache(tmp_path), need, lambda _: None)


def test_each_account_has_its_directory() -> None:
    assert disk_directories(("data", "wal"), "root") == {"wal": "/disks/wal"}
    assert disk_directories(("data", "wal"), "bench") == {"wal": "/disks/wal/bench"}


def test_a_serial_number_has_room_for_the_longest_name() -> None:
    """Of a longer one, virtio-blk would pass only the first 20 bytes."""
    assert len(serial("a" * 11)) == 20
