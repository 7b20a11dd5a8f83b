"""Runs of `pagecage memory` on a program whose working set is known."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pagecage.memory_search.rounds import with_rounds
from pagecage.model.json_codec import Json
from pagecage.model.record import Record, record_to_json
from pagecage.units import MIB
from pagecage.verdicts.evaluate import evaluate
from tests.fixtures.records import after, caged, make_record

RUN_ID = "20261121T100000Z-replay-true-vm"
WORKING_SET, USED = 40 * MIB, 100 * MIB
SECONDS = 10.0
RULE = {"floor_bytes": 4 * MIB, "slowdown": 0.05, "precision": 0.02}
RULE |= {"repeats": 1, "reference_repeats": 3}


def reference(repeat: int) -> Json:
    return {
        "trial_id": f"r{repeat}_own",
        "experiment": "test",
        "treatment": {"cage": "own"},
        "repeat": repeat,
        "block": repeat,
        "position": repeat - 1,
        "workload": {
            "program": "true",
            "arguments": [],
            "kind": "command",
            "min_memory_bytes": 0,
            "command": {"timeout_seconds": 3600.0, "data_paths": ["data"]},
        },
        "cage": {"name": "own", "properties": {"MemorySwapMax": 0}, "provenance": {}},
        "dataset": None,
        "collectors": [],
        "timeout_seconds": 3600.0,
    }


def document(**more: Any) -> Json:
    return {
        "run_id": RUN_ID,
        "experiment": "test",
        "host": "vm",
        "size": "default",
        "command": "pagecage memory own -- true",
        "repeats": 3,
        "definition": {
            "question": "How much memory does `true` need in own?",
            "response": "wall_seconds",
            "factors": {"cage": ["own"]},
            "levels": {},
            "sizes": {"default": {}},
            "claims": [],
            "findings": [],
        },
        "seed": 7,
        "trials": [reference(n) for n in (1, 2, 3)],
        "memory_search": {"rule": RULE, "has_second_opinion": True},
        **more,
    }


def recorded(trial: Mapping[str, Any]) -> Record:
    """A record of a program with a working set, and no noise."""
    limit = trial["cage"]["properties"].get("MemoryMax", USED)
    short = limit < WORKING_SET
    counters = after(
        seconds=SECONDS,
        refaults=50_000 if short else 0,
        peak=min(limit, USED),
        hits=limit < USED,
        memory_wait=0,
        io_wait=0,
    )
    limits = dict(trial["cage"]["properties"])
    return make_record(
        run_id=RUN_ID,
        trial_id=trial["trial_id"],
        treatment=trial["treatment"],
        response={"wall_seconds": SECONDS * (3 if short else 1)},
        counters=counters,
        cage=caged(limits),
    )


def run_all(plan: Mapping[str, Any]) -> dict[str, Record]:
    """Record the trials of a search one after the other, as a campaign does."""
    last: dict[str, Record] = {}
    while True:
        trials = with_rounds(plan, last, evaluate)["trials"]
        open_trials = [trial for trial in trials if trial["trial_id"] not in last]
        if not open_trials:
            return last
        last[open_trials[0]["trial_id"]] = recorded(open_trials[0])
        assert len(last) < 100


def stored(path: Path, last: Mapping[str, Record] | None = None, **more: Any) -> Path:
    """Write a run folder with these records, or with those of the whole search."""
    plan = document(**more)
    records = run_all(plan) if last is None else last
    path.mkdir(parents=True)
    (path / "plan.json").write_text(json.dumps(plan))
    lines = (json.dumps(record_to_json(record)) + "\n" for record in records.values())
    (path / "records.jsonl").write_text("".join(lines))
    return path
