"""Files named by a command's user: their cache state, and their disk, which is limited."""

from __future__ import annotations

import io
import os
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from pagecage.agent import data_files, trial_run
from pagecage.agent.caging import ProgramFiles
from pagecage.agent.programs import command
from pagecage.agent.programs.command import CommandProgram
from pagecage.agent.storage import Storage
from pagecage.agent.trial_run import TrialRun
from pagecage.model.requirements import MissedRequirement
from pagecage.model.trial import CommandSpec, Workload
from tests.builders.command_trials import carry_out
from tests.fake_host.machine import CAGE, Machine, make_session, make_trial


@pytest.fixture
def files(machine: Machine) -> Path:
    folder = machine.data / "own"
    (folder / "below").mkdir(parents=True)
    for name in ("a", "below/b"):
        (folder / name).write_bytes(os.urandom(300_000))
    (folder / "empty").touch()
    (folder / "link").symlink_to("a")
    return folder


def test_all_files_of_a_directory_are_cold(machine: Machine, files: Path) -> None:
    record = carry_out(machine, f"cat {files}/a >/dev/null", data_paths=(str(files),), cache="cold")
    assert record.outcome == "ok", record.error
    assert record.cache.requested == "cold"
    assert record.cache.file_bytes == 600_000
    assert record.cache.resident_bytes_before == 0
    assert record.cache.resident_bytes_after == -(-300_000 // 4096) * 4096


def test_a_file_of_two_names_counts_once(machine: Machine, files: Path) -> None:
    """Both names have the same pages."""
    os.link(files / "a", files / "below/a")
    record = carry_out(machine, f"cat {files}/a >/dev/null", data_paths=(str(files),), cache="cold")
    assert (record.outcome, record.cache.file_bytes) == ("ok", 600_000)


def test_files_of_any_state_stay_unchanged(machine: Machine, files: Path) -> None:
    (files / "a").read_bytes()
    record = carry_out(machine, "true", data_paths=(str(files / "a"),), cache="any")
    assert record.cache.resident_bytes_before > 0


def test_a_relative_path_is_below_its_directory(machine: Machine, files: Path) -> None:
    record = carry_out(machine, "test -e a", data_paths=("a",), directory=str(files), cache="cold")
    assert (record.outcome, record.cache.file_bytes) == ("ok", 300_000)


def test_placeholders_in_paths_are_filled_in_unless_literal(machine: Machine, files: Path) -> None:
    assert (
        carry_out(
            machine, "true", data_paths=("{data_dir}/own",), cache="any", is_literal=False
        ).outcome
        == "ok"
    )
    (machine.data / "{file}").write_text("x")
    named = carry_out(machine, "true", data_paths=(str(machine.data / "{file}"),), cache="any")
    assert (named.outcome, named.cache.file_bytes) == ("ok", 1)


@pytest.mark.parametrize(
    ("path", "reason"), [("nowhere", "does not exist"), ("hollow", "no file in")]
)
def test_no_files_is_refused(machine: Machine, path: str, reason: str) -> None:
    (machine.data / "hollow").mkdir()
    record = carry_out(machine, "true", data_paths=(str(machine.data / path),), cache="cold")
    assert record.outcome == "requirement_missed"
    assert reason in record.missed_requirements[0].reason


def test_two_disks_are_refused_by_name(
    machine: Machine, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = make_session(machine, io.BytesIO()).disk
    other = replace(one, maj_min="8:0", node="/dev/other")
    monkeypatch.setattr(command, "resolve_disk", lambda path: other if "shm" in str(path) else one)
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as far:
        record = carry_out(machine, "true", data_paths=(str(files), far.name), cache="any")
    assert record.outcome == "requirement_missed"
    reason = record.missed_requirements[0].reason
    assert one.node in reason
    assert other.node in reason


def test_the_limit_goes_to_the_disk_behind_the_files(
    machine: Machine, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = replace(make_session(machine, io.BytesIO()).disk, maj_min="8:0", node="/dev/other")
    monkeypatch.setattr(command, "resolve_disk", lambda _: other)
    monkeypatch.setenv("FAKE_NODE", other.node)
    monkeypatch.setenv("FAKE_MAJ_MIN", other.maj_min)
    record = carry_out(machine, "true", data_paths=(str(files),), cache="cold", cage=CAGE)
    assert record.outcome == "ok", record.error
    assert record.device.maj_min == "8:0"
    assert record.cage.read_back["io.max.rbps"] == "20000000"


def run_on(machine: Machine, cache: str) -> TrialRun:
    """Return a command's trial in a cage that limits I/O."""
    workload = Workload("true", (), "command", command=CommandSpec())
    trial = make_trial(cage=CAGE, cache=cache, dataset=None, workload=workload)
    return TrialRun(make_session(machine, io.BytesIO(), trial), trial, 1, machine.root)


@pytest.mark.parametrize(
    ("size", "cache", "elsewhere", "reads"),
    [
        (16 << 20, "cold", True, "its own"),
        ((16 << 20) - 1, "cold", True, None),
        (16 << 20, "any", True, None),
        (16 << 20, "cold", False, "ours"),
        (0, "any", False, "ours"),
    ],
)
def test_what_calibration_reads(
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    size: int,
    cache: str,
    elsewhere: bool,
    reads: str | None,
) -> None:
    """Calibration reads no file that must stay cached, and writes only to pagecage's disk."""
    own = machine.data / "own.db"
    with own.open("wb") as file:
        file.truncate(size)
    monkeypatch.setattr(trial_run, "make_dataset", lambda *_: Path("ours"))
    run = run_on(machine, cache)
    disk = run.session.disk
    files = ProgramFiles(
        (own,), replace(disk, maj_min="8:0", node="/dev/other") if elsewhere else disk
    )
    found = CommandProgram(run).calibration_file(
        Storage("data", disk, machine.data), files, run.trial.cage
    )
    assert found == {"its own": own, "ours": Path("ours"), None: None}[reads]


def test_another_disk_has_a_calibrator_of_its_own_that_writes_nothing(machine: Machine) -> None:
    session = make_session(machine, io.BytesIO())
    other = replace(session.disk, maj_min="8:0", node="/dev/other")
    calibrator = session.calibrator("systemd-scope")
    assert calibrator.on(session.disk) is calibrator
    assert calibrator.on(other) is calibrator.on(other) is not calibrator
    assert calibrator.on(other)._data_dir is None


def test_residency_of_another_users_file_is_hidden(
    machine: Machine, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Since Linux 5.2 only the owner, users with write access and root may query residency."""
    monkeypatch.setattr(data_files.os, "getuid", lambda: 12345)
    monkeypatch.setattr(data_files.os, "access", lambda _, mode: mode == os.R_OK)
    missed = data_files.find_files((files,))
    assert isinstance(missed, MissedRequirement)
    assert "belongs to another user and is read-only" in missed.reason
    monkeypatch.setattr(data_files.os, "access", lambda _, mode: True)
    assert not isinstance(data_files.find_files((files,)), MissedRequirement)
