"""Limits on writes are refused where the kernel charges the flush of buffered writes to nobody."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagecage.agent.storage import (
    OtherDisk,
    Storage,
    require_cgroup_writeback,
    unlimited_writes,
)
from pagecage.agent.trial_run import RequirementMissed
from pagecage.linux import block_device
from pagecage.linux.block_device import Disk
from pagecage.model.cage import Cage, DiskLimits
from pagecage.model.requirements import Requirement
from tests.fake_host.trees import mountinfo

STICK = Disk("sdb", "8:16", "/dev/sdb", "vfat", "/mnt/stick")
LOG = Disk("sdc", "8:32", "/dev/sdc", "ext4", "/mnt/log")
MOUNTS = mountinfo(
    ("8:1", "/", "ext4", "/dev/sda1"),
    ("8:16", "/mnt/stick", "vfat", "/dev/sdb"),
    ("8:32", "/mnt/log", "ext4", "/dev/sdc"),
)
WRITES = {"IOWriteBandwidthMax": 1, "IOWriteIOPSMax": 1, "IOReadIOPSMax": 1, "MemoryMax": 1}


def test_limits_on_writes_are_named_with_the_file_system() -> None:
    [sentence] = unlimited_writes([(STICK, WRITES), (LOG, WRITES)], MOUNTS)
    assert sentence == (
        "/mnt/stick is vfat with writeback outside of the trial's cgroup, where"
        " IOWriteBandwidthMax and IOWriteIOPSMax would not hold for buffered writes"
    )


def test_limits_on_reads_and_memory_hold_anywhere() -> None:
    limited = {"IOReadBandwidthMax": 1, "IOReadIOPSMax": 1, "MemoryMax": 1}
    assert list(unlimited_writes(iter([(STICK, limited)]), MOUNTS)) == []


def test_a_journal_of_data_writes_for_everyone() -> None:
    journalled = MOUNTS.replace("/dev/sdc rw", "/dev/sdc rw,data=journal")
    [sentence] = unlimited_writes(iter([(LOG, WRITES)]), journalled)
    assert sentence.startswith("/mnt/log is ext4 with writeback outside")


@pytest.fixture
def mounts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_device, "read_mountinfo", lambda: MOUNTS)


@pytest.mark.usefixtures("mounts")
def test_a_trial_is_refused_for_its_disk_and_for_each_other() -> None:
    other = Storage("data", LOG, Path("/mnt/log"))
    apart = Cage("c", {}, disks={"wal": DiskLimits({"IOWriteIOPSMax": 1})})
    beside = Storage(
        "data", LOG, Path("/mnt/log"), disks={"wal": OtherDisk(STICK, *[Path("/x")] * 2)}
    )
    for cage, storage, disk in ((Cage("c", WRITES), other, STICK), (apart, beside, LOG)):
        with pytest.raises(RequirementMissed) as caught:
            require_cgroup_writeback(cage, storage, disk)
        [missed] = caught.value.missed
        assert missed.requirement == Requirement.LIMITS
        assert "ext4" in missed.hint


@pytest.mark.usefixtures("mounts")
def test_a_volume_and_a_disk_with_writeback_are_taken() -> None:
    storage = Storage("data", STICK, Path("/mnt/stick"))
    require_cgroup_writeback(Cage("c", WRITES, enforced_by="volume"), storage, STICK)
    require_cgroup_writeback(Cage("c", WRITES), storage, LOG)
