"""Every injection of the scenarios, spread over processes, and the counts by call and fault."""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Iterator, Sequence
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
    chooser: random.Random | None = None,
    count: int | None = None,
) -> tuple[Unharmed, Iterator[Judged]]:
    """Return the reference of a scenario, and an iterator over its judged injections.

    With a `chooser`, it chooses `count` of them.
    """
    import_everything()
    bench = Bench(scenario, parent)
    unharmed = bench.unharmed()
    every = injections(scenario, unharmed)
    if chooser is not None:
        every = chooser.sample(every, min(count or 0, len(every)))
    return unharmed, _spread(scenario, unharmed, every, bench, workers)


def _spread(
    scenario: Scenario,
    unharmed: Unharmed,
    every: Sequence[Injection],
    bench: Bench,
    workers: int,
) -> Iterator[Judged]:
    _SHARED.update(scenario=scenario, unharmed=unharmed, template=bench.template)
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        yield from pool.imap_unordered(_judge, every)
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
