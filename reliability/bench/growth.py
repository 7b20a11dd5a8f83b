"""The controller's cost of a trial, by the plan: `python -m reliability.bench.growth TRIALS FRESH`.

The host is simulated: its agent answers at once with the frames of a real trial of nothing, and
its restart takes no time. What is left is planning, receiving, writing records and traces, and
choosing what comes next.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pagecage.hosts.agent_package import AgentPackage
from pagecage.model.plan import Plan
from pagecage.process import run
from pagecage.runner.campaign import Campaign
from pagecage.runner.run_folder import RunFolder
from reliability.bench.bed import Figure, growth_figure, keep, scratch
from reliability.campaign import tell
from tests.builders.plans import BASE, CHOICES, plan_of
from tests.fake_host.hosts import TestHost
from tests.tree import ROOT


def measured_in_child(module: str, *arguments: str) -> dict[str, Any]:
    """Run a module that prints one JSON object as its last line, and return that object."""
    argv = [sys.executable, "-m", module, *arguments]
    answer: dict[str, Any] = json.loads(
        run(argv, cwd=ROOT, timeout_seconds=3600).stdout.splitlines()[-1]
    )
    return answer


def most_memory_bytes() -> int:
    """Return the most memory that this process had so far (`ru_maxrss` of getrusage(2))."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


SIZES = (100, 1_000, 10_000)
BLOCK = 20
_KIT = AgentPackage(Path("/nowhere/agent.pyz"), (), "0" * 64)
_FRAMES = ROOT / "tests/fixtures/nothing.frames"


@dataclass(frozen=True)
class ControllerCost:
    """The controller's cost of one run: CPU and wall seconds, and memory. `fresh` is the plan's."""

    trials: int
    fresh: str
    plan_seconds: float
    run_seconds: float
    run_wall_seconds: float
    resume_seconds: float
    most_bytes: int


def plan_of_nothing(trials: int, fresh: str) -> Plan:
    """Return a plan of so many trials, a multiple of BLOCK."""
    levels = tuple(f"l{number}" for number in range(BLOCK))
    experiment = replace(BASE, factors={"level": levels}, collectors=())
    return plan_of(experiment, replace(CHOICES, repeats=trials // BLOCK, fresh=fresh))


def run_plan(trials: int, fresh: str) -> ControllerCost:
    """Plan, run, and resume the finished run, in this process."""
    top = scratch() / f"growth-{os.getpid()}"
    agent = [sys.executable, "-S", str(ROOT / "reliability/bench/echoing_agent.py"), str(_FRAMES)]
    host = TestHost(agent, str(top / "spool"))
    try:
        began = time.process_time()
        plan = plan_of_nothing(trials, fresh)
        folder = RunFolder.create(top / "runs", plan)
        planned, wall = time.process_time(), time.monotonic()
        summary = Campaign(host, plan, folder, _KIT, lambda _: None).run()
        ended, waited = time.process_time(), time.monotonic() - wall
        assert (summary.finished, summary.unfinished) == (trials, 0)
        again = RunFolder(folder.path)
        Campaign(host, again.plan(), again, _KIT, lambda _: None).run()
        resumed = time.process_time()
    finally:
        shutil.rmtree(top, ignore_errors=True)
    seconds = (planned - began, ended - planned, waited, resumed - ended)
    return ControllerCost(trials, fresh, *seconds, most_memory_bytes())


def in_child(trials: int, fresh: str) -> ControllerCost:
    """Measure in a process of its own, whose memory is that of one run."""
    tell(f"a plan of {trials:,} trials, fresh = {fresh}")
    return ControllerCost(**measured_in_child("reliability.bench.growth", str(trials), fresh))


def measure() -> Iterator[Figure]:
    """Compare the cost of a trial in the longest plan with that in the shortest."""
    costs = [in_child(trials, fresh) for fresh in ("never", "block") for trials in SIZES]
    keep("growth", costs)
    for fresh in ("never", "block"):
        few, *_, many = (one for one in costs if one.fresh == fresh)
        growth = (many.run_seconds / many.trials) / (few.run_seconds / few.trials)
        says = (
            f"{1000 * few.run_seconds / few.trials:.1f} ms of CPU a trial in {few.trials},"
            f" {1000 * many.run_seconds / many.trials:.1f} ms in {many.trials:,}"
            f" ({many.most_bytes / 1e6:.0f} MB)"
        )
        yield growth_figure(f"controller a trial, fresh = {fresh}", growth, says)


if __name__ == "__main__":
    print(json.dumps(asdict(run_plan(int(sys.argv[1]), sys.argv[2]))))
