"""`make trust`: measure how often pagecage is wrong, and write docs/TRUST.md."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from tests.trust.comparisons import SLOWDOWNS, as_json, compare_pairs, cover
from tests.trust.distributions import SHAPES
from tests.trust.mutants.campaign import try_everything
from tests.trust.page import PAGE, RESULTS, page

SEED = 20261122
PAIRS = 1000
SLOWED_PAIRS = 400


def comparisons() -> list[dict[str, Any]]:
    """Compare pairs of samples, each shape and slow-down on a CPU of its own."""
    sys.stderr.write("comparing samples ...\n")
    tasks = [(shape, slowdown) for slowdown in (1.0, *SLOWDOWNS) for shape in SHAPES]
    with ProcessPoolExecutor() as pool:
        return [row for rows in pool.map(_compared, tasks) for row in rows]


def _compared(task: tuple[str, float]) -> list[dict[str, Any]]:
    shape, slowdown = task
    pairs = PAIRS if slowdown == 1 else SLOWED_PAIRS
    return as_json(compare_pairs({shape: SHAPES[shape]}, pairs, SEED, slowdown))


def coverage() -> list[dict[str, Any]]:
    """Draw intervals, each shape on a CPU of its own."""
    sys.stderr.write("drawing intervals ...\n")
    with ProcessPoolExecutor() as pool:
        return [row for rows in pool.map(_covered, SHAPES) for row in rows]


def _covered(shape: str) -> list[dict[str, Any]]:
    return as_json(cover({shape: SHAPES[shape]}, PAIRS * 2, SEED))


def main() -> None:
    """Run the campaigns, store their results, and write the page."""
    RESULTS.mkdir(exist_ok=True)
    found = {"seed": SEED, "comparisons": comparisons(), "coverage": coverage()}
    (RESULTS / "statistics.json").write_text(json.dumps(found, indent=1) + "\n")
    sys.stderr.write("planting lies ...\n")
    (RESULTS / "mutants.json").write_text(json.dumps(try_everything(), indent=1) + "\n")
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
