"""Leftovers of a killed agent are removed at the next start, and nothing else."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from pagecage.agent import host_session
from pagecage.agent.host_session import alone, sweep, user_of_machine
from pagecage.errors import HostError
from pagecage.linux import child_processes
from pagecage.linux.child_processes import ToolProcesses
from pagecage.linux.processes import MARKER, is_running
from pagecage.linux.systemd import Systemd
from pagecage.process import Process, spawn
from tests.builders.waiting import wait_until
from tests.fake_host.machine import CAGE, DISK, Machine

SYSTEM = Systemd(False, 257)


def test_all_leftovers_are_removed(machine: Machine) -> None:
    """The leftovers are a slice with a process, its limits, a queue setting, a tool, and traces."""
    SYSTEM.make("pagecage-r1.1.slice", CAGE, DISK)
    workload = spawn(SYSTEM.enter_command("pagecage-r1.1.slice", ["sleep", "60"]))
    setting = machine.sys / "block/fakedisk/queue/read_ahead_kb"
    setting.write_text("128")
    (machine.spool / "queue-settings.json").write_text('{"fakedisk": {"read_ahead_kb": "256"}}')
    tool = ToolProcesses(machine.spool).start(["sleep", "60"])
    (machine.spool / "trials/r1.1").mkdir(parents=True)
    wait_until(lambda: list(machine.cgroups.glob("**/*.scope/cgroup.procs")))
    time.sleep(0.05)
    assert "pagecage-r1.1.slice" in sweep(SYSTEM, machine.spool)
    assert machine.left() == []
    assert (workload.wait(5), tool.wait(5)) == (-9, -9)


def test_processes_of_a_trial_without_a_slice_are_found_by_their_mark(machine: Machine) -> None:
    mark = f"{machine.spool}:pagecage-r1.1.slice"
    orphan = spawn(["sleep", "60"], env={**os.environ, MARKER: mark})
    assert sweep(SYSTEM, machine.spool) == ["processes of a trial without a slice"]
    assert orphan.wait(5) == -9


def test_records_of_earlier_runs_are_removed_from_memory(machine: Machine) -> None:
    earlier = machine.spool / "20261121T100000Z-test-local.jsonl"
    earlier.write_text("{}\n")
    assert sweep(SYSTEM, machine.spool) == []
    assert not earlier.exists()


def test_sweeping_twice_is_sweeping_once(machine: Machine) -> None:
    assert sweep(SYSTEM, machine.spool) == []
    assert sweep(SYSTEM, machine.spool) == []
    assert machine.log_lines() == []


def test_drop_ins_alone_are_enough(machine: Machine) -> None:
    """Drop-ins remain if the slices are gone but the runtime folder is not."""
    (machine.control / "pagecage-r1.1.slice.d").mkdir()
    assert sweep(SYSTEM, machine.spool) == ["pagecage-r1.1.slice"]
    assert machine.left() == []


def test_a_tool_is_ended_with_all_that_it_started(machine: Machine) -> None:
    """sar's child sadc survives sar, so the whole session is ended."""
    noted = machine.root / "grandchild"
    script = f"sleep 60 & echo $! >{noted}.new; mv {noted}.new {noted}; wait"
    tool = ToolProcesses(machine.spool).start(["sh", "-c", script])
    wait_until(noted.exists)
    os.kill(tool.pid, 9)
    tool.wait()
    assert ToolProcesses(machine.spool).sweep() == [tool.pid]
    wait_until(lambda: not is_running(int(noted.read_text())))


@pytest.mark.parametrize("note", ["1", "0", "", "99999999999"])
def test_a_reused_process_id_is_left_alone(machine: Machine, note: str) -> None:
    """An entry has the process's start time; a process with a reused id started at another time."""
    stranger = spawn(["sleep", "60"], new_session=True)
    try:
        notes = machine.spool / "children"
        notes.mkdir()
        (notes / str(stranger.pid)).write_text(note)
        assert ToolProcesses(machine.spool).sweep() == []
        assert stranger.poll() is None
        assert not list(notes.iterdir())
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.parametrize("name", ["notes.txt", "-1", "1x", ".swp"])
def test_an_invalid_journal_entry_ends_nothing(machine: Machine, name: str) -> None:
    (machine.spool / "children").mkdir()
    (machine.spool / "children" / name).write_text("0")
    assert ToolProcesses(machine.spool).sweep() == []


def test_interrupting_distinguishes_an_earlier_death(machine: Machine) -> None:
    children = ToolProcesses(machine.spool)
    dead = children.start(["true"])
    dead.wait()
    assert children.interrupt(dead) is None
    assert children.interrupt(children.start(["sleep", "60"])) == -2
    assert not list((machine.spool / "children").iterdir())


def test_a_tool_that_ignores_the_interrupt_is_ended(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pagecage.linux.child_processes._STOP_SECONDS", 0.2)
    children = ToolProcesses(machine.spool)
    stubborn = children.start(["sh", "-c", "trap '' INT; while :; do sleep 0.05; done"])
    time.sleep(0.1)
    assert children.interrupt(stubborn) == -9


def test_one_agent_holds_a_host(machine: Machine) -> None:
    with alone(machine.spool):
        second = alone(machine.spool)
        says = rf"another run is using this host \(process {os.getpid()}\)"
        with pytest.raises(HostError, match=says):
            second.__enter__()
    with alone(machine.spool):
        pass


def test_agents_of_two_users_exclude_each_other(machine: Machine, tmp_path: Path) -> None:
    """Each has a spool of its own; the folder that both lock is one in which nothing is made."""
    before = list(host_session.MACHINE.iterdir())
    with alone(tmp_path / "of-root"):
        assert user_of_machine() == f"process {os.getpid()}"
        with pytest.raises(HostError, match=rf"using this machine \(process {os.getpid()}\)"):
            alone(tmp_path / "of-a-user").__enter__()
    assert user_of_machine() is None
    with alone(tmp_path / "of-a-user"):
        pass
    assert list(host_session.MACHINE.iterdir()) == before


def test_an_error_of_the_run_is_no_lock(tmp_path: Path, machine: Machine) -> None:
    with pytest.raises(BlockingIOError), alone(tmp_path):
        raise BlockingIOError


def test_a_tool_without_an_entry_is_found_by_its_mark(machine: Machine) -> None:
    """Its agent was killed before it could note the tool."""
    mark = f"{machine.spool}/tools:1"
    tool = spawn(["sleep", "60"], env={**os.environ, MARKER: mark}, new_session=True)
    # For a moment after execve(2) the kernel shows no environment.
    environ = Path(f"/proc/{tool.pid}/environ")
    wait_until(lambda: mark.encode() in environ.read_bytes())
    kept = ToolProcesses(machine.spool)
    own = kept.start(["sleep", "60"])
    kept.sweep()
    assert tool.wait(5) == -9
    assert own.poll() is None
    kept.interrupt(own)


def test_a_tool_that_cannot_be_noted_is_ended(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = ToolProcesses(machine.spool)
    (machine.spool / "children").rmdir()
    started: list[Process[bytes]] = []

    def note(*words: Any, **given: Any) -> Process[bytes]:
        started.append(spawn(*words, **given))
        return started[-1]

    monkeypatch.setattr(child_processes, "spawn", note)
    with pytest.raises(FileNotFoundError):
        tools.start(["sleep", "60"])
    assert started[0].wait(5) == -9
