"""QEMU's drive throttling, as a real QEMU without a guest reports it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pagecage.errors import HostError
from pagecage.hosts.agent_package import architecture
from pagecage.hosts.vm.disks import DEVICE, throttle
from pagecage.hosts.vm.qemu import QmpClient
from pagecage.process import spawn

LIMITS = {
    "IOReadBandwidthMax": 20_000_000,
    "IOReadIOPSMax": 500,
    "IOWriteBandwidthMax": 7_000_000,
    "IOWriteIOPSMax": 9,
}


@pytest.fixture
def monitor(tmp_path: Path) -> Iterator[QmpClient]:
    machine = architecture()
    process = spawn(
        [
            machine.qemu,
            "-machine",
            machine.board,
            "-accel",
            "tcg",
            "-nodefaults",
            "-display",
            "none",
            "-S",
            "-blockdev",
            "driver=null-co,node-name=data,read-zeroes=on",
            "-device",
            f"virtio-blk-pci,drive=data,id={DEVICE}",
            "-qmp",
            f"unix:{tmp_path}/qmp,server=on,wait=off",
        ],
    )
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
    assert throttle(monitor, {"IOReadIOPSMax": 500}) == {"IOReadIOPSMax": 500}, (
        "what is not asked for is open again"
    )
    assert throttle(monitor, {}) == {}


def test_a_disk_that_is_not_there_is_no_success(monitor: QmpClient) -> None:
    with pytest.raises(HostError, match="QEMU rejected"):
        monitor.execute_verbatim(
            "block_set_io_throttle",
            {
                "id": "another",
                "bps": 0,
                "iops": 0,
                "bps_rd": 1,
                "bps_wr": 0,
                "iops_rd": 0,
                "iops_wr": 0,
            },
        )
