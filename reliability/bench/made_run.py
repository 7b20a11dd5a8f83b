"""A synthetic run folder with a given number of trials and trace rows."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pagecage.units import LEAST_PAGE_BYTES, MIB

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
    (folder / "facts/b-1.json").write_text(
        json.dumps({"kernel": "6.12.41", "cpus": 2, "memory_bytes": 2 << 30})
    )
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
    definition = {
        "question": "How long does a report take?",
        "response": "read_seconds",
        "factors": factors,
    }
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


def _record(folder: Path, trial: Mapping[str, Any], rows: int) -> dict[str, Any]:
    seconds = rows * ROW_SECONDS / 1.2
    seconds *= 1 + 0.05 * math.sin(trial["position"])
    moved = int(DATASET_BYTES * (1 + 0.1 * math.cos(trial["position"])))
    start = WALL + 1.3 * rows * ROW_SECONDS * trial["position"]
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
        "measured": {
            "start_wall_seconds": start,
            "start_monotonic_seconds": CLOCK,
            "seconds": seconds,
        },
        "cache": {
            "requested": "cold",
            "method": "cachestat",
            "resident_bytes_before": 0,
            "file_bytes": DATASET_BYTES,
        },
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
    return {
        "t": CLOCK + t,
        "wall": wall + t,
        "io": {
            "rbytes": int(moved * share),
            "rios": int(moved * share) // 131072,
            "wbytes": 0,
            "wios": 0,
        },
        "disk": {
            "reads": int(moved * share) // 131072,
            "sectors_read": int(moved * share) // 512,
            "io_ticks": busy,
        },
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
    fault = {
        "vm_flags": 209,
        "vm_flag_names": ["VM_READ"],
        "fault_flags": 4692,
        "fault_flag_names": [],
    }
    counts = [{"pages": pages, "count": int(1000 * share / pages)} for pages in (8, 16, 32)]
    return {
        "t": CLOCK + t,
        "wall": wall + t,
        "lost_events": 0,
        "filemap_fault": [{**fault, "count": int(1000 * share)}],
        "page_cache_ra_order": counts,
    }
