"""A cage with further disks on hosts that have them, lack them, or have one disk for two names."""

from __future__ import annotations

from dataclasses import replace

from pagecage.agent.storage import check_disks
from pagecage.model.cage import Cage, DiskLimits
from tests.builders.facts import facts

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
