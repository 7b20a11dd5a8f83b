"""The frame of all campaigns: arguments, processes of their own, stored results, and the page."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pagecage.process import run, spawn
from pagecage.whole_files import write_whole
from tests.tree import ROOT

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from pagecage.model.plan import Plan
    from pagecage.model.trial import Trial

    class KilledRun(DataclassInstance, Protocol):
        """A run with kills; `wrong` has the consequences that must not be."""

        @property
        def wrong(self) -> tuple[str, ...]: ...


RESULTS = ROOT / "docs/trust"
PAGE = ROOT / "docs/TRUST.md"
_INSIDE = "--inside"
_LET_GO = """awk '$5 ~ "/build/tests/" {print $5}' /proc/self/mountinfo | tac |
xargs --no-run-if-empty umount --lazy; exec "$@\""""
NAMESPACES: tuple[str, ...] = (
    *("unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"),
    *("sh", "-c", _LET_GO, "sh"),
)
"""Mounts of its own, without those of tests that run meanwhile: a copy of one would keep its disk
in use after the test has unmounted it."""
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
    return spawn([*NAMESPACES, "sh", "-c", _ENTER, "sh", *own], cwd=ROOT, stderr=None).wait()


def folder_on_disk() -> tempfile.TemporaryDirectory[str]:
    """Make a temporary folder on the checkout's disk: pages of a tmpfs cannot be evicted."""
    (ROOT / "build/tests").mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(dir=ROOT / "build/tests", ignore_cleanup_errors=True)


def tell(text: str) -> None:
    """Write a line of progress to standard error."""
    sys.stderr.write(f"{text}\n")


_JUDGING = ("analysis/cells.py", "analysis/comparison.py", "analysis/stats.py")
_EVERYTHING = ("pagecage", "analysis")
SOURCES: Mapping[str, tuple[str, ...]] = {
    "statistics.json": _JUDGING,
    "variation.json": (*_JUDGING, "analysis/data"),
    "power_loss.json": ("pagecage",),
    "guest-lies.json": ("pagecage",),
    "witnesses.json": ("pagecage", "volume"),
    "disks.json": ("pagecage/agent", "pagecage/linux", "pagecage/model"),
}
"""The code that a file of results depends on; all of pagecage and its analysis without an entry."""


def code_state(tops: Sequence[str] = _EVERYTHING) -> str:
    """Return a short hash of the code in these files and folders."""
    found = hashlib.sha256()
    paths = (path for top in tops for path in (ROOT / top, *(ROOT / top).rglob("*")))
    for path in sorted(path for path in paths if path.suffix in (".py", ".rs")):
        found.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:12]


def code_of(name: str) -> str:
    """Return the hash of the code that a file of results depends on."""
    return code_state(SOURCES.get(name, _EVERYTHING))


def commit_of(name: str) -> str:
    """Return the newest commit that changed this code, marked if it was changed since."""
    tops = SOURCES.get(name, _EVERYTHING)
    commit = run(["git", "log", "-1", "--format=%h", "--", *tops], cwd=ROOT).stdout.strip()
    changes = run(["git", "status", "--porcelain", "--", *tops], cwd=ROOT).stdout.strip()
    return f"{commit}+changes" if changes else commit


def measured_with(
    name: str, earlier: Sequence[Mapping[str, str]], codes: Collection[str]
) -> list[Mapping[str, str]]:
    """Return the states of the code of results, the present one last.

    Of the `earlier` states, those stay whose hash is among `codes`.
    """
    now = {"code": code_of(name), "commit": commit_of(name)}
    kept = [one for one in earlier if one["code"] in codes and one["code"] != now["code"]]
    return [*kept, now]


def told_states(states: Sequence[Mapping[str, str]]) -> str:
    """Return the sentence about the code with which results were measured."""
    newest = f"commit `{states[-1]['commit']}`"
    if len(states) == 1:
        return f"Measured with {newest}."
    return f"Measured with {len(states)} states of the code, the newest that of {newest}."


def is_outdated(name: str, states: Sequence[Mapping[str, str]]) -> bool:
    """Return whether a part of the results was measured with other code than the present."""
    return {one["code"] for one in states} != {code_of(name)}


def guest_plan(run_id: str, experiment: str, trials: Sequence[Trial]) -> Plan:
    """Return a plan of trials that no definition describes, for a campaign in the guest."""
    from pagecage.model.plan import Plan  # not at an earlier commit, which statistics measures

    harness = {"version": "0", "git_revision": None, "git_dirty": None}
    document = {"fresh": "never", "experiment": experiment, "harness": harness}
    return Plan(run_id, tuple(trials), {**document, "run_id": run_id, "trials": []})


def read_results(path: Path, before_the_first: Any = None) -> Any:
    """Return stored results; `before_the_first` if there are none."""
    return json.loads(path.read_text()) if path.exists() else before_the_first


def write_results(
    path: Path, found: dict[str, Any], rows: Sequence[Mapping[str, Any]] | None = None
) -> None:
    """Store results with the code they depend on, and write the page if they are the project's.

    With `rows`, of which each has the hash of its `code`, states of the code of earlier ones stay.
    """
    codes = {row["code"] for row in rows or ()}
    states = measured_with(path.name, found.get("measured", []), codes)
    write_whole(path, json.dumps({**found, "measured": states}, indent=1) + "\n")
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
    wrong = False
    while time.monotonic() < until:
        stored = read_results(path, {"seed": seed, "tries": 0, "runs": []})
        if most_kills and sum(len(one["kills"]) for one in stored["runs"]) >= most_kills:
            break
        stored["tries"] += 1
        killed = kill_run(stored["tries"])
        stored["runs"].append({**asdict(killed), "code": code_of(path.name)})
        tell(json.dumps(stored["runs"][-1]))
        wrong = wrong or bool(killed.wrong)
        write_results(path, stored, stored["runs"])
    return int(wrong)


def repeat_run(path: Path, number: int, kill_run: Callable[[int], KilledRun]) -> int:
    """Repeat a stored run; keep what was wrong with it before. Returns 1 if it is wrong again."""
    stored = read_results(path)
    [place] = [n for n, one in enumerate(stored["runs"]) if one["number"] == number]
    before = stored["runs"][place]
    killed = kill_run(number)
    again = {**asdict(killed), "code": code_of(path.name), "wrong_before": before["wrong"]}
    stored["runs"][place] = again
    write_results(path, stored, stored["runs"])
    return int(bool(killed.wrong))
