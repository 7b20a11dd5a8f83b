"""Fault campaigns: `python -m reliability.faults [SCENARIO ...] [OPTION ...]`.

Every fault is injected at every point, and docs/trust/faults.csv is written. A later campaign
continues an earlier one: it injects what has no result with the present code. --seconds ends the
campaign after that time, and --at-most after so many injections of each scenario; the seed decides
which come first. --sample N injects N that the seed chooses, and --only those with a text in their
names; both store nothing. With --json they print their results.
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

from reliability.faults.campaign import Choose, Plan, enumerate_faults
from reliability.faults.results import summarise
from reliability.faults.scenario import Scenario
from reliability.faults.scenarios import SCENARIOS
from reliability.faults.store import (
    StoredFault,
    code_state,
    read_campaign,
    result_of,
    write_campaign,
)
from reliability.page import PAGE, RESULTS, page
from tests.tree import ROOT

SEED = 20261123


def main(words: Sequence[str] | None = None) -> int:
    """Run the campaign; return 1 if a fault had a consequence that must not be."""
    asked = _parser().parse_args(words)
    names = asked.scenarios or list(SCENARIOS)
    asked.until = time.monotonic() + asked.seconds
    with _parent() as parent:
        if not (asked.sample or asked.only):
            return int(sum(_continue(SCENARIOS[name], Path(parent), asked) for name in names) > 0)
        share = -(-asked.sample // len(names)) if asked.sample else None
        rows = [_sample(SCENARIOS[name], Path(parent), asked, share) for name in names]
    if asked.json:
        sys.stdout.write(json.dumps(rows) + "\n")
    return int(any(row["wrong"] for row in rows))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m reliability.faults")
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", choices=[*SCENARIOS, []])
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--at-most", type=int, default=None)
    parser.add_argument("--only", default="")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--workers", type=int, default=3 * (os.cpu_count() or 1))
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser


def _parent() -> tempfile.TemporaryDirectory[str]:
    (ROOT / "build/tests").mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(dir=ROOT / "build/tests", ignore_cleanup_errors=True)


def _continue(scenario: Scenario, parent: Path, asked: argparse.Namespace) -> int:
    campaign = read_campaign(asked.results, asked.seed).at(code_state())
    chooser = random.Random(f"{campaign.seed} {scenario.name}")

    def choose(plan: Plan) -> Plan:
        return campaign.pending(scenario.name, chooser.sample(plan, len(plan)))[: asked.at_most]

    plan, found = _inject(scenario, parent, asked, choose, len(campaign.states))
    stored = campaign.with_results(scenario.name, plan, found)
    write_campaign(asked.results, stored, list(SCENARIOS))
    left = len(stored.pending(scenario.name, plan))
    sys.stderr.write(f"{scenario.name}: {len(found)} injected, {left} of {len(plan)} left\n")
    if asked.results == RESULTS:
        PAGE.write_text(page())
    return sum(bool(one.wrong) for one in found)


def _sample(
    scenario: Scenario, parent: Path, asked: argparse.Namespace, count: int | None
) -> dict[str, Any]:
    chooser = random.Random(f"{asked.seed} {scenario.name}")

    def choose(plan: Plan) -> Plan:
        named = [one for one in plan if asked.only in str(one)]
        return chooser.sample(named, min(count or len(named), len(named)))

    plan, found = _inject(scenario, parent, asked, choose, 1)
    known = {one.injection: one for one in found}
    wrong = sum(bool(one.wrong) for one in found)
    sys.stderr.write(
        f"{scenario.name}: {len(found)} of {len(plan)} faults injected, {wrong} had a consequence"
        " that must not be\n"
    )
    return summarise([known.get(one, StoredFault(scenario.name, one)) for one in plan])


def _inject(
    scenario: Scenario, parent: Path, asked: argparse.Namespace, choose: Choose, state: int
) -> tuple[Plan, list[StoredFault]]:
    plan, judged = enumerate_faults(scenario, parent, asked.workers, choose, asked.until)
    found = []
    for one in judged:
        for sentence in one.wrong:
            sys.stderr.write(f"{one.scenario}: {one.injection}: {sentence}\n")
        found.append(result_of(one, state))
    return plan, found


if __name__ == "__main__":
    sys.exit(main())
