"""The guest's disks, and QEMU's drive throttling as a real QEMU without a guest reports it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pagecage.agent.volume_server import CONTROL_SOCKET, DATA_SOCKET, server_argv
from pagecage.errors import HostError, PagecageError
from pagecage.hosts.agent_package import architecture
from pagecage.hosts.host import ResourceNeeds
from pagecage.hosts.vm.cache import GuestCache
from pagecage.hosts.vm.disks import (
    DEVICE,
    disk_bytes_for,
    disk_directories,
    drop_if_broken,
    ensure_data_disk,
    ensure_disks,
    plug,
    serial,
    throttle,
)
from pagecage.hosts.vm.qemu import QmpClient
from pagecage.process import run, spawn
from pagecage.units import GIB


def label(disk: Path) -> str:
    env = {"PATH": "/usr/sbin:/sbin:/usr/bin:/bin"}
    return run(["blkid", "-p", "-o", "value", "-s", "LABEL", disk], env=env).stdout


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


def test_a_volume_listens_on_unix_sockets_in_the_given_directory(tmp_path: Path) -> None:
    words = server_argv(Path("/p.so"), tmp_path / "disk", tmp_path / "sockets")
    assert words[words.index("--unix") + 1] == f"{tmp_path}/sockets/{DATA_SOCKET}"
    assert f"control={tmp_path}/sockets/{CONTROL_SOCKET}" in words
    assert not {"--port", "-p", "--ipaddr", "-i", "--vsock"} & set(words)


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


LIMITS = {
    "IOReadBandwidthMax": 20_000_000,
    "IOReadIOPSMax": 500,
    "IOWriteBandwidthMax": 7_000_000,
    "IOWriteIOPSMax": 9,
}


@pytest.fixture
def monitor(tmp_path: Path) -> Iterator[QmpClient]:
    machine = architecture()
    argv = [
        *(machine.qemu, "-machine", machine.board, "-accel", "tcg", "-nodefaults", "-S"),
        *("-display", "none", "-blockdev", "driver=null-co,node-name=data,read-zeroes=on"),
        *("-device", f"virtio-blk-pci,drive=data,id={DEVICE}"),
        *("-qmp", f"unix:{tmp_path}/qmp,server=on,wait=off"),
    ]
    process = spawn(argv)
    made = QmpClient(tmp_path / "qmp")
    try:
        assert made.connect(60)
        yield made
    finally:
        made.close()
        process.kill()
        process.wait()


def test_limits_are_held_and_let_go_of(monitor: QmpClient) -> None:
    assert throttle(monitor, LIMITS) == LIMITS
    one = {"IOReadIOPSMax": 500}
    assert throttle(monitor, one) == one, "what is not asked for is open again"
    assert throttle(monitor, {}) == {}


def test_a_disk_that_is_not_there_is_no_success(monitor: QmpClient) -> None:
    rates = dict.fromkeys(("bps", "iops", "bps_wr", "iops_rd", "iops_wr"), 0)
    limits = {"id": "another", "bps_rd": 1, **rates}
    with pytest.raises(HostError, match="QEMU rejected"):
        monitor.execute_verbatim("block_set_io_throttle", limits)
