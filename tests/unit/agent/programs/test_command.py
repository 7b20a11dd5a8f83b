"""Programs without a handshake: measured to their exit or until they serve, and their files."""

from __future__ import annotations

import io
import os
import socket
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from pagecage.agent import data_files, trial_run
from pagecage.agent.caging import ProgramFiles
from pagecage.agent.programs import command
from pagecage.agent.programs.command import CommandProgram
from pagecage.agent.storage import Storage, TrialDisk
from pagecage.agent.trial_run import TrialRun
from pagecage.model.requirements import RequirementMissed
from pagecage.model.trial import CommandSpec, Workload
from pagecage.process import identify
from tests.builders.command_trials import carry_out
from tests.builders.known import known
from tests.builders.service_trials import free_port, listens
from tests.builders.trial_runs import carry_out as run_one
from tests.builders.waiting import wait_until
from tests.fake_host.machine import CAGE, Machine, frames_of, make_session, make_trial


def test_it_is_measured_from_the_gate_to_its_exit(machine: Machine) -> None:
    """The reads of a program are counted even if it exits at once."""
    reads = 'echo "$FAKE_MAJ_MIN rbytes=4096 rios=1" >"$FAKE_SLICE/io.stat"'
    record = carry_out(machine, f"{reads}; sleep 0.3")
    assert record.outcome == "ok"
    assert record.response["device_read_bytes"] == 4096
    assert 0.3 <= (record.response["wall_seconds"] or 0) < 5
    assert "ready_seconds" not in record.response
    wall_seconds = record.response["wall_seconds"]
    assert known(record.measured).seconds == pytest.approx(wall_seconds, abs=0.001)
    assert record.workload.argv == ("sh", "-c", known(record.workload.argv)[2])
    assert len(known(record.workload.sha256)) == 64


def test_making_the_scope_is_not_its_time(machine: Machine) -> None:
    machine.misbehave(SLOW="scope")
    record = carry_out(machine, "true")
    phase_seconds = next(phase.seconds for phase in record.phases if phase.name == "run")
    assert phase_seconds - (record.response["wall_seconds"] or phase_seconds) > 0.5


def test_a_failure_has_its_status_and_last_line(machine: Machine) -> None:
    record = carry_out(machine, "for n in 1 2 3; do echo line $n >&2; done; exit 3")
    assert (record.outcome, record.phase) == ("failed", "run")
    assert record.error == "it ended with status 3: line 3"
    assert record.exit.status == 3
    assert record.exit.stderr_tail == ("line 1", "line 2", "line 3")
    assert record.is_programs_own_failure
    assert record.is_final


JOIN = 'echo $! >>"$FAKE_SLICE/cgroup.procs"'


@pytest.mark.parametrize(
    ("script", "outcome", "error"),
    [
        pytest.param("exit 77", "failed", "it ended with status 77", id="77 is like any other"),
        pytest.param("kill -9 $$", "failed", "it ended by signal 9", id="a signal"),
        pytest.param(
            'printf "oom_kill 1\\n" >"$FAKE_SLICE/memory.events"; kill -9 $$',
            "oom_killed",
            None,
            id="out of memory is an answer",
        ),
        pytest.param(
            'test "{file} {data_dir}" = "$(printf %s%s {file\\} \\ {data_dir\\})"',
            "ok",
            None,
            id="literal arguments keep their braces",
        ),
        pytest.param(
            f"sleep 0.1 & {JOIN}; exit 0", "ok", None, id="children that exit soon are no daemons"
        ),
        pytest.param('test -z "$(cat)"', "ok", None, id="without input there is end of file"),
    ],
)
def test_outcomes(machine: Machine, script: str, outcome: str, error: str | None) -> None:
    record = carry_out(machine, script)
    assert (record.outcome, record.error) == (outcome, error)


def test_a_scope_that_does_not_start_is_not_its_failure(machine: Machine) -> None:
    machine.misbehave(FAILS="scope")
    record = carry_out(machine, "true")
    assert record.outcome == "failed"
    assert "its scope was not started: Failed to start transient scope unit" in (record.error or "")
    assert not record.is_final


