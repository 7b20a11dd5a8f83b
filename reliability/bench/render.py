"""The time of a report, and its growth: `python -m reliability.bench.render [TRIALS ROWS]`.

It is compared with pandas reading the same sampler rows as JSON lines, the cost of reading alone.
Seconds are CPU time, so that a busy machine matters less.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from pagecage.process import run
from reliability.bench.bed import Figure, growth_figure, scratch
from reliability.bench.made_run import TREATMENTS, make_run
from reliability.bench.say import say
from reliability.bench.show import show
from tests.tree import ROOT

TRIALS, ROWS = 1000, 1_000_000
MOST_SECONDS, MOST_BYTES = 60.0, 1.5e9
MOST_OF_TEN_TIMES = 12.0
"""The allowed factor of a run that is ten times as large: ten, plus the noise of the machine."""
SIZES = (1, 1_000, 10_000)
ROWS_A_TRIAL = 100
_PANDAS = """
import sys, pathlib, pandas as pd
for file in sorted(pathlib.Path(sys.argv[1]).glob("trials/*/sampler.jsonl")):
    pd.read_json(file, lines=True)
"""


@dataclass(frozen=True)
class Cost:
    """Resources that a program and its children used."""

    cpu_seconds: float
    most_bytes: int


@dataclass(frozen=True)
class ReportCost:
    trials: int
    cpu_seconds: float
    most_bytes: int


def cost_of(*arguments: str | Path) -> Cost:
    """Run Python with these arguments. getrusage(2) counts children after they have been waited
    for.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run([sys.executable, *arguments], cwd=ROOT, timeout_seconds=7200)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(seconds, after.ru_maxrss * 1024)


def render(trials: int, rows: int) -> tuple[Cost, Cost]:
    """Return the cost of a report, and of pandas reading its sampler rows."""
    top = scratch() / f"render-{os.getpid()}"
    try:
        say(f"making a run of {trials} trials, {rows} rows")
        folder = make_run(top / "run", trials, rows)
        say("rendering")
        report = cost_of("-m", "analysis", "render", folder)
        say("reading with pandas")
        return report, cost_of("-c", _PANDAS, folder)
    finally:
        shutil.rmtree(top, ignore_errors=True)


def measure(trials: int = TRIALS, rows: int = ROWS) -> Iterator[Figure]:
    small, _ = render(max(TREATMENTS, trials // 10), rows // 10)
    large, reading = render(trials, rows)
    growth, ratio = large.cpu_seconds / small.cpu_seconds, large.cpu_seconds / reading.cpu_seconds
    says = (
        f"{large.cpu_seconds:.1f} s of CPU, {large.most_bytes / 1e6:.0f} MB, {trials} trials,"
        f" {rows} rows"
    )
    share = max(1, rows / ROWS)
    fits = large.cpu_seconds <= MOST_SECONDS * share and large.most_bytes <= MOST_BYTES * share
    yield Figure(
        "report / pandas reading",
        ratio,
        ratio,
        ratio,
        "60 s and 1.5 GB a million rows",
        fits,
        1,
        says,
    )
    before = f"{small.cpu_seconds:.1f} s before"
    yield growth_figure("report, ten times the run", growth, before, most=MOST_OF_TEN_TIMES)


def by_trials() -> list[ReportCost]:
    """Return the cost of a report of one trial, of 1,000 and of 10,000, with equal traces."""
    costs = []
    for trials in SIZES:
        top = scratch() / f"render-{os.getpid()}"
        try:
            say(f"making and rendering a run of {trials:,} trials")
            folder = make_run(top / "run", trials, trials * ROWS_A_TRIAL)
            cost = cost_of("-m", "analysis", "render", folder)
        finally:
            shutil.rmtree(top, ignore_errors=True)
        costs.append(ReportCost(trials, cost.cpu_seconds, cost.most_bytes))
        (scratch() / "reports.json").write_text(json.dumps([asdict(one) for one in costs]))
    return costs


def measure_growth() -> Iterator[Figure]:
    """Compare what a trial adds to a report, between 1,000 and 10,000, with that up to 1,000."""
    one, some, many = by_trials()
    first = (some.cpu_seconds - one.cpu_seconds) / (some.trials - one.trials)
    last = (many.cpu_seconds - some.cpu_seconds) / (many.trials - some.trials)
    says = ", ".join(
        f"{cost.cpu_seconds:.1f} s of CPU and {cost.most_bytes / 1e6:.0f} MB for {cost.trials:,}"
        for cost in (one, some, many)
    )
    yield growth_figure("report, a further trial", last / first, says)


if __name__ == "__main__":
    for figure in measure(*map(int, sys.argv[1:3])):
        show(figure)
