"""Run folders whose files a test changes: limits and digests that agree again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from analysis.data.baseline import baseline_sha256
from pagecage.model.json_codec import Json
from pagecage.model.record import Record

_DEVICE_FIGURES = (
    *("device_read_bytes", "device_reads", "device_bytes_per_read", "device_write_bytes"),
    *("amplification", "io_stalled_seconds"),
)


def with_limits_of(document: Mapping[str, Any], records: Iterable[Record]) -> Json:
    """Return a plan whose trials have the limits that their records requested."""
    requested = {record.trial_id: dict(record.cage.requested or {}) for record in records}
    trials = [
        {**trial, "cage": {**trial["cage"], "properties": requested[trial["trial_id"]]}}
        for trial in document["trials"]
    ]
    return {**document, "trials": trials}


def edit(path: Path, change: Callable[[Json], object]) -> None:
    """Change the object in a JSON file, or each object of a `.jsonl`; a plan loses its digest."""
    texts = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    objects = [json.loads(text) for text in texts]
    for data in objects:
        change(data)
        if path.name == "plan.json":
            data.pop("plan_sha256", None)
    path.write_text("".join(json.dumps(data, separators=(",", ":")) + "\n" for data in objects))


def drop_digests(folder: Path) -> None:
    """Remove the digests of a run's records, as those of older versions are stored."""
    edit(folder / "records.jsonl", lambda record: record.pop("record_sha256", None))


def drop_device_figures(record: Json) -> None:
    """Remove the figures that counters give, from a record whose counters a test replaces."""
    for name in _DEVICE_FIGURES:
        record["response"].pop(name, None)


def resealed(baseline: Mapping[str, Any]) -> Json:
    """Return a changed baseline with the digest of what it has now."""
    return {**baseline, "baseline_sha256": baseline_sha256(baseline)}
