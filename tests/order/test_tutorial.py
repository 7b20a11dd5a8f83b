"""docs/TUTORIAL.md: its commands, typed in order on this machine."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pagecage.process import Completed, run
from reliability.campaign import NAMESPACES
from tests.builders.documents import INDENTED
from tests.tree import ROOT

PAGE = (ROOT / "docs/TUTORIAL.md").read_text()
COMMANDS = [
    line.strip()
    for block in INDENTED.findall(PAGE)
    for line in block.replace("\\\n", " ").splitlines()
]
_PRIVATE_SPOOL = 'mount --bind "$PAGECAGE_RUNS" /dev/shm'
"""Other runs on this machine have their agent in /dev/shm, one at a time."""


@pytest.fixture(scope="module")
def typed() -> Iterator[Completed]:
    """Type every command in a shell that stops at the first failure.

    The folder is on the checkout's disk, because pages of tmpfs cannot be evicted.
    """
    (ROOT / "build/tests").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / "build/tests") as folder:
        yield _typed(Path(folder))


def _typed(top: Path) -> Completed:
    for folder in ("home", "work", "runs"):
        (top / folder).mkdir()
    script = [_PRIVATE_SPOOL, *(_allowed(command) for command in COMMANDS)]
    env = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PAGECAGE_RUNS": str(top / "runs"),
        "HOME": str(top / "home"),
        "NO_COLOR": "1",
        "COLUMNS": "100",
    }
    argv = [*NAMESPACES, "sh", "-exc", "\n".join(script)]
    return run(argv, check=False, cwd=top / "work", env=env, timeout_seconds=600)


def _allowed(command: str) -> str:
    """Add the other exit status that a command may have: doctor finds gaps, a gate is undecided."""
    other = 3 if command == "pagecage doctor" else 6 if "--fail-if" in command else 0
    return f"{command} || [ $? -eq {other} ]" if other else command


def test_the_page_has_commands() -> None:
    assert sum(command.startswith("pagecage replay") for command in COMMANDS) >= 2
    assert COMMANDS[0] == "mkdir first && cd first"


@pytest.mark.limits
@pytest.mark.slow
def test_every_command_ends_well(typed: Completed) -> None:
    assert typed.status == 0, f"{typed.stdout}\n{typed.stderr}"


@pytest.mark.limits
@pytest.mark.slow
def test_each_step_finds_its_limit(typed: Completed) -> None:
    out = " ".join(typed.stdout.split())
    assert "20 MB/s" in out
    assert "customer-tenth" in out
    assert "IOReadIOPSMax" in out


@pytest.mark.limits
@pytest.mark.slow
def test_a_gate_is_undecided_only_without_valid_trials(typed: Completed) -> None:
    """Other tests run at the same time, so that trials may be excluded; the page says what 6 is."""
    out = " ".join(typed.stdout.split())
    assert "passed device_read_bytes > +5%" in out
    assert "undecided" not in out or "excluded in B" in out
