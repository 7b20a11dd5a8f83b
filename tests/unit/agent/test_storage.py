"""The other disks of a cage: hosts that lack them, one disk of two names, and limits on writes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pagecage.agent.storage import (
    Storage,
    TrialDisk,
    check_disks,
    require_cgroup_writeback,
    require_distinct,
    unlimited_writes,
)
from pagecage.linux import block_device
from pagecage.linux.block_device import Disk
from pagecage.model.cage import Cage, DiskLimits
from pagecage.model.requirements import Requirement, RequirementMissed
from tests.builders.facts import facts
from tests.fake_host.trees import mountinfo

APART = Cage("apart", {}, disks={"wal": DiskLimits({}), "index": DiskLimits({})})
DATA = {"name": "vdb", "maj_min": "254:16", "node": "/dev/vdb"}
WAL = {"name": "vdc", "maj_min": "254:32", "node": "/dev/vdc"}
INDEX = {"name": "vdd", "maj_min": "254:48", "node": "/dev/vdd"}


def reasons(cage: Cage = APART, **disks: object) -> list[str]:
    return [missed.reason for missed in check_disks({**facts(disk=DATA), "disks": disks}, cage)]


def test_a_host_with_every_disk() -> None:
    assert reasons(wal=WAL, index=INDEX) == []


def test_a_host_of_an_older_agent_has_none() -> None:
    [wal, index] = check_disks(facts(disk=DATA), APART)
    assert "no disk 'wal'" in wal.reason
    assert "no disk 'index'" in index.reason


def test_a_directory_that_is_on_no_disk() -> None:
    [reason] = reasons(wal={"error": "/x is on tmpfs"}, index=INDEX)
    assert reason == "apart limits a disk 'wal' of its own, but /x is on tmpfs"


def test_two_names_of_one_disk() -> None:
    [with_data] = reasons(wal=DATA, index=INDEX)
    assert "wal and data are both /dev/vdb" in with_data
    [together] = reasons(wal=WAL, index=WAL)
    assert "index and wal are both /dev/vdc" in together


def test_simulated_volumes_need_no_disk() -> None:
    assert reasons(replace(APART, enforced_by="volume")) == []


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


def storage_on(**disks: Disk) -> Storage:
    return Storage({n: TrialDisk("data", one, Path(one.mount_point)) for n, one in disks.items()})


@pytest.mark.usefixtures("mounts")
def test_a_trial_is_refused_for_its_disk_and_for_each_other() -> None:
    apart = Cage("c", {}, disks={"wal": DiskLimits({"IOWriteIOPSMax": 1})})
    for cage, storage in (
        (Cage("c", WRITES), storage_on(data=STICK)),
        (apart, storage_on(data=LOG, wal=STICK)),
    ):
        with pytest.raises(RequirementMissed) as caught:
            require_cgroup_writeback(cage, storage)
        [missed] = caught.value.missed
        assert missed.requirement == Requirement.LIMITS
        assert "ext4" in missed.hint


@pytest.mark.usefixtures("mounts")
def test_a_volume_and_a_disk_with_writeback_are_taken() -> None:
    volume = replace(APART, properties=WRITES, enforced_by="volume")
    require_cgroup_writeback(volume, storage_on(data=STICK, wal=STICK))
    require_cgroup_writeback(Cage("c", WRITES), storage_on(data=STICK).measured_on(LOG))


def test_two_names_of_the_disk_that_is_measured() -> None:
    require_distinct(storage_on(data=STICK, wal=LOG))
    with pytest.raises(RequirementMissed, match="wal and data are both /dev/sdc"):
        require_distinct(storage_on(data=STICK, wal=LOG).measured_on(LOG))
