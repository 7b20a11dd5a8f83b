"""Fidelity to a provider's accounting and latency, and io.max that follows burst credits."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pagecage.agent import settings
from pagecage.agent.limits.calibration import meters
from pagecage.agent.limits.fidelity import (
    IoMaxController,
    combined,
    count_as_provider,
    io_size,
    merged,
    no_latency,
    not_shared_reason,
    write_io_max,
)
from pagecage.agent.settings import QueueSettingsJournal
from pagecage.errors import HostError
from pagecage.linux.block_device import Disk
from pagecage.linux.cgroup import Cgroup
from pagecage.model.cage import (
    IO_MAX_KEY,
    BurstCredits,
    Cage,
    CreditBucket,
    IoAccounting,
    LatencyFloor,
)
from tests.builders.collector_contexts import collector_context
from tests.builders.waiting import wait_until
from tests.fake_host.machine import MAJ_MIN, NODE, Machine

DISK = Disk("fakedisk", MAJ_MIN, NODE, "ext4", "/", ("fakedisk",))
KIB = 1024


def queue(machine: Machine, setting: str) -> Path:
    return machine.sys / "block/fakedisk/queue" / setting


@pytest.fixture
def journal(machine: Machine) -> QueueSettingsJournal:
    return QueueSettingsJournal(machine.spool)


def test_requests_are_split_at_the_providers_io_size(
    machine: Machine, journal: QueueSettingsJournal
) -> None:
    [fidelity] = count_as_provider(IoAccounting(io_size_bytes=256 * KIB), DISK, journal)
    assert queue(machine, "max_sectors_kb").read_text().strip() == "256"
    assert (fidelity.aspect, fidelity.state) == ("io_size", "exact")
    assert "requests are split at 256 KiB (max_sectors_kb, which was 1280)" in fidelity.reason
    assert journal.restore() == []
    assert queue(machine, "max_sectors_kb").read_text().strip() == "1280"


def test_a_disk_with_smaller_requests_is_stricter(
    machine: Machine, journal: QueueSettingsJournal
) -> None:
    queue(machine, "max_hw_sectors_kb").write_text("128\n")
    [fidelity] = count_as_provider(IoAccounting(io_size_bytes=1024 * KIB), DISK, journal)
    assert fidelity.state == "stricter"
    told = "count 8 times here and once at the provider (the disk takes no more than 128 KiB)"
    assert f"1024 KiB {told}" in fidelity.reason


def test_a_refused_setting_is_reported_and_not_restored(
    journal: QueueSettingsJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise HostError("max_sectors_kb cannot be set to 256: Permission denied", "run as root")

    monkeypatch.setattr(settings, "write_queue_setting", refuse)
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


def test_a_shared_limit_is_divided_between_reads_and_writes(journal: QueueSettingsJournal) -> None:
    found = count_as_provider(IoAccounting(None, True, True), DISK, journal)
    states = {one.aspect: one.state for one in found}
    assert states == {"merged": "stricter", "combined": "exact"}


def test_a_shared_limit_that_cannot_be_divided_is_looser() -> None:
    limits = {"IOReadIOPSMax": 500, "IOWriteIOPSMax": 500}
    both = Cage("c", limits, accounting=IoAccounting(None, None, True))
    assert not_shared_reason(both, {"kernel": "6.12.0"}) == ""
    old = not_shared_reason(both, {"kernel": "5.15.0"})
    assert "kernel 5.15.0 may hang" in old
    reads = replace(both, properties={"IOReadIOPSMax": 500})
    alone = not_shared_reason(reads, {"kernel": "6.12.0"})
    assert alone == "the cage does not have the same limit for both"
    assert combined(alone).state == "looser"
    assert alone in combined(alone).reason


def test_unknown_accounting_has_no_fidelity(journal: QueueSettingsJournal) -> None:
    assert count_as_provider(IoAccounting(None, False, False), DISK, journal) == []


def test_a_cgroup_adds_no_latency() -> None:
    fidelity = no_latency(LatencyFloor(1000, None))
    reason = "a cgroup adds no latency, and 1 ms a read are missing; --enforced-by volume adds them"
    assert vars(fidelity) == {"aspect": "latency", "state": "absent", "reason": reason}


MAJ_MIN = "254:16"
AT_BASE = f"{MAJ_MIN} rbps=20000000 wbps=max riops=100 wiops=100\n"


def cage(*, rate: int = 1000, held: int = 200, start: str = "full", **more: Any) -> Cage:
    properties = {"IOReadIOPSMax": 100, "IOWriteIOPSMax": 100, "IOReadBandwidthMax": 20_000_000}
    burst = BurstCredits(start, iops=CreditBucket(rate, held))
    return Cage("small", properties, burst=burst, **more)


class Disklike:
    """A cgroup of plain files whose reader always uses all that io.max allows."""

    def __init__(self, folder: Path) -> None:
        self.cgroup = folder / "slice"
        self.cgroup.mkdir()
        self.reads, self._since = 0.0, time.monotonic()
        (self.cgroup / "io.max").write_text(AT_BASE)
        self.count()
        disk = Disk("vdb", MAJ_MIN, "/dev/vdb", "ext4", "/data")
        self.around = collector_context(folder, self.cgroup, disk=disk)

    def count(self) -> None:
        line = f"{MAJ_MIN} rbytes=0 wbytes=0 rios={int(self.reads)} wios=0\n"
        (self.cgroup / "io.stat.new").write_text(line)
        (self.cgroup / "io.stat.new").replace(self.cgroup / "io.stat")

    def cap(self) -> int:
        text = (self.cgroup / "io.max").read_text()
        return int(text.split("riops=")[1].split()[0])

    def read_until_drained(self) -> None:
        end, self._since = time.monotonic() + 20, time.monotonic()
        while self.cap() > 100 and (now := time.monotonic()) < end:
            self.reads += self.cap() * (now - self._since)
            self._since = now
            self.count()
            time.sleep(0.005)


def started(folder: Path, **changes: Any) -> tuple[Disklike, IoMaxController]:
    """Start a controller of a cage with these changes."""
    disk = Disklike(folder)
    controller = IoMaxController(disk.around, cage(**changes))
    controller.start()
    return disk, controller


def test_the_burst_is_in_force_before_anything_runs(tmp_path: Path) -> None:
    disk, controller = started(tmp_path, held=18_000)
    try:
        assert disk.cap() == 1000
    finally:
        assert controller.stop().status == "ok"


def test_credits_drain_to_the_base_and_come_back(tmp_path: Path, whole_io_max: None) -> None:
    disk, controller = started(tmp_path, held=600)
    disk.read_until_drained()
    drained = disk.cap()
    wait_until(lambda: disk.cap() > 100, 20)  # on a busy machine, a late tick leaves a debt
    refilled = disk.cap()
    outcome = controller.stop()
    assert (drained, refilled > 100) == (100, True)
    assert controller.to_json()["buckets"][0] == {
        "kind": "iops",
        "properties": ["IOReadIOPSMax"],
        "base": 100,
        "rate": 1000,
        "capacity": 600,
        "credits_at_start": 600,
    }
    changes = controller.to_json()["changes"]
    caps = [change["IOReadIOPSMax"] for change in changes if "IOReadIOPSMax" in change]
    assert (caps[0], min(caps)) == (1000, 100)
    series = [json.loads(line) for line in outcome.files[0].read_text().splitlines()]
    seconds = series[-1]["t"] - series[0]["t"]
    left = 600 + 100 * seconds - int(disk.reads)
    assert series[-1]["buckets"][0]["credits"] == pytest.approx(left, abs=1)


@pytest.fixture
def whole_io_max(monkeypatch: pytest.MonkeyPatch) -> None:
    """Emulate io.max, where a write changes only the keys that it names."""

    def write(group: Cgroup, maj_min: str, caps: dict[str, int]) -> None:
        [cgroup] = group.directories
        text = (cgroup / "io.max").read_text().split()[1:]
        held = {key: value for key, _, value in (pair.partition("=") for pair in text)}
        held |= {IO_MAX_KEY[prop]: str(cap) for prop, cap in caps.items()}
        pairs = " ".join(f"{key}={value}" for key, value in held.items())
        (cgroup / "io.max.new").write_text(f"{maj_min} {pairs}\n")
        (cgroup / "io.max.new").replace(cgroup / "io.max")

    monkeypatch.setattr("pagecage.agent.limits.fidelity.write_io_max", write)


def test_one_bucket_per_direction_unless_combined() -> None:
    apart = [meter.counters for meter in meters(cage())]
    assert apart == [{"IOReadIOPSMax": "rios"}, {"IOWriteIOPSMax": "wios"}]
    together = [meter.counters for meter in meters(cage(accounting=IoAccounting(combined=True)))]
    assert together == [{"IOReadIOPSMax": "rios", "IOWriteIOPSMax": "wios"}]


def test_a_limit_at_the_burst_rate_has_no_bucket() -> None:
    assert list(meters(cage(rate=100))) == []
    assert list(meters(Cage("plain", {"IOReadIOPSMax": 100}))) == []


def test_reads_and_writes_drain_a_common_bucket(tmp_path: Path) -> None:
    disk = Disklike(tmp_path)
    (disk.cgroup / "io.stat").write_text(f"{MAJ_MIN} rios=0 wios=0\n")
    controller = IoMaxController(disk.around, cage(accounting=IoAccounting(combined=True)))
    controller.start()
    (disk.cgroup / "io.stat").write_text(f"{MAJ_MIN} rios=150 wios=150\n")
    halves = "riops=25 wiops=25"  # half of half the base: the excess is a debt
    wait_until(lambda: halves in (disk.cgroup / "io.max").read_text(), 20)
    controller.stop()
    assert halves in (disk.cgroup / "io.max").read_text()


def test_a_differing_read_back_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, name = Disklike(tmp_path), "pagecage.agent.limits.fidelity.read_limits"
    monkeypatch.setattr(name, lambda *_: {"io.max.riops": "100"})
    with pytest.raises(HostError, match="riops is 100, not 1000"):
        write_io_max(Cgroup(unified=disk.cgroup), MAJ_MIN, {"IOReadIOPSMax": 1000})


def refuse(monkeypatch: pytest.MonkeyPatch, times: int) -> list[dict[str, int]]:
    """Make the read-back differ `times` times, as if systemd wrote between write and read-back."""
    asked: list[dict[str, int]] = []

    def write(_: Path, __: str, caps: dict[str, int]) -> None:
        asked.append(caps)
        if len(asked) <= times:
            raise HostError("io.max does not hold what was written: riops is 100, not 1000")

    monkeypatch.setattr("pagecage.agent.limits.fidelity.write_io_max", write)
    return asked


def test_a_limit_overwritten_at_once_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = refuse(monkeypatch, 2)
    _, controller = started(tmp_path, held=18_000)
    wait_until(lambda: len(asked) >= 3, 20)
    assert controller.stop().status == "ok"
    assert asked[:3] == [{"IOReadIOPSMax": 1000, "IOWriteIOPSMax": 1000}] * 3
    assert controller.to_json()["error"] is None


def test_a_limit_that_is_never_kept_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = refuse(monkeypatch, 1000)
    _, controller = started(tmp_path, held=18_000)
    wait_until(lambda: len(asked) >= 5, 20)
    time.sleep(0.3)  # for a sixth, which must not come
    assert "riops is 100, not 1000" in (controller.stop().reason or "")
    assert len(asked) == 5


def test_credits_regained_before_the_start_do_not_count(tmp_path: Path, whole_io_max: None) -> None:
    """A drained bucket refills while a scope is made, and is drained again at the start."""
    disk, controller = started(tmp_path, held=18_000, start="drained")
    wait_until(lambda: disk.cap() > 100, 20)
    refilled = disk.cap()
    controller.begin()
    begun = disk.cap()
    controller.stop()
    assert (refilled > 100, begun) == (True, 100)


def test_a_slice_that_vanishes_ends_the_controller(tmp_path: Path) -> None:
    disk, controller = started(tmp_path)
    (disk.cgroup / "io.stat").unlink()
    wait_until(lambda: controller.to_json()["error"] is not None, 20)
    outcome = controller.stop()
    assert outcome.status == "failed"
    assert "burst credits ended early" in (outcome.reason or "")
    assert controller.to_json()["error"] == outcome.reason


def test_foreign_writes_are_noticed_and_overwritten(tmp_path: Path, whole_io_max: None) -> None:
    disk, controller = started(tmp_path, held=18_000)
    (disk.cgroup / "io.max").write_text(AT_BASE)
    wait_until(lambda: len(controller.to_json()["changes"]) == 4, 20)
    controller.stop()
    found = controller.to_json()
    assert (disk.cap(), found["error"]) == (1000, None)
    assert found["overwritten"] == 2  # one bucket per direction
    assert [change.get("IOReadIOPSMax") for change in found["changes"]] == [1000, 100, None, 1000]
