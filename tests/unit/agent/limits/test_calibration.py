"""Calibration: limits that hold, limits that leak, and limits that were not reached."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pagecage.agent import facts
from pagecage.agent.limits.calibration import Calibrator, remove_scratch
from pagecage.errors import PagecageError
from pagecage.linux.child_processes import Interruption
from pagecage.linux.systemd import Systemd
from pagecage.model.cage import IO_MAX_KEY, Cage
from tests.fake_host.machine import DATASET, Machine

READ = {"IOReadBandwidthMax": 20_000_000, "IOReadIOPSMax": 500}
WRITE = {"IOWriteBandwidthMax": 30_000_000, "IOWriteIOPSMax": 600}


@pytest.fixture
def calibrator(machine: Machine) -> Calibrator:
    return Calibrator(
        Systemd(False, 257), facts.resolve_disk(machine.data), machine.data, Interruption()
    )


def calibrated(calibrator: Calibrator, machine: Machine, **properties: int) -> dict[str, Any]:
    return dict(calibrator.calibrate(Cage("c", properties), machine.data / DATASET.file_name))


@pytest.mark.parametrize("name", sorted(IO_MAX_KEY))
def test_a_cap_that_holds(calibrator: Calibrator, machine: Machine, name: str) -> None:
    cap = {**READ, **WRITE}[name]
    found = calibrated(calibrator, machine, **{name: cap})[name]
    assert (found["held"], found["observed"], found["error"]) == (True, cap, None)
    assert cap < found["allowed"] < 1.15 * cap
    assert machine.left() == []


def test_the_start_of_fio_is_no_leak_of_a_low_cap(calibrator: Calibrator, machine: Machine) -> None:
    """Its program and the extents of its file are read under the cap too: some I/Os in 2 s."""
    found = calibrated(calibrator, machine, IOReadIOPSMax=30)["IOReadIOPSMax"]
    assert 30 + 3 < found["allowed"] < 30 + 8


@pytest.mark.parametrize("name", sorted(IO_MAX_KEY))
def test_a_cap_that_leaks(
    calibrator: Calibrator, machine: Machine, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("FAKE_LEAKS", "fio")
    cap = {**READ, **WRITE}[name]
    found = calibrated(calibrator, machine, **{name: cap})[name]
    assert (found["held"], found["observed"]) == (False, 1.5 * cap)


def test_a_disk_that_cannot_reach_the_cap_proves_nothing(
    calibrator: Calibrator, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SLOW", "fio")
    for found in calibrated(calibrator, machine, **READ).values():
        assert found["held"] is None
        assert found["error"] == "the disk reached only 50% of the cap"


def test_each_cap_is_driven_by_itself_and_once(calibrator: Calibrator, machine: Machine) -> None:
    calibrated(calibrator, machine, **READ)
    calibrated(calibrator, machine, **READ)
    units = [line.split()[1] for line in machine.log_lines() if line.startswith("start")]
    assert units == [
        "pagecage-calibrate_ioreadbandwidthmax.1.slice",
        "pagecage-calibrate_ioreadiopsmax.1.slice",
    ]
    calibrated(calibrator, machine, **{**READ, "IOReadIOPSMax": 501})
    assert len([line for line in machine.log_lines() if line == "fio"]) == 4


def test_a_load_that_fails_is_reported(
    calibrator: Calibrator, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_FAILS", "fio")
    found = calibrated(calibrator, machine, **READ)["IOReadIOPSMax"]
    assert found["held"] is None
    assert found["error"] == "fio failed: fio: io_u error on file: Input/output error"
    assert machine.left() == []


def test_without_fio_nothing_is_claimed(
    calibrator: Calibrator, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    found = calibrated(calibrator, machine, **READ)["IOReadIOPSMax"]
    assert (found["held"], found["error"]) == (None, "fio is not installed")


def test_without_a_file_reads_are_not_driven(calibrator: Calibrator, machine: Machine) -> None:
    assert dict(calibrator.calibrate(Cage("c", READ), None)) == {}
    assert machine.log_lines() == []


def test_a_memory_limit_is_filled_past_and_must_kill(
    calibrator: Calibrator, machine: Machine
) -> None:
    """Nothing enforces the limit here, so the program survives: the limit leaks."""
    found = calibrated(calibrator, machine, MemoryMax=2**20)["MemoryMax"]
    assert found["held"] is False
    assert "oom_kill 0" in found["error"]
    assert machine.left() == []


def test_a_throttling_limit_must_count_its_throttling(
    calibrator: Calibrator, machine: Machine
) -> None:
    """Nothing throttles here, so that memory beyond the limit is a leak."""
    found = calibrated(calibrator, machine, MemoryHigh=2**20)["MemoryHigh"]
    assert found["held"] is not True
    assert "peak" in found["error"]
    assert machine.left() == []


def test_a_quota_that_is_not_reached_is_not_proven(
    calibrator: Calibrator, machine: Machine
) -> None:
    """The fake slice always counts 10 microseconds."""
    found = calibrated(calibrator, machine, CPUQuota=50)["CPUQuota"]
    assert found["held"] is None
    assert "the machine reached only 0% of the quota" in found["error"]


def test_properties_without_calibration(calibrator: Calibrator, machine: Machine) -> None:
    assert calibrated(calibrator, machine) == {}
    assert calibrated(calibrator, machine, MemorySwapMax=0) == {}


def test_results_go_into_records(calibrator: Calibrator, machine: Machine) -> None:
    found = calibrated(calibrator, machine, **READ)
    assert json.loads(json.dumps(found)) == found


def test_scratch_is_removed_and_its_absence_no_error(machine: Machine) -> None:
    (machine.data / "calibration-scratch.bin").write_bytes(b"x")
    remove_scratch(machine.data)
    remove_scratch(machine.data)
    assert not (machine.data / "calibration-scratch.bin").exists()


def test_scratch_that_cannot_be_removed_is_reported(tmp_path: Path) -> None:
    (tmp_path / "calibration-scratch.bin").mkdir()
    with pytest.raises(PagecageError, match="cannot be removed"):
        remove_scratch(tmp_path)
