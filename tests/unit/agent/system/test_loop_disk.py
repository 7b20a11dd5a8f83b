"""A disk of pagecage's own by loop: its settings, what is kept, and what a kill leaves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pagecage.agent.host_session import sweep
from pagecage.agent.settings import QueueSettingsJournal
from pagecage.errors import HostError
from pagecage.linux.block_device import LoopDisk, detach_loop_disk, resolve_disk
from pagecage.linux.systemd import Systemd
from pagecage.process import run
from pagecage.units import MIB

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/dev/loop-control").exists(),
    reason="only root attaches loop devices, and the kernel needs their driver",
)


@pytest.fixture
def spool(tmp_path: Path):
    folder = tmp_path / "spool"
    yield folder
    detach_loop_disk(folder)


def disk_in(folder: Path, size_bytes: int = 32 * MIB) -> LoopDisk:
    return LoopDisk(folder / "data/disk.img", size_bytes)


def attached(file: Path) -> str:
    return run(["losetup", "--associated", file], check=False).stdout


def queue(name: str, setting: str) -> str:
    return Path("/sys/block", name, "queue", setting).read_text().strip()


def test_it_has_settings_of_its_own(tmp_path: Path, spool: Path) -> None:
    below = resolve_disk(tmp_path)
    before = queue(below.name, "read_ahead_kb")
    mine = resolve_disk(disk_in(tmp_path).attach(spool))
    assert mine.maj_min != below.maj_min
    assert mine.filesystem == "ext4"
    assert Path("/sys/block", mine.name, "loop/dio").read_text().strip() == "1"
    journal = QueueSettingsJournal(spool)
    journal.set(mine, "read_ahead_kb", "64")
    assert (queue(mine.name, "read_ahead_kb"), queue(below.name, "read_ahead_kb")) == (
        "64",
        before,
    )
    journal.restore()


def test_its_file_is_kept_while_it_is_large_enough(tmp_path: Path, spool: Path) -> None:
    disk = disk_in(tmp_path)
    (disk.attach(spool) / "1.bin").write_bytes(b"kept")
    detach_loop_disk(spool)
    assert attached(disk.file) == ""
    assert (disk.attach(spool) / "1.bin").read_bytes() == b"kept"
    detach_loop_disk(spool)
    larger = disk_in(tmp_path, 48 * MIB).attach(spool)
    assert [path.name for path in larger.iterdir()] == ["lost+found"]
    assert disk.file.stat().st_blocks * 512 >= 48 * MIB, "no holes, which would be read from memory"


def test_a_file_that_is_no_file_system_is_made_again(tmp_path: Path, spool: Path) -> None:
    disk = disk_in(tmp_path)
    disk.file.parent.mkdir()
    disk.file.write_bytes(b"\0" * 32 * MIB)
    assert disk.attach(spool).is_mount()


def test_the_next_start_detaches_what_a_killed_agent_left(tmp_path: Path, spool: Path) -> None:
    disk = disk_in(tmp_path)
    mount_point = disk.attach(spool)
    node = resolve_disk(mount_point).node
    assert sweep(Systemd(False, 0), spool) == [node]
    assert not mount_point.is_mount()
    assert attached(disk.file) == ""
    assert sweep(Systemd(False, 0), spool) == []


def test_without_room_nothing_is_left(tmp_path: Path, spool: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", small])
    try:
        with pytest.raises(HostError, match="cannot become a disk"):
            LoopDisk(small / "disk.img", 32 * MIB).attach(spool)
        assert list(small.iterdir()) == []
        assert not (spool / "disk").is_mount()
    finally:
        run(["umount", small])
