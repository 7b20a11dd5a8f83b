"""Daily waiting times: to the first trial, to the report, and between two trials.

They are taken from the output times of `make experiment NAME=smoke` and from the phases in its
records.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from pagecage.checkout import TOP
from pagecage.errors import PagecageError
from pagecage.model.record import Record, read_records
from pagecage.process import PIPE, run, spawn
from reliability.bench.bed import Figure, Session, scratch, single_figure, spread_figure
from reliability.campaign import tell

_OF_MAKE = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES")


@dataclass(frozen=True)
class Timed:
    """A command that has ended: its start, lines and end in seconds since the epoch, and its
    records.
    """

    began: float
    lines: tuple[tuple[float, str], ...]
    ended: float
    records: tuple[Record, ...]

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    @property
    def about(self) -> dict[str, Any]:
        """The host of its trials, as figures name it."""
        return {"host": self.records[0].host, "emulated": self.records[0].emulated}

    @property
    def starts(self) -> list[float]:
        """The start of each trial by the clock of its host, which the harness sets."""
        return [float(record.phases[0].start_wall_seconds) for record in self.records]

    def said(self, words: str) -> float:
        """Return when it first printed these words. Raises PagecageError if it did not."""
        for moment, line in self.lines:
            if words in line:
                return moment
        raise PagecageError(f"the command never said {words!r}", "run it by hand", 1)


def timed(
    name: str, runs: Path, wish: str, cwd: Path, env: Mapping[str, str], *, aloud: bool = False
) -> Timed:
    """Run `make experiment` for an experiment. Raises PagecageError if it fails.

    `runs` is the folder of its run. With `aloud` its output is also printed.
    """
    argv = ["make", "experiment", f"NAME={name}", f"HOST={wish}", "ARGS=--yes"]
    inherited = dict.fromkeys(_OF_MAKE, "") | {"PAGECAGE_RUNS": str(runs), **env}
    began, lines = time.time(), []
    with spawn(argv, stderr=PIPE, cwd=cwd, env=inherited) as process:
        assert process.stderr is not None
        for line in process.stderr:
            lines.append((time.time(), line.decode(errors="replace").rstrip()))
            if aloud:
                tell(f"  {lines[-1][1]}")
    ended = time.time()
    if process.returncode != 0:
        raise PagecageError(
            f"`{' '.join(argv)}` failed: {lines[-1][1] if lines else ''}", f"run it in {cwd}", 1
        )
    found = read_records(Path(os.path.realpath(runs / f"latest-{name}")) / "records.jsonl")
    return Timed(began, tuple(lines), ended, tuple(found))


RUNS = 3
MOST_TO_FIRST_TRIAL, MOST_TO_REPORT, MOST_PAUSE = 5.0, 40.0, 1.3
ONCE = ("calibrate", "dataset")
"""Phases that take time only in the first trial of a cage or dataset, and are not part of the
pause.
"""
SHOWN_PHASES = 5


def measure(session: Session) -> Iterator[Figure]:
    """Run the experiment once for everything that is made once per version, then as often as is
    measured.
    """
    session.leave()
    runs = scratch() / "start"
    try:
        commands = [_again(number, session) for number in range(RUNS + 1)][1:]
    finally:
        shutil.rmtree(runs, ignore_errors=True)
    session.about = commands[0].about
    yield from figures(commands)


def _again(number: int, session: Session) -> Timed:
    tell(f"make experiment NAME=smoke, {f'{number} of {RUNS}' if number else 'once before'}")
    return timed("smoke", scratch() / "start", session.wish, TOP, {})


def figures(commands: Sequence[Timed]) -> Iterator[Figure]:
    first = [one.starts[0] - one.began for one in commands]
    starting = median(one.said("starting the host") - one.began for one in commands)
    says = f"from the key press; {starting:.1f} s until the host is started"
    yield _seconds("seconds to the first trial", first, MOST_TO_FIRST_TRIAL, says)
    after = median(one.ended - _end_of(one.records[-1]) for one in commands)
    says = f"from the key press; {after:.1f} s after the last trial"
    yield _seconds("seconds to the report", [one.seconds for one in commands], MOST_TO_REPORT, says)
    pauses = [pause for one in commands for pause in _pauses(one)]
    phases = [
        phase for one in commands for record in one.records for phase in _own_phases(record).items()
    ]
    yield _seconds(
        "seconds between two trials", pauses, MOST_PAUSE, f"beyond the workload; {_longest(phases)}"
    )


def _seconds(name: str, values: Sequence[float], most: float, says: str) -> Figure:
    return spread_figure(name, values, f"{most:g} or less", lambda middle: middle <= most, says)


def _end_of(record: Record) -> float:
    last = record.phases[-1]
    return float(last.start_wall_seconds + last.seconds)


def _pauses(one: Timed) -> list[float]:
    """Return the seconds from each trial's start to the next one's, less its workload and work
    done once.
    """
    worked = [
        _measured(record)
        + float(sum(phase.seconds for phase in record.phases if phase.name in ONCE))
        for record in one.records
    ]
    return [
        after - before - spent
        for (before, after), spent in zip(pairwise(one.starts), worked, strict=False)
    ]


def _measured(record: Record) -> float:
    return float(record.measured.seconds if record.measured else 0.0)


def _own_phases(record: Record) -> Mapping[str, float]:
    """Return the seconds of each phase; for `run`, the time beyond its workload."""
    taken = {phase.name: float(phase.seconds) for phase in record.phases if phase.name not in ONCE}
    return taken | {"run": taken.get("run", 0.0) - _measured(record)}


def _longest(phases: Sequence[tuple[str, float]]) -> str:
    names = dict.fromkeys(name for name, _ in phases)
    middle = {name: median(seconds for other, seconds in phases if other == name) for name in names}
    longest = sorted(middle, key=lambda name: -middle[name])[:SHOWN_PHASES]
    return ", ".join(f"{name} {middle[name]:.2f} s" for name in longest)


MOST_SECONDS = 420.0
FIRST = "constrained-random"


def measure_clone(session: Session) -> Iterator[Figure]:
    """Clone the committed state, measure, and remove the clone and its cache."""
    session.leave()
    place = scratch() / "clone"
    shutil.rmtree(place, ignore_errors=True)
    run(["git", "clone", "--quiet", "--local", TOP, place / "checkout"])
    tell(f"make experiment NAME={FIRST} in a new clone")
    try:
        cache = {"XDG_CACHE_HOME": str(place / "cache")}
        first = timed(FIRST, place / "runs", session.wish, place / "checkout", cache, aloud=True)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    session.about = first.about
    seconds, until = first.seconds, first.starts[0] - first.began
    says = f"{until:.0f} s until the first of {len(first.records)} trials"
    aim = f"{MOST_SECONDS:g} or less"
    yield single_figure("seconds in a new clone", seconds, aim, seconds <= MOST_SECONDS, says)