def test_it_takes_too_long(machine: Machine) -> None:
    record = carry_out(machine, "exec sleep 60", timeout_seconds=0.5)
    assert (record.outcome, record.error) == ("timed_out", "not done after 0.5 s")
    assert record.response["wall_seconds"] is None
    assert machine.left() == []


def test_it_finds_its_directory_and_environment(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUSTOMERS_SECRET", "hunter2")
    script = f'test "$PWD" = {machine.data} && test ${{#CUSTOMERS_SECRET}} = 7'
    record = carry_out(machine, script, directory=str(machine.data))
    assert record.outcome == "ok", record.error
    assert "CUSTOMERS_SECRET" in known(record.workload.environment)
    assert "hunter2" not in machine.records.read_text()


@pytest.mark.parametrize("stream", ["1", "2"])
def test_a_line_of_output_shows_that_it_serves(machine: Machine, stream: str) -> None:
    began = time.monotonic()
    script = f"sleep 0.3; echo listening on 80 >&{stream}; exec sleep 60"
    record = carry_out(machine, script, ready_when=r"listening on \d+$")
    assert (record.outcome, record.error) == ("ok", None)
    assert 0.3 <= (record.response["ready_seconds"] or 0) < 5
    assert "wall_seconds" not in record.response
    assert time.monotonic() - began < 15
    assert record.exit.status == -15
    assert not record.exit.ended_by_itself
    assert machine.left() == []


def test_half_a_line_does_not_serve_but_the_last_one_needs_no_end(machine: Machine) -> None:
    script = "printf 'list'; sleep 0.2; printf 'ening\\n'; exec sleep 60"
    halves = carry_out(machine, script, ready_when="^listening$")
    assert (halves.response["ready_seconds"] or 0) >= 0.2
    assert carry_out(machine, "printf ready", ready_when="^ready$").outcome == "ok"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo nearly; exit 0", "it ended with status 0 before it served"),
        ("echo cannot bind >&2; exit 4", "it ended with status 4: cannot bind"),
    ],
)
def test_one_that_ends_before_it_serves_has_failed(
    machine: Machine, script: str, reason: str
) -> None:
    record = carry_out(machine, script, ready_when="never printed")
    assert (record.outcome, record.error) == ("failed", reason)
    assert record.response == {}
    assert record.is_programs_own_failure


def test_one_that_never_serves_is_timed_out(machine: Machine) -> None:
    record = carry_out(machine, "exec sleep 60", ready_when="never printed", timeout_seconds=0.5)
    assert (record.outcome, record.error) == ("timed_out", "not serving after 0.5 s")
    assert record.response["ready_seconds"] is None


@pytest.mark.parametrize(
    "script",
    [
        pytest.param("sleep 0.4; exec {}", id="the main process"),
        pytest.param(f"(sleep 0.4; exec {{}}) & {JOIN}", id="a daemon"),
    ],
)
def test_it_serves_when_it_or_its_child_in_the_cage_listens(machine: Machine, script: str) -> None:
    port = free_port()
    record = carry_out(machine, script.format(listens(port)), ready_port=port)
    assert (record.outcome, record.error) == ("ok", None)
    assert 0.4 <= (record.response["ready_seconds"] or 0) < 10
    assert machine.left() == []


