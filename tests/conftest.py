"""Settings of all tests: linters first, the guest's tests last, and no process left at the end."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

from pagecage.linux.cgroupfs import find_place
from tests.checkout import copy, top

__all__ = ["copy", "top"]
PR_SET_CHILD_SUBREAPER = (
    36  # prctl(2): orphaned descendants become children of this process, so they can be counted
)


LEAVING_SECONDS = 5.0
FEW_EXAMPLES, MANY_EXAMPLES = 25, 200
"""The number of examples that hypothesis tries: in `make test`, and in `make test-long` (which also
runs `-m hypothesis`).
"""


def pytest_configure() -> None:
    # No deadline: on a busy machine one example may take any time.
    settings.register_profile("few", deadline=None, max_examples=FEW_EXAMPLES)
    settings.register_profile("many", deadline=None, max_examples=MANY_EXAMPLES)
    settings.load_profile(os.environ.get("PAGECAGE_EXAMPLES", "few"))
    # A shell that starts pytest with `&` ignores SIGINT, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest tests first, so that no processor waits for them at the end; the order within
    a file stays.
    """
    items.sort(key=_place)


LONGEST_FIRST = ("test_rust.py", "test_linters.py")


def _place(item: pytest.Item) -> int:
    if item.get_closest_marker("vm"):
        return len(LONGEST_FIRST) + 1
    return (*LONGEST_FIRST, item.path.name).index(item.path.name)


def children() -> dict[int, str]:
    """Return living children of this process: command lines by pid."""
    pids = (int(pid) for task in Path("/proc/self/task").iterdir() for pid in _children_of(task))
    return {pid: line for pid in pids if (line := command_line(pid))}


def _children_of(task: Path) -> list[str]:
    """Return the children of one thread of this process; none for a thread that has just ended."""
    try:
        return (task / "children").read_text().split()
    except OSError:
        return []


def left_behind() -> dict[int, str]:
    """Return the children that do not end by themselves.

    A resource tracker of multiprocessing ends when it notices that its process has ended.
    """
    deadline = time.monotonic() + LEAVING_SECONDS
    while (left := children()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def command_line(pid: int) -> str:
    """Return the command line of a process; empty for one that has ended."""
    try:
        return (
            Path(f"/proc/{pid}/cmdline")
            .read_bytes()
            .replace(b"\0", b" ")
            .decode(errors="replace")
            .strip()
        )
    except OSError:
        return ""


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the session if a test left a process behind, and name it."""
    left = {} if hasattr(session.config, "workerinput") else left_behind()
    for pid, line in left.items():
        print(f"\nleft behind: process {pid}: {line}")
    if left and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test marked `limits` where this machine cannot hold limits, with the reason."""
    if item.get_closest_marker("limits") and (reason := cannot_hold_limits()):
        pytest.skip(reason)


@cache
def cannot_hold_limits() -> str | None:
    """Return why this machine cannot hold limits by cgroup files; None if it can."""
    obstacles = (one.reason for one in find_place().obstacles if one.controller != "cpu")
    return next(obstacles, None)


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The folder of the project."""
    return Path(os.path.realpath(__file__)).parent.parent
