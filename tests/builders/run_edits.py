"""Run folders whose files a test changes: limits and digests that agree again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from analysis.data.baseline import baseline_sha256
from pagecage.model.record import Record

_DEVICE_FIGURES = (
    "device_read_bytes",
    "device_reads",
    "device_bytes_per_read",
    "device_write_bytes",
    "amplification",
    "io_stalled_seconds",
)


def with_limits_of(document: Mapping[str, Any], records: Iterable[Record]) -> dict[str, Any]:
    """Return a plan whose trials have the limits that their records requested."""
    requested = {record.trial_id: dict(record.cage.requested or {}) for record in records}
    trials = [
        {**trial, "cage": {**trial["cage"], "properties": requested[trial["trial_id"]]}}
        for trial in document["trials"]
    ]
    return {**document, "trials": trials}


def drop_digests(folder: Path) -> None:
    """Remove the digests of a run's records, as those of older versions are stored."""
    path = folder / "records.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        row.pop("record_sha256", None)
    path.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))


def drop_device_figures(record: dict[str, Any]) -> None:
    """Remove the figures that counters give, from a record whose counters a test replaces."""
    for name in _DEVICE_FIGURES:
        record["response"].pop(name, None)


def resealed(baseline: Mapping[str, Any]) -> dict[str, Any]:
    """Return a changed baseline with the digest of what it has now."""
    return {**baseline, "baseline_sha256": baseline_sha256(baseline)}
