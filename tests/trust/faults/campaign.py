"""Every injection of the scenarios, spread over processes, and the counts by call and fault."""

from __future__ import annotations

import math
import multiprocessing
import random
import time
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from multiprocessing.pool import AsyncResult
from pathlib import Path
from typing import Any

from tests.trust.faults.command_line import import_everything
from tests.trust.faults.injection import Injection
from tests.trust.faults.scenario import Scenario
from tests.trust.faults.trial import Bench, Judged, Unharmed, injections

_BENCHES: dict[str, Bench] = {}
_SHARED: dict[str, Any] = {}


def enumerate_faults(
    scenario: Scenario,
    parent: Path,
    workers: int,
    chooser: random.Random,
    count: int | None = None,
    until: float = math.inf,
    only: str = "",
) -> tuple[Unharmed, Iterator[Judged]]:
    """Return the reference of a scenario, and an iterator over its judged injections.

    They are in an order of the `chooser`: all, or the first `count`, or as many as are judged
    `until` that time (time.monotonic). With `only`, they are those with this text in their names.
    """
    import_everything()
    bench = Bench(scenario, parent)
    unharmed = bench.unharmed()
    every = [one for one in injections(scenario, unharmed) if only in str(one)]
    chosen = chooser.sample(every, min(count or len(every), len(every)))
    return unharmed, _spread(scenario, unharmed, chosen, bench, workers, until)


def _spread(
    scenario: Scenario,
    unharmed: Unharmed,
    every: Sequence[Injection],
    bench: Bench,
    workers: int,
    until: float,
) -> Iterator[Judged]:
    _SHARED.update(scenario=scenario, unharmed=unharmed, template=bench.template)
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        before = (one for one in every if time.monotonic() < until)
        done = (pool.apply_async(_judge, (one,)) for one in before)
        yield from _in_turn(done, 2 * workers)
        pool.map(_close, range(workers * 4), chunksize=1)
    bench.close()


def _in_turn(started: Iterator[AsyncResult[Judged]], ahead: int) -> Iterator[Judged]:
    """Yield results in their order; only so many are started ahead, so that time can run out."""
    waiting = deque(islice(started, ahead))
    while waiting:
        yield waiting.popleft().get()
        waiting.extend(islice(started, 1))


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
