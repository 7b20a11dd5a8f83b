"""Counters and the end of a process and its descendants."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.linux import processes
from pagecage.linux.processes import MARKER, SupervisedProcesses, TreeCounters, kernel_threads_usec
from pagecage.process import PIPE, Process, identify, spawn
from tests.builders.known import known
from tests.builders.waiting import wait_until

WRITE = (
    "import os, sys\n"
    "def write(path):\n"
    "    with open(path, 'wb') as file:\n"
    "        file.write(bytes(1 << 20)); file.flush(); os.fsync(file.fileno())\n"
    "if os.fork() == 0:\n"
    "    write(sys.argv[1]); sum(range(5_000_000)); os._exit(0)\n"
    "os.wait()\n"
    "if os.fork() == 0:\n"
    "    write(sys.argv[2]); print('written', flush=True); sys.stdin.read(); os._exit(0)\n"
    "os.wait()\n"
)


NO_PID = 1 << 22
"""One more than the largest (proc_sys_kernel(5), pid_max)."""


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[Process[bytes]]:
    """A process with one reaped child and one that lives; each wrote 1 MiB."""
    words = [sys.executable, "-c", WRITE, str(tmp_path / "a"), str(tmp_path / "b")]
    process = spawn(words, stdin=PIPE, stdout=PIPE, env={MARKER: f"{os.getpid()}-test"})
    assert known(process.stdout).readline() == b"written\n"
    yield process
    if process.poll() is None:
        process.communicate()


def test_the_living_and_the_reaped_are_counted(parent: Process[bytes]) -> None:
    members = list(processes.tree(parent.pid))
    assert len(members) == 2
    found = known(processes.read_tree(parent.pid))
    assert 2 << 20 <= found.write_bytes < 3 << 20
    assert found.minor_faults > 0
    assert found.user_seconds > 0


def test_children_are_found_without_the_kernels_list(
    parent: Process[bytes], tmp_path: Path
) -> None:
    proc = tmp_path / "proc"
    for pid in processes.tree(parent.pid):
        (proc / str(pid) / "task" / str(pid)).mkdir(parents=True)
        (proc / str(pid) / "stat").write_text(Path(f"/proc/{pid}/stat").read_text())
    expected = list(processes.tree(parent.pid))
    assert list(processes.tree(parent.pid, proc)) == expected


def test_a_process_that_is_gone_has_no_counters() -> None:
    process = spawn(["true"])
    process.wait()
    assert processes.read_tree(process.pid) is None


def test_marked_processes_are_killed(parent: Process[bytes]) -> None:
    pids = list(processes.tree(parent.pid))
    assert processes.kill_marked(f"{os.getpid()}-tes") >= 2
    assert parent.wait(5) == -9
    assert all(identify(pid) is None for pid in pids)
    assert processes.kill_marked(f"{os.getpid()}-tes") == 0


def fake_process(proc: Path, vsize: int, env_start: int, env_end: int) -> Path:
    """Write a process without an environment; return its directory."""
    fields = ["S", *"0" * 49]
    fields[23 - 3], fields[50 - 3], fields[51 - 3] = str(vsize), str(env_start), str(env_end)
    folder = proc / str(NO_PID)
    folder.mkdir()
    (folder / "stat").write_text(f"{NO_PID} (sleep) {' '.join(fields)}\n")
    (folder / "environ").write_bytes(b"")
    return folder


@pytest.mark.parametrize(("env_start", "env_end"), [(0, 0), (4096, 8192)])
def test_a_process_within_execve_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, env_start: int, env_end: int
) -> None:
    """It has no environment until the kernel has set up the stack of its new program."""
    folder = fake_process(tmp_path, 4096, env_start, env_end)
    environ = f"A=1\0{MARKER}=mine".encode()
    monkeypatch.setattr("time.sleep", lambda _: (folder / "environ").write_bytes(environ))
    assert processes.leaves_marked("mine", 0.0, tmp_path)


@pytest.mark.parametrize(("vsize", "address"), [(0, 0), (4096, 8192)], ids=["kernel", "env -i"])
def test_no_time_is_spent_on_a_process_without_an_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vsize: int, address: int
) -> None:
    fake_process(tmp_path, vsize, address, address)
    monkeypatch.setattr("time.sleep", lambda _: pytest.fail("nothing is to be waited for"))
    assert not processes.leaves_marked("mine", 1.0, tmp_path)


def test_waits_are_the_machines_pressure_or_the_run_delay(tmp_path: Path) -> None:
    for kind in ("cpu", "io", "memory"):
        (tmp_path / "pressure").mkdir(exist_ok=True)
        line = "some avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"
        (tmp_path / "pressure" / kind).write_text(line)
    assert processes.read_waits([], tmp_path)["pressure"]["io"]["some"]["total"] == 7
    (tmp_path / "pressure/io").unlink()
    for task in ("5", "6"):
        folder = tmp_path / "5/task" / task
        folder.mkdir(parents=True)
        (folder / "schedstat").write_text("1000 2000000 3\n")
    assert processes.read_waits([5], tmp_path) == {"pressure": None, "run_delay_usec": 4000}
    assert processes.read_waits([9], tmp_path) == {"pressure": None, "run_delay_usec": None}


@given(st.lists(st.tuples(*[st.integers(0, 2**40)] * 6), min_size=1))
def test_counters_add_up(rows: list[tuple[int, ...]]) -> None:
    counters = [TreeCounters(*row) for row in rows]
    total = sum(counters[1:], counters[0])
    for name, value in vars(total).items():
        assert value == sum(getattr(one, name) for one in counters)


def test_before_the_launch_the_counters_are_zero(tmp_path: Path) -> None:
    processes = SupervisedProcesses(tmp_path / "report", "mark")
    assert processes.counters()["processes"]["io"] == {"rbytes": 0, "wbytes": 0}
    assert processes.members() == []
    assert processes.read_bytes("8:0") == 0


def test_a_killed_supervisor_leaves_unknown_counters(tmp_path: Path) -> None:
    process = spawn(["sleep", "600"])
    processes = SupervisedProcesses(tmp_path / "report", "mark")
    processes.launched(process.pid)
    process.kill()
    process.wait()
    assert processes.counters() == {"cgroup": None, "processes": None}
    assert processes.read_bytes("8:0") is None


def test_a_signal_reaches_every_descendant_but_the_supervisor(parent: Process[bytes]) -> None:
    processes = SupervisedProcesses(Path("none"), "mark")
    processes.launched(parent.pid)
    (child,) = processes.members()
    assert child.pid != parent.pid
    processes.signal("TERM")
    wait_until(lambda: identify(child.pid) is None)
    assert parent.wait(5) == 0


@pytest.mark.parametrize("lists_children", [True, False])
def test_the_cpu_time_of_kernel_threads(tmp_path: Path, lists_children: bool) -> None:
    def process(pid: int, name: str, parent: int, user: int, system: int) -> None:
        (tmp_path / str(pid)).mkdir()
        (tmp_path / f"{pid}/comm").write_text(f"{name}\n")
        counts = f"0 0 0 -1 0 0 0 0 0 {user} {system} 0 0"
        (tmp_path / f"{pid}/stat").write_text(f"{pid} ({name}) S {parent} {counts}\n")

    process(2, "kthreadd", 0, 0, 100)
    process(7, "kworker/u8:2-loop0) S 1 (", 2, 3, 4)
    process(8, "kswapd0", 2, 0, 5)
    process(9, "mysqld", 1, 500, 500)
    (tmp_path / "2/task/2").mkdir(parents=True)
    if lists_children:
        (tmp_path / "2/task/2/children").write_text("7 8 ")
    tick_usec = 10**6 // os.sysconf("SC_CLK_TCK")
    assert kernel_threads_usec(tmp_path) == 12 * tick_usec
    (tmp_path / "2/comm").write_text("sh\n")
    assert kernel_threads_usec(tmp_path) is None
