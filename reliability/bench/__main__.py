"""Benchmark of the harness: `python -m reliability.bench [HOST [PART...]]`.

Prints its overhead and the accuracy of its limits as ratios. Nothing is asserted: a figure that
misses its aim is marked. Figures are printed at once and kept in build/bench.json.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from pagecage.checkout import TOP
from pagecage.errors import EXIT_INTERRUPTED, EXIT_OK, PagecageError
from pagecage.planning.run_plan import harness
from reliability.bench.bed import Results, Session, show
from reliability.bench.parts import Part, chosen, listed, minutes
from reliability.campaign import tell

RESULTS = TOP / "build" / "bench.json"


def main(wish: str, names: Sequence[str]) -> int:
    try:
        parts = chosen(names)
    except PagecageError as error:
        tell(f"pagecage: {error}")
        tell("\n".join(("parts:", *listed())))
        return error.exit_code
    return measure(parts, Session(wish), Results(RESULTS))


def measure(parts: Sequence[Part], session: Session, results: Results) -> int:
    """Measure the parts in order; return the exit status. An interruption or a failure keeps the
    finished figures.
    """
    try:
        with session:
            began = time.monotonic()
            for place, part in enumerate(parts):
                left = time_left(parts[:place], parts[place:], time.monotonic() - began)
                tell(
                    f"--- {part.name}: {part.about} (part {place + 1} of {len(parts)}; about"
                    f" {minutes(left)} left)"
                )
                results.begin(part.name, harness())
                for figure in part.measure(session):
                    show(figure)
                    results.add(figure, session.about)
                results.complete()
    except KeyboardInterrupt:
        tell(f"interrupted: {results.count} figures are kept in {RESULTS.relative_to(TOP)}")
        return EXIT_INTERRUPTED
    except PagecageError as error:
        tell(f"pagecage: {error}")
        return error.exit_code
    tell(f"written: {RESULTS.relative_to(TOP)}")
    return EXIT_OK


def time_left(done: Sequence[Part], lacking: Sequence[Part], seconds: float) -> float:
    """Return the minutes for the remaining parts, scaled by how the finished parts compared with
    their estimates.
    """
    expected = sum(part.minutes for part in done)
    pace = seconds / 60 / expected if expected else 1.0
    return pace * sum(part.minutes for part in lacking)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "auto", sys.argv[2:]))
