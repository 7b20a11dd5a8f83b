"""Fault campaigns: `python -m tests.trust.faults [SCENARIO ...] [OPTION ...]`.

Every fault is injected at every point, and docs/trust/faults.json is written. --sample N injects N
that the seed chooses, and prints their results. --seconds ends each scenario after that time; the
seed then decides which injections come first. --only repeats the injections with this text in
their names.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.tree import ROOT
from tests.trust.faults.campaign import enumerate_faults
from tests.trust.faults.results import summarise
from tests.trust.faults.scenario import Scenario
from tests.trust.faults.scenarios import SCENARIOS
from tests.trust.faults.trial import Judged, injections
from tests.trust.page import PAGE, RESULTS, page

SEED = 20261123
RESULT = RESULTS / "faults.json"


def main(words: Sequence[str] | None = None) -> int:
    """Run the campaign; return 1 if a fault had a consequence that must not be."""
    asked = _parser().parse_args(words)
    names = asked.scenarios or list(SCENARIOS)
    rows = []
    with _parent() as parent:
        for name in names:
            share = -(-asked.sample // len(names)) if asked.sample else None
            rows.append(_run(SCENARIOS[name], Path(parent), asked, share))
            if not (asked.sample or asked.only):
                _store(rows[-1:], asked.seed)
    if asked.sample or asked.only:
        sys.stdout.write(json.dumps(rows) + "\n")
    return int(any(row["wrong"] for row in rows))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.trust.faults")
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", choices=[*SCENARIOS, []])
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--only", default="")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--workers", type=int, default=3 * (os.cpu_count() or 1))
    return parser


def _parent() -> tempfile.TemporaryDirectory[str]:
    """Return a folder on a disk, because pages of a tmpfs cannot be evicted."""
    (ROOT / "build/tests").mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(dir=ROOT / "build/tests", ignore_cleanup_errors=True)


def _run(
    scenario: Scenario, parent: Path, asked: argparse.Namespace, share: int | None
) -> dict[str, Any]:
    began = time.monotonic()
    chooser = random.Random(f"{asked.seed} {scenario.name}")
    unharmed, judged = enumerate_faults(
        scenario, parent, asked.workers, chooser, share, began + asked.seconds, asked.only
    )
    found = [_told(one) for one in judged]
    planned = len(injections(scenario, unharmed))
    seconds = round(time.monotonic() - began, 1)
    return {**summarise(scenario.name, unharmed, found, seconds), "planned": planned}


def _told(one: Judged) -> Judged:
    for sentence in one.wrong:
        sys.stderr.write(f"{one.scenario}: {one.injection}: {sentence}\n")
    return one


def _store(rows: Sequence[dict[str, Any]], seed: int) -> None:
    """Add the results to the stored ones, and write the page."""
    stored = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    commands = {row["command"]: row for row in [*stored.get("commands", []), *rows]}
    ordered = [commands[name] for name in SCENARIOS if name in commands]
    RESULT.write_text(json.dumps({"seed": seed, "commands": ordered}, indent=1) + "\n")
    PAGE.write_text(page())


if __name__ == "__main__":
    sys.exit(main())
