from pathlib import Path
from typing import Any

import pytest

from pagecage.errors import HostError
from pagecage.hosts.vm.disks import disk_bytes_for, drop_if_broken, ensure_data_disk, plug
from pagecage.process import run
from pagecage.units import GIB


def label(disk: Path) -> str:
    return run(
        ["blkid", "-p", "-o", "value", "-s", "LABEL", disk],
        env={"PATH": "/usr/sbin:/sbin:/usr/bin:/bin"},
    ).stdout


@pytest.mark.parametrize(
    ("data_bytes", "gib"), [(0, 8), (5 * GIB, 8), (10 * GIB, 13), (10 * GIB + 1, 14)]
)
def test_disk_has_room_for_data_and_file_system(data_bytes: int, gib: int) -> None:
    assert disk_bytes_for(data_bytes) == gib * GIB


def test_disk_is_made_once_and_again_only_when_too_small(tmp_path: Path) -> None:
    disk = tmp_path / "data.raw"
    steps: list[str] = []
    ensure_data_disk(disk, 0, steps.append)
    made = disk.stat().st_ino
    assert label(disk).strip() == "data"
    ensure_data_disk(disk, GIB, steps.append)
    assert (disk.stat().st_ino, len(steps)) == (made, 1)
    ensure_data_disk(disk, 8 * GIB, steps.append)
    assert disk.stat().st_size == 11 * GIB
    assert len(steps) == 2


def test_no_room_for_the_data_is_said_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="the experiment's data needs"):
        ensure_data_disk(tmp_path / "data.raw", 2**60, lambda _: None)
    assert not list(tmp_path.iterdir())


def test_only_a_broken_disk_is_dropped(tmp_path: Path) -> None:
    disk = tmp_path / "data.raw"
    drop_if_broken(disk, lambda _: None)
    ensure_data_disk(disk, 0, lambda _: None)
    drop_if_broken(disk, lambda _: None)
    assert disk.exists()
    with disk.open("r+b") as file:
        file.write(b"\xff" * 64 * 1024**2)
    said: list[str] = []
    drop_if_broken(disk, said.append)
    assert not disk.exists()
    assert said


class Monitor:
    """QEMU's monitor, which notes the devices that are added."""

    def __init__(self) -> None:
        self.devices: list[dict[str, Any]] = []

    def execute(self, command: str, **arguments: Any) -> None:
        if command == "device_add":
            self.devices.append(arguments)


def test_qemu_merges_no_requests_before_a_simulated_volume_counts_them(tmp_path: Path) -> None:
    monitor: Any = Monitor()
    plug(monitor, tmp_path / "data.raw")
    plug(monitor, tmp_path / "data.raw", tmp_path / "nbd")
    plain, volume = monitor.devices
    assert "request_merging" not in plain
    assert volume["request_merging"] is False