def test_a_port_in_use_is_refused_before_anything_starts(machine: Machine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        record = carry_out(machine, "true", ready_port=taken.getsockname()[1])
    assert (record.outcome, record.phase) == ("requirement_missed", "dataset")
    assert record.missed_requirements[0].requirement == "port"
    assert "already taken by" in record.missed_requirements[0].reason
    assert not any(line.startswith("scope") for line in machine.log_lines())


def test_a_daemon_is_reported(machine: Machine) -> None:
    record = carry_out(machine, f"sleep 60 & {JOIN}; exit 0")
    assert record.outcome == "failed"
    assert "it ended while sleep (process" in (record.error or "")
    assert known(record.exit.left_behind)[0]["name"] == "sleep"
    assert record.is_final
    assert machine.left() == []


def test_a_process_that_leaves_the_cage_is_detected_and_ended(machine: Machine) -> None:
    elsewhere = machine.cgroups / "system.slice/other.service"
    elsewhere.mkdir(parents=True)
    began = time.monotonic()
    record = carry_out(machine, f"sleep 60 & echo $! >>{elsewhere}/cgroup.procs; wait")
    assert time.monotonic() - began < 15
    assert record.outcome == "failed"
    assert f"left the cage for {elsewhere}" in (record.error or "")
    [escaped] = known(record.exit.escaped)
    assert escaped["name"] == "sleep"
    wait_until(lambda: identify(escaped["pid"]) is None)  # who adopts orphans may reap it late


def test_output_is_streamed_unchanged(machine: Machine) -> None:
    out = io.BytesIO()
    record = carry_out(machine, "printf 'a\\0b'; echo problem >&2", out, streams_output=True)
    frames = [frame for frame in frames_of(out.getvalue()) if frame["frame"] == "output"]
    assert b"".join(f["body"] for f in frames if f["stream"] == "stdout") == b"a\0b"
    assert b"".join(f["body"] for f in frames if f["stream"] == "stderr") == b"problem\n"
    assert record.outcome == "ok"


def test_output_is_not_streamed_by_default(machine: Machine) -> None:
    out = io.BytesIO()
    carry_out(machine, "echo much", out)
    assert not [frame for frame in frames_of(out.getvalue()) if frame["frame"] == "output"]


def test_a_missing_program_names_its_package(machine: Machine) -> None:
    workload = Workload("no-such-program", (), "command", command=CommandSpec())
    record = run_one(machine, make_trial(workload=workload, collectors=()))
    assert record.outcome == "requirement_missed"
    [missed] = record.missed_requirements
    assert "no program 'no-such-program'" in missed.reason
    assert missed.hint


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
    assert known(record.cache.resident_bytes_before) > 0


def test_a_relative_path_is_below_its_directory(machine: Machine, files: Path) -> None:
    record = carry_out(machine, "test -e a", data_paths=("a",), directory=str(files), cache="cold")
    assert (record.outcome, record.cache.file_bytes) == ("ok", 300_000)


def test_placeholders_in_paths_are_filled_in_unless_literal(machine: Machine, files: Path) -> None:
    below = ("{data_dir}/own",)
    filled = carry_out(machine, "true", data_paths=below, cache="any", is_literal=False)
    assert filled.outcome == "ok"
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
    assert known(record.cage.read_back)["io.max.rbps"] == "20000000"


def run_on(machine: Machine, cache: str) -> TrialRun:
    """Return a command's trial in a cage that limits I/O."""
    workload = Workload("true", (), "command", command=CommandSpec())
    trial = make_trial(cage=CAGE, cache=cache, dataset=None, workload=workload)
    return TrialRun(make_session(machine, io.BytesIO(), trial), trial, 1, machine.root)


@pytest.mark.parametrize(
    ("size", "cache", "where", "reads"),
    [
        (16 << 20, "cold", "elsewhere", "its own"),
        ((16 << 20) - 1, "cold", "elsewhere", None),
        (16 << 20, "any", "elsewhere", None),
        (16 << 20, "cold", "data disk", "ours"),
        (0, "any", "data disk", "ours"),
        (16 << 20, "cold", "disk of the trial", "its own"),
        (3, "cold", "disk of the trial", "ours"),  # the first file of a database may be this small
    ],
)
def test_what_calibration_reads(
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    size: int,
    cache: str,
    where: str,
    reads: str | None,
) -> None:
    """Calibration reads no file that must stay cached, and writes only to pagecage's disk."""
    own = machine.data / "own.db"
    with own.open("wb") as file:
        file.truncate(size)
    monkeypatch.setattr(trial_run, "make_dataset", lambda *_: Path("ours"))
    run = run_on(machine, cache)
    disk = run.session.disk
    other = replace(disk, maj_min="8:0", node="/dev/other")
    files = ProgramFiles((own,), other if where == "elsewhere" else disk)
    own_disk = TrialDisk("data", disk, machine.data, is_own=where == "disk of the trial")
    storage = Storage({"data": own_disk})
    found = CommandProgram(run).calibration_file(storage, files, run.trial.cage)
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
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    monkeypatch.setattr(os, "access", lambda _, mode: mode == os.R_OK)
    with pytest.raises(RequirementMissed, match="belongs to another user and is read-only"):
        data_files.find_files((files,))
    monkeypatch.setattr(os, "access", lambda _, mode: True)
    assert len(data_files.find_files((files,))) == 3
