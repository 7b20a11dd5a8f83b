"""`make trust`: measure how often pagecage is wrong, and write docs/TRUST.md."""

from __future__ import annotations

import json
import sys

from reliability.mutants.campaign import try_everything
from reliability.page import PAGE, RESULTS, page
from reliability.statistics.__main__ import main as measure_statistics


def main() -> None:
    RESULTS.mkdir(exist_ok=True)
    measure_statistics([])
    sys.stderr.write("planting lies ...\n")
    (RESULTS / "mutants.json").write_text(json.dumps(try_everything(), indent=1) + "\n")
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
