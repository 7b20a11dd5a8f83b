"""The trials with planted lies in the guest, and what caught them.

`python -m reliability.guest_lies.campaign` stores docs/trust/guest-lies.json.
"""

from __future__ import annotations

import platform
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pagecage.checkout import TOP
from pagecage.hosts.agent_package import make_agent_package
from pagecage.hosts.host import ResourceNeeds
from pagecage.hosts.vm.vm_host import VmHost
from pagecage.model.record import Record, with_outer_host
from pagecage.model.run_files import read_lines
from pagecage.planning.plan import Plan
from pagecage.runner.campaign import Campaign
from pagecage.runner.run_folder import RunFolder
from pagecage.units import MIB
from pagecage.verdicts.evaluate import Verdicts, evaluate
from reliability.campaign import RESULTS, write_results
from reliability.guest_lies.lies import LIES, GuestLie, is_caught, plant, trial_of


@dataclass(frozen=True)
class CaughtLie:
    """A lie, the word of what caught it, and the sentence that excludes its trial, if any."""

    lie: GuestLie
    found: str
    reason: str


def measure() -> list[CaughtLie]:
    """Plant every lie in a trial of its own; return what caught each."""
    by_name = {lie.name: lie for lie in LIES}
    host, package = VmHost(), make_agent_package(TOP)
    harness = {"version": "0", "git_revision": None, "git_dirty": None}
    document = {"fresh": "never", "experiment": "lies", "harness": harness}
    plan = Plan("lies-vm", tuple(map(trial_of, LIES)), document)
    plan = replace(plan, document={**plan.document, "run_id": plan.run_id, "trials": []})

    def disturb(event: Mapping[str, Any]) -> None:
        lie = by_name.get(event.get("trial_id", ""))
        if lie is not None and lie.moment == event.get("phase", event["event"]):
            plant(host, lie)

    with tempfile.TemporaryDirectory() as runs:
        folder = RunFolder.create(Path(runs), plan)
        campaign = Campaign(host, plan, folder, package, disturb)
        try:
            host.prepare(ResourceNeeds(0, 256 * MIB), print)
            state = host.start()
            host.install(package)
            campaign._serve(plan.trials, state)
        finally:
            host.stop()
        return [_judged(by_name[one.trial_id], one, folder) for one in folder.records()]


def _judged(lie: GuestLie, record: Record, folder: RunFolder) -> CaughtLie:
    """Judge a trial by what was seen inside the guest.

    Load on the machine around it would exclude every trial, whatever was planted.
    """
    inside = with_outer_host(record, None)
    verdicts = evaluate(inside, read_lines(folder.path, record, "sampler"))
    reason = record.error or "; ".join(verdicts.reasons)
    return CaughtLie(lie, _caught_by(record, verdicts), reason)


def _caught_by(record: Record, verdicts: Verdicts) -> str:
    if record.outcome != "ok":
        return record.outcome
    if verdicts.limits[0].verdict == "leaky":
        return "leaky"
    if verdicts.host_quiet.verdict == "not_quiet":
        return "not_quiet"
    if verdicts.consistency.verdict == "contradictory":
        return "contradictory"
    return verdicts.limits[0].verdict


def main() -> int:
    """Measure, and store the results; return 1 if a lie was not caught as expected."""
    found = measure()
    rows = [
        {
            "lie": one.lie.title,
            "moment": one.lie.moment,
            "expected": one.lie.expected,
            "found": one.found,
            "reason": one.reason,
        }
        for one in found
    ]
    write_results(RESULTS / "guest-lies.json", {"machine": platform.machine(), "lies": rows})
    return int(any(not is_caught(one.lie.expected, one.found) for one in found))


if __name__ == "__main__":
    sys.exit(main())
