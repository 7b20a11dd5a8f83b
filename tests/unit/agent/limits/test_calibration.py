"""Calibration: limits that hold, limits that leak, and limits that were not reached."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

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
    disk = machine.resolve_disk(machine.data)
    return Calibrator(Systemd(False, 257), disk, machine.data, Interruption())


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
def test_a_cap_that_leaks(calibrator: Calibrator, machine: Machine, name: str) -> None:
    machine.misbehave(LEAKS="fio")
    cap = {**READ, **WRITE}[name]
    found = calibrated(calibrator, machine, **{name: cap})[name]
    assert (found["held"], found["observed"]) == (False, 1.5 * cap)


@pytest.mark.parametrize(
    ("misbehaviour", "error"),
    [
        ("SLOW", "the disk reached only 50% of the cap"),
        ("FAILS", "fio failed: fio: io_u error on file: Input/output error"),
    ],
)
def test_a_load_that_does_not_reach_the_cap_proves_nothing(
    calibrator: Calibrator,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    misbehaviour: str,
    error: str,
) -> None:
    monkeypatch.setenv(f"FAKE_{misbehaviour}", "fio")
    for found in calibrated(calibrator, machine, **READ).values():
        assert (found["held"], found["error"]) == (None, error)
    assert machine.left() == []


def test_each_cap_is_driven_by_itself_and_once(calibrator: Calibrator, machine: Machine) -> None:
    calibrated(calibrator, machine, **READ)
    calibrated(calibrator, machine, **READ)
    units = [line.split()[1] for line in machine.log_lines() if line.startswith("start")]
    names = ("ioreadbandwidthmax", "ioreadiopsmax")
    assert units == [f"pagecage-calibrate_{name}.1.slice" for name in names]
    calibrated(calibrator, machine, **{**READ, "IOReadIOPSMax": 501})
    assert len([line for line in machine.log_lines() if line == "fio"]) == 4


def test_without_fio_nothing_is_claimed(
    calibrator: Calibrator, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    found = calibrated(calibrator, machine, **READ)["IOReadIOPSMax"]
    assert (found["held"], found["error"]) == (None, "fio is not installed")


def test_without_a_file_reads_are_not_driven(calibrator: Calibrator, machine: Machine) -> None:
    assert dict(calibrator.calibrate(Cage("c", READ), None)) == {}
    assert machine.log_lines() == []


@pytest.mark.parametrize(
    ("name", "limit", "held", "error"),
    [
        ("MemoryMax", 2**20, (False,), "oom_kill 0"),
        ("MemoryHigh", 2**20, (False, None), "peak"),
        ("CPUQuota", 50, (None,), "the machine reached only 0% of the quota"),
    ],
)
def test_a_limit_that_nothing_enforces_leaks_or_is_not_proven(
    calibrator: Calibrator, machine: Machine, name: str, limit: int, held: tuple[object], error: str
) -> None:
    """The program survives, and is not throttled. The fake slice always counts 10 microseconds."""
    found = calibrated(calibrator, machine, **{name: limit})[name]
    assert found["held"] in held
    assert error in found["error"]
    assert machine.left() == []


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
