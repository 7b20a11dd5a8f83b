"""The injections of a scenario, spread over processes: the command meets a fault, and the next
start must make good for it.
"""

from __future__ import annotations

import ctypes
import math
import multiprocessing
import shutil
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from pagecage.errors import EXIT_FAILED, EXIT_OK
from reliability.faults.injection import KILLED, TORN, Injection, Point
from reliability.faults.scenario import (
    DOCUMENTED,
    TOLD,
    Scenario,
    extra_files,
    files_below,
    import_everything,
)
from reliability.faults.supervisor import Clock, Outcome, Supervisor

_DEFECTS = ("Traceback (most recent call last)", "internal error", "defect of pagecage")
_PR_SET_CHILD_SUBREAPER = 36
_OWN_FILES = (f"/{TOLD}", "/frames")


@dataclass(frozen=True)
class Unharmed:
    """The reference of a scenario: calls and results of an execution without a fault."""

    trace: tuple[Point, ...]
    result: Any
    files: Counter[str]


@dataclass(frozen=True)
class Judged:
    """An injection and what was wrong afterwards; nothing if all was well.

    `was_met` is False if the call did not occur in this execution.
    """

    scenario: str
    injection: Injection
    was_met: bool
    status: int | None
    next_status: int | None
    wrong: tuple[str, ...]
    seconds: float
    told: str = ""


class Bench:
    """Folders and a supervisor for the injections of one scenario, one after another."""

    def __init__(self, scenario: Scenario, parent: Path, template: Path | None = None) -> None:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._scenario, self._clock = scenario, Clock()
        self._clock.install()
        self._top = Path(tempfile.mkdtemp(prefix=f"faults-{scenario.name}-", dir=parent))
        self._root = self._top / "root"
        self.template = template or self._top / "template"
        if template is None:
            self._root.mkdir()
            scenario.prepare(self._root)
            self._root.rename(self.template)

    def unharmed(self) -> Unharmed:
        """Return the reference. Raises RuntimeError if the command does not succeed."""
        supervisor = self._begin()
        outcome = self._execute(supervisor, self._scenario.start)
        told = self._told()
        if outcome.status != EXIT_OK or outcome.left:
            raise RuntimeError(f"{self._scenario.name}: {outcome.status} {outcome.left}: {told}")
        own = [
            point
            for point in outcome.trace
            if point.target not in _OWN_FILES or point.call != "openat"
        ]
        found = self._scenario.result(self._root), files_below(self._root)
        self._end(supervisor)
        return Unharmed(tuple(own), *found)

    def judge(self, injection: Injection, unharmed: Unharmed) -> Judged:
        supervisor = self._begin()
        outcome = self._execute(supervisor, self._scenario.start, injection)
        wrong = list(self._wrong_at_once(injection, outcome, unharmed))
        before = self._scenario.acknowledged(self._root)
        first_told = self._told()
        (self._root / TOLD).unlink(missing_ok=True)
        after = self._execute(supervisor, self._scenario.again)
        wrong += self._wrong_in_the_end(after, before, unharmed)
        told = first_told + "\n---- next start\n" + self._told() if wrong else ""
        self._end(supervisor)
        return Judged(
            self._scenario.name,
            injection,
            outcome.fired,
            outcome.status,
            after.status,
            tuple(dict.fromkeys(wrong)),
            outcome.seconds + after.seconds,
            told,
        )

    def close(self) -> None:
        shutil.rmtree(self._top)

    def _execute(
        self,
        supervisor: Supervisor,
        command: Callable[[Path], int],
        injection: Injection | None = None,
    ) -> Outcome:
        self._scenario.before(self._root)
        limits = self._scenario.limits
        return supervisor.execute(
            lambda: command(self._root), self._scenario.role, injection, limits
        )

    def _begin(self) -> Supervisor:
        if self._scenario.is_copied:
            shutil.copytree(self.template, self._root, symlinks=True)
        else:
            self._root.mkdir()
            self._scenario.prepare(self._root)
        return Supervisor(self._root, self._clock)

    def _end(self, supervisor: Supervisor) -> None:
        supervisor.end_all()
        shutil.rmtree(self._root)

    def _told(self) -> str:
        path = self._root / TOLD
        return path.read_text(errors="replace") if path.exists() else ""

    def _wrong_at_once(
        self, injection: Injection, outcome: Outcome, unharmed: Unharmed
    ) -> Iterator[str]:
        is_killed = injection.fault in (KILLED, TORN) and injection.point.role == "main"
        closed = (EXIT_FAILED,) if injection.fault == "EPIPE" else ()
        if outcome.status is None:
            yield "it did not end"
        elif outcome.status not in (*DOCUMENTED, *((-9,) if is_killed else ()), *closed):
            yield f"it ended with status {outcome.status}"
        yield from (f"it printed {word!r}" for word in _DEFECTS if word in self._told())
        if outcome.status == EXIT_OK:
            at_once = self._scenario.wrong_at_once or (
                lambda root, expected: self._scenario.wrong(root, {}, expected)
            )
            for sentence in at_once(self._root, unharmed.result):
                yield f"it ended with success, but {sentence}"

    def _wrong_in_the_end(self, after: Outcome, before: Any, unharmed: Unharmed) -> Iterator[str]:
        if after.status != EXIT_OK:
            yield f"the next start ended with status {after.status}"
            return
        yield from (f"the next start printed {word!r}" for word in _DEFECTS if word in self._told())
        yield from (f"process left: {line[:120]}" for line in after.left)
        yield from self._scenario.wrong(self._root, before, unharmed.result)
        extra = extra_files(self._root, unharmed.files, self._scenario.extra_files)
        yield from (f"left behind: {name}" for name in extra)


