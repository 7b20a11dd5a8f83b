"""A host that cannot serve is refused before anything is said of a run, or written of one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pagecage.errors import RUNNERS
from pagecage.hosts.vm.cache import CacheLock, GuestCache
from pagecage.process import Completed
from tests.checkout import pagecage

ASKING = [
    ("run smoke --dataset smoke --yes", ""),
    ("replay customer", "-- true"),
    ("sweep customer --vary IOReadIOPSMax=500 --yes", "-- true"),
    ("memory customer", "-- true"),
]
"""Commands that need a host; options go between the two parts."""


@pytest.fixture
def in_use(top: Path) -> Iterator[None]:
    """The guest's lock, held by this process."""
    cache = GuestCache(top / "cache/pagecage/vm")
    cache.make()
    lock = CacheLock(cache.lock_file)
    lock.acquire()
    yield
    lock.release()


def refused_first(top: Path, done: Completed) -> None:
    assert done.status == (125 if done.argv[1] in RUNNERS else 3), done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert "fix:" in done.stderr
    assert "trials to run" not in done.stderr
    assert not (top / "runs").exists()


@pytest.mark.parametrize(("words", "command"), ASKING)
def test_a_machine_that_cannot_be_the_host(top: Path, words: str, command: str) -> None:
    """The folder is a tmpfs or systemd is not in charge: whichever it is, nothing is measured
    there.
    """
    (top / "shm").unlink(missing_ok=True)
    (top / "shm").symlink_to("/dev/shm")
    where = ("--host", "local", "--data-dir", str(top / "shm"))
    refused_first(top, pagecage(top, *words.split(), *where, *command.split()))


@pytest.mark.parametrize(("words", "command"), ASKING)
def test_a_guest_that_another_process_uses(
    top: Path, in_use: None, words: str, command: str
) -> None:
    done = pagecage(top, *words.split(), "--host", "vm", *command.split())
    assert f"the vm is in use by process {os.getpid()}" in done.stderr
    refused_first(top, done)


def test_a_run_that_is_resumed_is_refused_as_early(top: Path, in_use: None) -> None:
    words = ("run", "smoke", "--dry-run", "--host", "vm", "--dataset", "smoke", "--json")
    done = pagecage(top, *words)
    folder = top / "runs/a-run"
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text(done.stdout)
    (top / "runs/latest-smoke").symlink_to("a-run")
    done = pagecage(top, "run", "smoke", "--resume", "--yes")
    assert done.status == 3, done.stderr
    assert "the vm is in use" in done.stderr
    assert "trials to run" not in done.stderr
    assert [path.name for path in folder.iterdir()] == ["plan.json"]
