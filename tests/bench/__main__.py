"""`python -m tests.bench [HOST]`: what the harness costs and how well its limits hold, as ratios. Asserts nothing."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict

from pagecage.cli.choose import harness
from pagecage.cli.places import TOP
from pagecage.errors import PagecageError
from tests.bench import appends, caps, memory, reading, replay, trials
from tests.bench.bed import Bed, Figure, scratch, started
from tests.bench.say import say
from tests.bench.show import show


def main(wish: str) -> int:
    """Measure everything, print each figure as it comes, and write them all to build/bench.json."""
    figures: list[Figure] = []
    try:
        show(figures, appends.natively(scratch()))
        with started(wish) as bed:
            about = {"host": bed.host.name, "emulated": bed.emulated, "harness": harness()}
            show(figures, on_the_bed(bed))
            bare, alone = trials.bare_scope_seconds(bed), replay.bare_seconds(bed)
        records = trials.run_trials(wish)
        replayed = list(replay.replays(wish, alone))
    except PagecageError as error:
        say(f"pagecage: {error}")
        return error.exit_code
    show(figures, iter((trials.fixed_cost(records, bare), trials.collectors_cost(records))))
    show(figures, iter(replayed))
    path = TOP / "build" / "bench.json"
    result = {**about, "unix_seconds": time.time(), "figures": [asdict(figure) for figure in figures]}
    path.write_text(json.dumps(result, indent=1) + "\n")
    say(f"written: {path.relative_to(TOP)} (host {about['host']}{', emulated' if about['emulated'] else ''})")
    return 0


def on_the_bed(bed: Bed) -> Iterator[Figure]:
    """What needs no trial."""
    yield from caps.measure(bed)
    yield from reading.measure(bed)
    yield from memory.measure(bed)
    if bed.emulated:
        yield from appends.measure(bed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
