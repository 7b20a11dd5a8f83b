"""Daily waiting times: to the first trial, to the report, and between two trials.

They are taken from the output times of `make experiment NAME=smoke` and from the phases in its
records.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median

from pagecage.checkout import TOP
from pagecage.model.record import Record
from reliability.bench.bed import Figure, scratch
from reliability.bench.command import Timed, timed
from reliability.bench.say import say
from reliability.bench.session import Session

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
    session.about = {
        "host": commands[0].records[0].host,
        "emulated": commands[0].records[0].emulated,
    }
    yield from figures(commands)


def _again(number: int, session: Session) -> Timed:
    say(f"make experiment NAME=smoke, {f'{number} of {RUNS}' if number else 'once before'}")
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
    middle = median(values)
    return Figure(
        name,
        middle,
        min(values),
        max(values),
        f"{most:g} or less",
        middle <= most,
        len(values),
        says,
    )


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
