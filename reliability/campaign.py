"""The frame of all campaigns: arguments, processes of their own, stored results, and the page."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pagecage.process import spawn
from pagecage.whole_files import write_whole
from tests.tree import ROOT

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    class KilledRun(DataclassInstance, Protocol):
        """A run with kills; `wrong` has the consequences that must not be."""

        @property
        def wrong(self) -> tuple[str, ...]: ...


RESULTS = ROOT / "docs/trust"
PAGE = ROOT / "docs/TRUST.md"
_INSIDE = "--inside"
_NAMESPACES = ("unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child")
_ENTER = 'mount -t tmpfs tmpfs /dev/shm && "$@"; exit $?'
"""The shell that becomes process 1 there, which reaps the orphans of killed parents."""


def arguments(module: str, *, isolated: bool = False) -> argparse.ArgumentParser:
    """Return the parser of `python -m reliability.MODULE`, with the folder of the results.

    With `isolated`, the campaign calls `run_isolated`.
    """
    parser = argparse.ArgumentParser(prog=f"python -m reliability.{module}")
    parser.add_argument("--results", type=Path, default=RESULTS)
    if isolated:
        parser.add_argument(_INSIDE, action="store_true", help=argparse.SUPPRESS)
    return parser


def run_isolated(module: str, words: Sequence[str] | None) -> int:
    """Run a campaign again in namespaces with mounts, processes and a /dev/shm of its own."""
    argv = sys.argv[1:] if words is None else list(words)
    own = [sys.executable, "-m", f"reliability.{module}", _INSIDE, *argv]
    return spawn([*_NAMESPACES, "sh", "-c", _ENTER, "sh", *own], cwd=ROOT, stderr=None).wait()


def folder_on_disk() -> tempfile.TemporaryDirectory[str]:
    """Make a temporary folder on the checkout's disk: pages of a tmpfs cannot be evicted."""
    (ROOT / "build/tests").mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(dir=ROOT / "build/tests", ignore_cleanup_errors=True)


def tell(text: str) -> None:
    """Write a line of progress to standard error."""
    sys.stderr.write(f"{text}\n")


def code_state() -> str:
    """Return a short hash of the harness's Python code."""
    found = hashlib.sha256()
    paths = (path for top in ("pagecage", "analysis") for path in (ROOT / top).rglob("*.py"))
    for path in sorted(paths):
        found.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:12]


def read_results(path: Path, before_the_first: Any = None) -> Any:
    """Return stored results; `before_the_first` if there are none."""
    return json.loads(path.read_text()) if path.exists() else before_the_first


def write_results(path: Path, found: Any) -> None:
    """Store results, and write the page if they are the project's."""
    write_whole(path, json.dumps(found, indent=1) + "\n")
    write_page(path.parent)


def write_page(results: Path) -> None:
    """Write docs/TRUST.md if these results are the project's."""
    from reliability.page import page

    if results == RESULTS:
        write_whole(PAGE, page())


def kill_runs(
    path: Path,
    seed: int,
    kill_run: Callable[[int], KilledRun],
    until: float,
    most_kills: int | None = None,
) -> int:
    """Kill parts of runs until a moment of time.monotonic(), and add each run to the stored ones.

    `kill_run` takes the number of the run. Returns 1 if one had a consequence that must not be.
    """
    stored = read_results(path, {"seed": seed, "tries": 0, "runs": []})
    wrong = False
    while time.monotonic() < until and (
        most_kills is None or sum(len(run["kills"]) for run in stored["runs"]) < most_kills
    ):
        stored["tries"] += 1
        killed = kill_run(stored["tries"])
        stored["runs"].append({**asdict(killed), "code": code_state()})
        tell(json.dumps(stored["runs"][-1]))
        wrong = wrong or bool(killed.wrong)
        write_results(path, stored)
    return int(wrong)
