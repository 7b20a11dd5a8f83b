"""What holds for every test: the linters first, the guest's tests last, and no process left when they have ended."""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

PR_SET_CHILD_SUBREAPER = 36  # prctl(2): whoever loses its parent below us becomes ours, so it can be counted


def pytest_configure() -> None:
    # How long one example takes is the machine's affair: a busy one would fail what is right.
    settings.register_profile("pagecage", deadline=None)
    settings.load_profile("pagecage")
    # A shell that starts us with `&` has SIGINT ignored, and whoever ignores a signal hands that on to its children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The linters' few long tests come first, lest a processor wait for them at the end; a file's order stays."""
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    if item.get_closest_marker("vm"):
        return 2
    return 0 if item.path.name == "test_linters.py" else 1


def children() -> dict[int, str]:
    """Living children of this process, by id, with their command lines."""
    pids = (int(pid) for task in Path("/proc/self/task").iterdir() for pid in _children_of(task))
    return {pid: line for pid in pids if (line := command_line(pid))}


def _children_of(task: Path) -> list[str]:
    """The children of one of our threads; none for a thread that has just ended."""
    try:
        return (task / "children").read_text().split()
    except OSError:
        return []


def command_line(pid: int) -> str:
    """How a process was started; nothing for one that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the session when a test left a process behind, and name it."""
    left = {} if hasattr(session.config, "workerinput") else children()
    for pid, line in left.items():
        print(f"\nleft behind: process {pid}: {line}")
    if left and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The folder of the project."""
    return Path(os.path.realpath(__file__)).parent.parent
