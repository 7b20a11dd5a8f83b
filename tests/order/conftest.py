"""Fixtures of the fake machine, on the checkout's disk, because tmpfs pages cannot be evicted."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pagecage.agent.facts import tool_version
from tests.builders.trial_runs import package
from tests.conftest import children
from tests.fake_host.machine import Machine
from tests.fake_host.rack import HERE, Rack
from tests.record_schema import breaches_under
from tests.tree import ROOT

__all__ = ["package"]


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """Make a folder on the checkout's disk."""
    (ROOT / "build/tests").mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(dir=ROOT / "build/tests"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def machine(on_disk: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """Make a fake machine for the agent in this process.

    Fails if a test leaves a process behind.
    """
    made = Machine(on_disk)
    made.make()
    made.set_variable = monkeypatch.setenv
    before = set(children())
    for name, value in made.environment().items():
        monkeypatch.setenv(name, value)
    made.stand_in(monkeypatch.setattr)
    tool_version.cache_clear()
    yield made
    assert not (left := lingering(before)), f"left behind: {left}"
    assert not breaches_under(on_disk)


def lingering(before: set[int]) -> dict[int, str]:
    """Return new child processes that still run after a moment."""
    deadline = time.monotonic() + 2.0
    while True:
        found = children().items()
        left = {pid: line for pid, line in found if pid not in before and "pytest" not in line}
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.02)


@contextmanager
def racked(folder: Path, *names: str) -> Iterator[Rack]:
    """Make hosts with these names. Fails if an agent is left running."""
    made = Rack(folder, names)
    made.make()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAKE_UNITS", str(folder / "units"))
        patch.setenv("PATH", f"{HERE / 'fleet_bin'}:{os.environ['PATH']}")
        yield made
    assert not breaches_under(folder)
    assert [
        path.name
        for path in (folder / "units").iterdir()
        if path.suffix != ".status" and not path.with_name(f"{path.name}.status").exists()
    ] == [], "an agent was left"


@pytest.fixture
def rack(tmp_path: Path) -> Iterator[Rack]:
    """Make two hosts."""
    with racked(tmp_path, "left", "right") as made:
        yield made