def injections(scenario: Scenario, unharmed: Unharmed) -> list[Injection]:
    """Return every fault at every point of a scenario, in the order of execution."""
    points = dict.fromkeys(unharmed.trace)
    return [Injection(point, fault) for point in points for fault in scenario.faults(point)]


Plan = Sequence[Injection]
Choose = Callable[[Plan], Plan]
_BENCHES: dict[str, Bench] = {}
_SHARED: dict[str, Any] = {}


def enumerate_faults(
    scenario: Scenario, parent: Path, workers: int, choose: Choose, until: float = math.inf
) -> tuple[Plan, Iterator[Judged]]:
    """Return every injection of a scenario, and an iterator over the judged ones.

    They are what `choose` returns of the plan, in that order; none is begun after the time `until`
    (time.monotonic).
    """
    import_everything()
    bench = Bench(scenario, parent)
    unharmed = bench.unharmed()
    plan = injections(scenario, unharmed)
    return plan, _spread(scenario, unharmed, choose(plan), bench, workers, until)


def _spread(
    scenario: Scenario, unharmed: Unharmed, chosen: Plan, bench: Bench, workers: int, until: float
) -> Iterator[Judged]:
    _SHARED.update(scenario=scenario, unharmed=unharmed, template=bench.template)
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        before = (one for one in chosen if time.monotonic() < until)
        done = (pool.apply_async(_judge, (one,)) for one in before)
        # only so many are started ahead, so that time can run out
        waiting = deque(islice(done, 2 * workers))
        while waiting:
            yield waiting.popleft().get()
            waiting.extend(islice(done, 1))
        pool.map(_close, range(workers * 4), chunksize=1)
    bench.close()


def _judge(injection: Injection) -> Judged:
    scenario: Scenario = _SHARED["scenario"]
    if scenario.name not in _BENCHES:
        template: Path = _SHARED["template"]
        _BENCHES[scenario.name] = Bench(scenario, template.parent, template)
    return _BENCHES[scenario.name].judge(injection, _SHARED["unharmed"])


def _close(_: int) -> None:
    while _BENCHES:
        _BENCHES.popitem()[1].close()
    time.sleep(0.01)
