"""Paths and lines of the traces that a trial's collectors wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pagecage.errors import PagecageError
from pagecage.model.record import Record


def trace_path(run_path: Path, record: Record, collector: str) -> Path | None:
    """Where a collector's trace of one trial lies; None when there is none.

    Raises PagecageError for one outside the run's folder: records may come from anybody.
    """
    relative = record.traces.get(collector)
    if relative and (Path(relative).is_absolute() or ".." in Path(relative).parts):
        raise PagecageError(f"{record.trial_id}: the trace {relative} lies outside its run", "use the folder unmixed")
    file = run_path / relative if relative else None
    return file if file and file.is_file() else None


def read_lines(run_path: Path, record: Record, collector: str) -> list[dict[str, Any]]:
    """The JSON lines of a trace; a line that a kill cut off is skipped, a missing trace is empty."""
    file = trace_path(run_path, record, collector)
    rows = []
    for line in file.read_text().splitlines() if file else []:
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows
