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
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reliability.campaign import arguments, code_of, folder_on_disk, tell, write_page
from reliability.faults.artefacts import BUNDLE, IMAGE, PUBLISH, RENDER
from reliability.faults.campaign import Choose, Plan, enumerate_faults
from reliability.faults.fleets import FLEET, PROVISION
from reliability.faults.results import (
    StoredFault,
    read_campaign,
    result_of,
    summarise,
    write_campaign,
)
from reliability.faults.runs import RESUME, RUN
from reliability.faults.scenario import Scenario
from reliability.faults.trials import TRIAL

SCENARIOS: Mapping[str, Scenario] = {
    one.name: one for one in (RUN, RESUME, TRIAL, FLEET, PROVISION, BUNDLE, RENDER, PUBLISH, IMAGE)
}


SEED = 20261123


def main(words: Sequence[str] | None = None) -> int:
    """Run the campaign; return 1 if a fault had a consequence that must not be."""
    parser = arguments("faults")
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", choices=[*SCENARIOS, []])
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--at-most", type=int, default=None)
    parser.add_argument("--only", default="")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--workers", type=int, default=3 * (os.cpu_count() or 1))
    asked = parser.parse_args(words)
    names = asked.scenarios or list(SCENARIOS)
    asked.until = time.monotonic() + asked.seconds
    with folder_on_disk() as parent:
        if not (asked.sample or asked.only):
            return int(sum(_continue(SCENARIOS[name], Path(parent), asked) for name in names) > 0)
        share = -(-asked.sample // len(names)) if asked.sample else None
        rows = [_sample(SCENARIOS[name], Path(parent), asked, share) for name in names]
    if asked.json:
        sys.stdout.write(json.dumps(rows) + "\n")
    return int(any(row["wrong"] for row in rows))


def _continue(scenario: Scenario, parent: Path, asked: argparse.Namespace) -> int:
    campaign = read_campaign(asked.results, asked.seed).at(code_of("faults.json"))
    chooser = random.Random(f"{campaign.seed} {scenario.name}")

    def choose(plan: Plan) -> Plan:
        return campaign.pending(scenario.name, chooser.sample(plan, len(plan)))[: asked.at_most]

    plan, found = _inject(scenario, parent, asked, choose, len(campaign.states))
    stored = campaign.with_results(scenario.name, plan, found)
    write_campaign(asked.results, stored, list(SCENARIOS))
    left = len(stored.pending(scenario.name, plan))
    tell(f"{scenario.name}: {len(found)} injected, {left} of {len(plan)} left")
    write_page(asked.results)
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
    tell(
        f"{scenario.name}: {len(found)} of {len(plan)} faults injected, {wrong} had a consequence"
        " that must not be"
    )
    return summarise([known.get(one, StoredFault(scenario.name, one)) for one in plan])


def _inject(
    scenario: Scenario, parent: Path, asked: argparse.Namespace, choose: Choose, state: int
) -> tuple[Plan, list[StoredFault]]:
    plan, judged = enumerate_faults(scenario, parent, asked.workers, choose, asked.until)
    found = []
    for one in judged:
        for sentence in one.wrong:
            tell(f"{one.scenario}: {one.injection}: {sentence}")
        found.append(result_of(one, state))
    return plan, found


if __name__ == "__main__":
    sys.exit(main())
