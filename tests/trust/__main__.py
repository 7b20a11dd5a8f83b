"""`make trust`: measure how often pagecage is wrong, and write docs/TRUST.md."""

from __future__ import annotations

import json
import sys

from tests.trust.comparisons import SLOWDOWNS, as_json, compare_pairs, cover
from tests.trust.distributions import SHAPES
from tests.trust.mutants.campaign import try_everything
from tests.trust.page import PAGE, RESULTS, page

SEED = 20261122
PAIRS = 1000
SLOWED_PAIRS = 400


def main() -> None:
    """Run the campaigns, store their results, and write the page."""
    RESULTS.mkdir(exist_ok=True)
    comparisons = as_json(compare_pairs(SHAPES, PAIRS, SEED))
    for slowdown in SLOWDOWNS:
        sys.stderr.write(f"comparing samples that are {slowdown - 1:.0%} slower ...\n")
        comparisons += as_json(compare_pairs(SHAPES, SLOWED_PAIRS, SEED, slowdown))
    sys.stderr.write("drawing intervals ...\n")
    found = {
        "seed": SEED,
        "comparisons": comparisons,
        "coverage": as_json(cover(SHAPES, PAIRS * 2, SEED)),
    }
    (RESULTS / "statistics.json").write_text(json.dumps(found, indent=1) + "\n")
    sys.stderr.write("planting lies ...\n")
    (RESULTS / "mutants.json").write_text(json.dumps(try_everything(), indent=1) + "\n")
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
