"""`make trust`: measure how often pagecage is wrong, and write docs/TRUST.md."""

from __future__ import annotations

from reliability.campaign import RESULTS, tell, write_results
from reliability.mutants.campaign import try_everything
from reliability.statistics import main as measure_statistics


def main() -> None:
    measure_statistics([])
    tell("planting lies ...")
    write_results(RESULTS / "mutants.json", try_everything())


if __name__ == "__main__":
    main()
