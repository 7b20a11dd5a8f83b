"""The injections of a scenario, spread over processes."""

from __future__ import annotations

import math
import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from multiprocessing.pool import AsyncResult
from pathlib import Path
from typing import Any

from reliability.faults.command_line import import_everything
from reliability.faults.injection import Injection
from reliability.faults.scenario import Scenario
from reliability.faults.trial import Bench, Judged, Unharmed, injections

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
