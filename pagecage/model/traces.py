"""Paths and lines of the traces that a trial's collectors wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pagecage.errors import PagecageError
from pagecage.model.record import Record


def trace_path(run_path: Path, record: Record, collector: str) -> Path | None:
    """Return the path of a collector's trace of a trial; None if there is none.

    Raises PagecageError for a path outside the run's folder, because records may be untrusted.
    """
    relative = record.traces.get(collector)
    if relative and (Path(relative).is_absolute() or ".." in Path(relative).parts):
        raise PagecageError(
            f"{record.trial_id}: the trace {relative} lies outside its run",
            "restore the folder as it was recorded",
        )
    file = run_path / relative if relative else None
    return file if file and file.is_file() else None


def read_lines(run_path: Path, record: Record, collector: str) -> list[dict[str, Any]]:
    """Return the JSON lines of a trace.

    An incomplete line, left by a killed process, is skipped. A missing trace is empty.
    """
    file = trace_path(run_path, record, collector)
    rows = []
    for line in file.read_text().splitlines() if file else []:
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows
