"""Caches below a file system: loop devices, bcache, and LVM's."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagecage.linux.block_device import Disk
from pagecage.linux.page_cache import caches_below
from tests.fake_host import trees
from tests.tree import ROOT


def disk(name: str) -> Disk:
    return Disk(name, "7:0", f"/dev/{name}", "ext4", "/", (name,))


@pytest.fixture
def backing(tmp_path: Path) -> Path:
    """Return a file on the checkout's disk, all of it in the page cache."""
    path = ROOT / "build" / f"backing-{tmp_path.name}"
    path.write_bytes(bytes(1 << 20))
    path.read_bytes()
    yield path
    path.unlink()


def loop(sys: Path, file: str, dio: str = "0") -> None:
    where = trees.disk(sys, "loop0", "7:0")
    (where / "loop").mkdir()
    (where / "loop/backing_file").write_text(f"{file}\n")
    (where / "loop/dio").write_text(f"{dio}\n")


def test_the_file_below_a_loop_device_is_measured_and_evicted(
    tmp_path: Path, backing: Path
) -> None:
    loop(tmp_path, str(backing))
    hot, cold = (
        caches_below(disk("loop0"), is_evicted=is_evicted, sys=tmp_path)
        for is_evicted in (False, True)
    )
    layer = {"layer": "loop0", "kind": "loop", "file": str(backing), "file_bytes": 1 << 20}
    assert hot == [{**layer, "resident_bytes": 1 << 20}]
    assert cold == [{**layer, "resident_bytes": 0}]


def test_a_file_that_cannot_be_read_is_not_known_to_be_cold(tmp_path: Path) -> None:
    loop(tmp_path, "/nowhere/disk.img")
    [found] = caches_below(disk("loop0"), is_evicted=True, sys=tmp_path)
    assert (found["file_bytes"], found["resident_bytes"]) == (None, None)


def test_direct_io_below_a_loop_device_has_no_cache(tmp_path: Path, backing: Path) -> None:
    loop(tmp_path, str(backing), dio="1")
    [found] = caches_below(disk("loop0"), is_evicted=False, sys=tmp_path)
    assert found["resident_bytes"] == 0


@pytest.mark.parametrize(
    ("uuid", "kind"),
    [
        ("LVM-abc123-cdata", "dm-cache"),
        ("LVM-abc123-vpool", "VDO"),
        ("VDO-0001", "VDO"),
        ("LVM-abc123-tpool", None),
        ("CRYPT-LUKS2-cdata", None),
    ],
)
def test_hidden_volumes_of_lvm_tell_their_cache(
    tmp_path: Path, uuid: str, kind: str | None
) -> None:
    for number, name in enumerate(("sda", "sdb")):
        trees.disk(tmp_path, name, f"8:{number}")
    hidden = trees.disk(tmp_path, "dm-1", "253:1", ("sdb",))
    (hidden / "dm").mkdir()
    (hidden / "dm/uuid").write_text(f"{uuid}\n")
    trees.disk(tmp_path, "dm-0", "253:0", ("sda", "dm-1"))
    found = caches_below(disk("dm-0"), is_evicted=True, sys=tmp_path)
    assert found == ([{"layer": "dm-1", "kind": kind}] if kind else [])


def test_bcache(tmp_path: Path) -> None:
    (trees.disk(tmp_path, "bcache0", "252:0") / "bcache").mkdir()
    found = caches_below(disk("bcache0"), is_evicted=True, sys=tmp_path)
    assert found == [{"layer": "bcache0", "kind": "bcache"}]
