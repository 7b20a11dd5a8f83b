"""The time of a report, and its growth: `python -m reliability.bench.render [TRIALS ROWS]`.

It is compared with pandas reading the same sampler rows as JSON lines, the cost of reading alone.
Seconds are CPU time, so that a busy machine matters less.
"""

from __future__ import annotations

import json
import math
import os
import resource
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagecage.process import run
from pagecage.units import LEAST_PAGE_BYTES, MIB
from reliability.bench.bed import Figure, growth_figure, keep, scratch, show, single_figure
from reliability.campaign import tell
from tests.tree import ROOT

RATES = (1.0, 2.0, 4.0, 8.0, 16.0)
BLOCKS = ("4KiB", "16KiB", "64KiB", "256KiB")
DATASET_BYTES = 64 * MIB
WALL, CLOCK = 1_795_000_000.0, 1000.0
ROW_SECONDS = 0.1
TREATMENTS = len(RATES) * len(BLOCKS)
"""Trials per block."""


def make_run(folder: Path, trials: int, rows: int) -> Path:
    """Write a run of `trials` trials (one, or a multiple of TREATMENTS) with `rows` sampler rows in
    total.
    """
    (folder / "facts").mkdir(parents=True)
    facts = {"kernel": "6.12.41", "cpus": 2, "memory_bytes": 2 << 30}
    (folder / "facts/b-1.json").write_text(json.dumps(facts))
    planned = list(_trials(trials))
    (folder / "plan.json").write_text(json.dumps(_plan(folder.name, planned)))
    with (folder / "records.jsonl").open("w") as file:
        for trial in planned:
            file.write(json.dumps(_record(folder, trial, rows // trials)) + "\n")
    return folder


def _trials(count: int) -> Iterator[dict[str, Any]]:
    for place in range(count):
        block, number = divmod(place, TREATMENTS)
        cage, size = RATES[number // len(BLOCKS)], BLOCKS[number % len(BLOCKS)]
        yield {
            "trial_id": f"r{block + 1}_{cage:g}mb_{size.lower()}",
            "experiment": "bench",
            "position": place,
            "treatment": {"cage": f"{cage:g}MB", "block": size},
            "repeat": block + 1,
            "block": block + 1,
            "cage": {"name": f"{cage:g}MB", "properties": {}},
            "cache": "cold",
            "dataset": {"size_bytes": DATASET_BYTES, "seed": 1, "fill": "random"},
            "files": 1,
            "workload": {"program": "pcread", "arguments": [size], "kind": "handshake"},
        }


def _plan(run_id: str, trials: list[dict[str, Any]]) -> dict[str, Any]:
    factors = {"cage": [f"{rate:g}MB" for rate in RATES], "block": list(BLOCKS)}
    question = "How long does a report take?"
    definition = {"question": question, "response": "read_seconds", "factors": factors}
    return {
        "plan_version": 1,
        "run_id": run_id,
        "experiment": "bench",
        "definition": definition,
        "host": "vm",
        "size": "default",
        "seed": 1,
        "repeats": max(1, len(trials) // TREATMENTS),
        "fresh": "never",
        "command": "pagecage run bench",
        "harness": {"version": "0", "git_revision": None, "git_dirty": None},
        "trials": trials,
    }


_COLD = {"requested": "cold", "method": "cachestat", "resident_bytes_before": 0}


def _record(folder: Path, trial: Mapping[str, Any], rows: int) -> dict[str, Any]:
    seconds = rows * ROW_SECONDS / 1.2
    seconds *= 1 + 0.05 * math.sin(trial["position"])
    moved = int(DATASET_BYTES * (1 + 0.1 * math.cos(trial["position"])))
    start = WALL + 1.3 * rows * ROW_SECONDS * trial["position"]
    clock = {"start_wall_seconds": start, "start_monotonic_seconds": CLOCK}
    same = ("trial_id", "experiment", "treatment", "repeat", "block", "position")
    traces = _write_traces(folder, trial["trial_id"], start, seconds, moved, rows)
    return {
        "record_version": 2,
        "run_id": folder.name,
        "plan_sha256": "0" * 64,
        "host": "vm",
        **{key: trial[key] for key in same},
        "attempt": 1,
        "outcome": "ok",
        "phase": "record",
        "emulated": False,
        "response": _response(seconds, moved),
        "measured": {**clock, "seconds": seconds},
        "cache": {**_COLD, "file_bytes": DATASET_BYTES},
        "device": {"name": "vdb", "maj_min": "254:16", "queue_settings": {"read_ahead_kb": "128"}},
        "traces": traces,
        "collectors": {
            name: {"status": "ok", "reason": None, "lost_events": None} for name in traces
        },
    }


def _response(seconds: float, moved: int) -> dict[str, float]:
    return {
        "read_seconds": seconds,
        "covered_fraction": 1.0,
        "device_read_bytes": moved,
        "device_reads": moved // 131072,
        "amplification": moved / DATASET_BYTES,
    }


def _write_traces(
    folder: Path, trial_id: str, wall: float, seconds: float, moved: int, rows: int
) -> dict[str, str]:
    where = folder / "trials" / f"{trial_id}.1"
    where.mkdir(parents=True)
    moments = [(i * ROW_SECONDS - 0.05 * rows * ROW_SECONDS) for i in range(rows)]
    shares = [(t, min(1.0, max(0.0, t / seconds))) for t in moments]
    written = {
        "sampler": (json.dumps(_sampler(wall, t, share, moved)) for t, share in shares),
        "vmtouch": (json.dumps(_vmtouch(wall, t, share)) for t, share in shares[::10]),
        "bpftrace": (json.dumps(_bpftrace(wall, t, share)) for t, share in shares[::20]),
    }
    for name, lines in written.items():
        (where / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    return {name: f"trials/{where.name}/{name}.jsonl" for name in written}


def _sampler(wall: float, t: float, share: float, moved: int) -> dict[str, Any]:
    pages, busy = int(share * DATASET_BYTES) // LEAST_PAGE_BYTES, int(share * 1e6)
    stall = {"some": busy, "full": busy}
    read = int(moved * share)
    reads = read // 131072
    return {
        "t": CLOCK + t,
        "wall": wall + t,
        "io": {"rbytes": read, "rios": reads, "wbytes": 0, "wios": 0},
        "disk": {"reads": reads, "sectors_read": read // 512, "io_ticks": busy},
        "memory_current": 13_000_000,
        "memory_stat": {"file": 13_000_000, "workingset_refault_file": 0},
        "memory_events": {"max": 0, "oom": 0, "oom_kill": 0},
        "cpu": {"usage_usec": busy, "throttled_usec": 0},
        "pressure": {"io": stall, "memory": stall, "cpu": stall},
        "resident_pages": pages,
    }


def _vmtouch(wall: float, t: float, share: float) -> dict[str, Any]:
    filled = int(60 * share)
    pages = DATASET_BYTES // LEAST_PAGE_BYTES
    bar = "O" * filled + " " * (60 - filled)
    return {
        "t": CLOCK + t,
        "wall": wall + t,
        "resident_pages": int(share * pages),
        "total_pages": pages,
        "bar": bar,
    }


def _bpftrace(wall: float, t: float, share: float) -> dict[str, Any]:
    flags = {"vm_flag_names": ["VM_READ"], "fault_flag_names": []}
    fault = {"vm_flags": 209, "fault_flags": 4692, **flags}
    counts = [{"pages": pages, "count": int(1000 * share / pages)} for pages in (8, 16, 32)]
    return {
        "t": CLOCK + t,
        "wall": wall + t,
        "lost_events": 0,
        "filemap_fault": [{**fault, "count": int(1000 * share)}],
        "page_cache_ra_order": counts,
    }


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
        tell(f"making a run of {trials} trials, {rows} rows")
        folder = make_run(top / "run", trials, rows)
        tell("rendering")
        report = cost_of("-m", "analysis", "render", folder)
        tell("reading with pandas")
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
    aim = "60 s and 1.5 GB a million rows"
    yield single_figure("report / pandas reading", ratio, aim, fits, says)
    before = f"{small.cpu_seconds:.1f} s before"
    yield growth_figure("report, ten times the run", growth, before, most=MOST_OF_TEN_TIMES)


def by_trials() -> list[ReportCost]:
    """Return the cost of a report of one trial, of 1,000 and of 10,000, with equal traces."""
    costs = []
    for trials in SIZES:
        top = scratch() / f"render-{os.getpid()}"
        try:
            tell(f"making and rendering a run of {trials:,} trials")
            folder = make_run(top / "run", trials, trials * ROWS_A_TRIAL)
            cost = cost_of("-m", "analysis", "render", folder)
        finally:
            shutil.rmtree(top, ignore_errors=True)
        costs.append(ReportCost(trials, cost.cpu_seconds, cost.most_bytes))
        keep("reports", costs)
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
