"""Fidelity to a provider's accounting and latency, and the request size that it sets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pagecage.agent import settings
from pagecage.agent.limits.fidelity import (
    combined,
    count_as_provider,
    io_size,
    latency,
    latency_floor_us,
    merged,
    no_floor_reason,
    not_shared_reason,
)
from pagecage.agent.settings import QueueSettingsJournal
from pagecage.errors import HostError
from pagecage.linux.block_device import Disk
from pagecage.model.cage import Cage, IoAccounting, LatencyFloor
from pagecage.model.trial import Dataset
from tests.fake_host.machine import MAJ_MIN, NODE, Machine, make_trial

DISK = Disk("fakedisk", MAJ_MIN, NODE, "ext4", "/", ("fakedisk",))
KIB = 1024


def queue(machine: Machine, setting: str) -> Path:
    return machine.sys / "block/fakedisk/queue" / setting


def test_requests_are_split_at_the_providers_io_size(machine: Machine) -> None:
    journal = QueueSettingsJournal(machine.spool)
    [fidelity] = count_as_provider(IoAccounting(io_size_bytes=256 * KIB), DISK, journal)
    assert queue(machine, "max_sectors_kb").read_text().strip() == "256"
    assert (fidelity.aspect, fidelity.state) == ("io_size", "exact")
    assert "requests are split at 256 KiB (max_sectors_kb, which was 1280)" in fidelity.reason
    assert journal.restore() == []
    assert queue(machine, "max_sectors_kb").read_text().strip() == "1280"


def test_a_disk_with_smaller_requests_is_stricter(machine: Machine) -> None:
    queue(machine, "max_hw_sectors_kb").write_text("128\n")
    [fidelity] = count_as_provider(
        IoAccounting(io_size_bytes=1024 * KIB), DISK, QueueSettingsJournal(machine.spool)
    )
    assert fidelity.state == "stricter"
    assert (
        "1024 KiB count 8 times here and once at the provider (the disk takes no more than 128 KiB)"
        in fidelity.reason
    )


def test_a_refused_setting_is_reported_and_not_restored(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise HostError(
            "max_sectors_kb cannot be set to 256: Permission denied", "run as root, or leave it out"
        )

    monkeypatch.setattr(settings, "write_queue_setting", refuse)
    journal = QueueSettingsJournal(machine.spool)
    [fidelity] = count_as_provider(IoAccounting(io_size_bytes=256 * KIB), DISK, journal)
    assert fidelity.state == "looser"
    assert "1280 KiB count once here and 5 times at the provider" in fidelity.reason
    assert "Permission denied" in fidelity.reason
    assert journal.restore() == []


def test_an_unknown_request_size_is_absent() -> None:
    assert io_size(256, None, None, "it is gone").state == "absent"


def test_merging_by_the_provider_is_stricter_here_without_read_ahead() -> None:
    assert merged(256 * KIB, "128").state == "stricter"
    assert "a window of 128 KiB" in merged(256 * KIB, "128").reason
    assert merged(256 * KIB, "256").state == "exact"
    assert merged(None, None).state == "stricter"


def test_a_shared_limit_is_divided_between_reads_and_writes(machine: Machine) -> None:
    found = count_as_provider(
        IoAccounting(None, True, True), DISK, QueueSettingsJournal(machine.spool)
    )
    assert [(one.aspect, one.state) for one in found] == [
        ("merged", "stricter"),
        ("combined", "exact"),
    ]


def test_a_shared_limit_that_cannot_be_divided_is_looser() -> None:
    both = Cage(
        "c",
        {"IOReadIOPSMax": 500, "IOWriteIOPSMax": 500},
        accounting=IoAccounting(None, None, True),
    )
    assert not_shared_reason(both, {"kernel": "6.12.0"}) == ""
    old = not_shared_reason(both, {"kernel": "5.15.0"})
    assert "kernel 5.15.0 may hang" in old
    alone = not_shared_reason(
        replace(both, properties={"IOReadIOPSMax": 500}), {"kernel": "6.12.0"}
    )
    assert alone == "the cage does not have the same limit for both"
    assert combined(alone).state == "looser"
    assert alone in combined(alone).reason


def test_unknown_accounting_has_no_fidelity(machine: Machine) -> None:
    assert (
        count_as_provider(
            IoAccounting(None, False, False), DISK, QueueSettingsJournal(machine.spool)
        )
        == []
    )


def test_latency_of_a_disk_made_for_the_trial() -> None:
    exact = latency(LatencyFloor(1000, 1000), 1000, 1240.0, "")
    assert exact.state == "exact"
    assert (
        exact.reason
        == "the disk made for the trial takes 1 ms for every I/O, of 1 ms a read and 1 ms a write;"
        " a direct read of one page takes 1.24 ms"
    )
    assert latency(LatencyFloor(1000, 500), 1000, None, "").state == "stricter"
    assert latency(LatencyFloor(1000, 1000), 1000, 14_600.0, "").state == "stricter"
    assert latency(LatencyFloor(1000, 2000), 1000, None, "").state == "looser"


def test_a_missing_latency_has_a_reason() -> None:
    fidelity = latency(LatencyFloor(1000, None), None, 90.0, "some reason")
    assert (fidelity.state, fidelity.reason) == (
        "absent",
        "io.max adds no latency; 1 ms a read are missing here: some reason",
    )


def test_latency_floor_of_a_cage() -> None:
    assert latency_floor_us(Cage("none", {})) is None
    assert latency_floor_us(Cage("read", {}, latency=LatencyFloor(1000, 2000))) == 1000
    assert latency_floor_us(Cage("write", {}, latency=LatencyFloor(None, 2000))) == 2000


def test_reasons_for_making_no_disk(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemAvailable: 2097152 kB\n")
    trial = make_trial(dataset=Dataset(512 * KIB * KIB))
    assert no_floor_reason(trial, True, meminfo) == ""
    assert "guest that pagecage made" in no_floor_reason(trial, False, meminfo)
    assert "not made by pagecage" in no_floor_reason(replace(trial, dataset=None), True, meminfo)
    large = replace(trial, dataset=Dataset(1024 * KIB * KIB))
    assert (
        no_floor_reason(large, True, meminfo)
        == "a disk in memory would need 2.25 GiB of memory, and 2 GiB are available"
    )
