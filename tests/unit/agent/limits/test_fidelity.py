"""How nearly io.max counts as a provider does: the request size set, put back, and what could not be had."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pagecage.agent.limits.fidelity import (
    combined,
    count_as_provider,
    floor_us,
    io_size,
    latency,
    merged,
    why_no_floor,
    why_not_shared,
)
from pagecage.agent.system import settings
from pagecage.agent.system.block_device import Disk
from pagecage.agent.system.settings import QueueSettingsJournal
from pagecage.errors import HostError
from pagecage.model.cage import Cage, IoAccounting, LatencyFloor
from pagecage.model.trial import Dataset
from tests.fake_host.machine import MAJ_MIN, NODE, Machine, make_trial

DISK = Disk("fakedisk", MAJ_MIN, NODE, "ext4", "/", ("fakedisk",))
KIB = 1024


def queue(machine: Machine, setting: str) -> Path:
    return machine.sys / "block/fakedisk/queue" / setting


def test_requests_are_split_where_the_provider_counts_another(machine: Machine) -> None:
    journal = QueueSettingsJournal(machine.spool)
    [told] = count_as_provider(IoAccounting(io_size_bytes=256 * KIB), DISK, journal)
    assert queue(machine, "max_sectors_kb").read_text().strip() == "256"
    assert (told.aspect, told.state) == ("io_size", "exact")
    assert "requests are split at 256 KiB (max_sectors_kb, which was 1280)" in told.reason
    assert journal.restore() == []
    assert queue(machine, "max_sectors_kb").read_text().strip() == "1280"


def test_a_disk_that_takes_smaller_requests_counts_more(machine: Machine) -> None:
    queue(machine, "max_hw_sectors_kb").write_text("128\n")
    [told] = count_as_provider(IoAccounting(io_size_bytes=1024 * KIB), DISK, QueueSettingsJournal(machine.spool))
    assert told.state == "stricter"
    assert "1024 KiB count 8 times here and once at the provider (the disk takes no more than 128 KiB)" in told.reason


def test_whoever_may_not_set_it_is_told_and_leaves_nothing_to_put_back(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise HostError("max_sectors_kb cannot be set to 256: Permission denied", "run as root, or leave it out")

    monkeypatch.setattr(settings, "write_queue_setting", refuse)
    journal = QueueSettingsJournal(machine.spool)
    [told] = count_as_provider(IoAccounting(io_size_bytes=256 * KIB), DISK, journal)
    assert told.state == "looser"
    assert "1280 KiB count once here and 5 times at the provider" in told.reason
    assert "Permission denied" in told.reason
    assert journal.restore() == []


def test_a_disk_that_tells_no_size() -> None:
    assert io_size(256, None, None, "it is gone").state == "absent"


def test_what_is_merged_there_and_not_here() -> None:
    assert merged(256 * KIB, "128").state == "stricter"
    assert "windows of 128 KiB" in merged(256 * KIB, "128").reason
    assert merged(256 * KIB, "256").state == "exact"
    assert merged(None, None).state == "stricter"


def test_one_limit_for_both_directions_is_divided_between_them(machine: Machine) -> None:
    told = count_as_provider(IoAccounting(None, True, True), DISK, QueueSettingsJournal(machine.spool))
    assert [(one.aspect, one.state) for one in told] == [("merged", "stricter"), ("combined", "exact")]


def test_one_limit_that_cannot_be_divided_is_looser_here() -> None:
    both = Cage("c", {"IOReadIOPSMax": 500, "IOWriteIOPSMax": 500}, accounting=IoAccounting(None, None, True))
    assert why_not_shared(both, {"kernel": "6.12.0"}) == ""
    old = why_not_shared(both, {"kernel": "5.15.0"})
    assert "kernel 5.15.0 may hang" in old
    alone = why_not_shared(replace(both, properties={"IOReadIOPSMax": 500}), {"kernel": "6.12.0"})
    assert alone == "the cage does not limit both alike"
    assert combined(alone).state == "looser"
    assert alone in combined(alone).reason


def test_nothing_known_is_nothing_told(machine: Machine) -> None:
    assert count_as_provider(IoAccounting(None, False, False), DISK, QueueSettingsJournal(machine.spool)) == []


def test_the_latency_of_a_disk_made_for_it() -> None:
    exact = latency(LatencyFloor(1000, 1000), 1000, 1240.0, "")
    assert exact.state == "exact"
    assert exact.reason == (
        "the disk made for it takes 1 ms for every I/O, of 1 ms a read and 1 ms a write; a direct read of one page "
        "takes 1.24 ms"
    )
    assert latency(LatencyFloor(1000, 500), 1000, None, "").state == "stricter"
    assert latency(LatencyFloor(1000, 1000), 1000, 14_600.0, "").state == "stricter"
    assert latency(LatencyFloor(1000, 2000), 1000, None, "").state == "looser"


def test_a_latency_that_is_missing_says_why() -> None:
    told = latency(LatencyFloor(1000, None), None, 90.0, "it is so")
    assert (told.state, told.reason) == (
        "absent", "io.max adds no time to an I/O; 1 ms a read are missing here: it is so",
    )  # fmt: skip


def test_which_latency_a_disk_is_made_with() -> None:
    assert floor_us(Cage("none", {})) is None
    assert floor_us(Cage("read", {}, latency=LatencyFloor(1000, 2000))) == 1000
    assert floor_us(Cage("write", {}, latency=LatencyFloor(None, 2000))) == 2000


def test_when_no_disk_is_made(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemAvailable: 2097152 kB\n")
    trial = make_trial(dataset=Dataset(512 * KIB * KIB))
    assert why_no_floor(trial, True, meminfo) == ""
    assert "guest that pagecage made" in why_no_floor(trial, False, meminfo)
    assert "not made by pagecage" in why_no_floor(replace(trial, dataset=None), True, meminfo)
    large = replace(trial, dataset=Dataset(1024 * KIB * KIB))
    assert why_no_floor(large, True, meminfo) == "a disk in memory would need 2.25 GiB of memory, and 2 GiB are left"
