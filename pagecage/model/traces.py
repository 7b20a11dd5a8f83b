"""Names, paths, lines and checks of the traces that a trial's collectors wrote."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pagecage.errors import PagecageError
from pagecage.model.json_codec import from_line
from pagecage.model.record import Record, TraceFile
from pagecage.model.trial import Trial

MOST_TRACE_BYTES = 1 << 30
"""The longest file of a collector."""
_BUNDLE = "bundle.json"
"""The manifest of an unpacked bundle, whose files were compared with it (pagecage/bundle/)."""
_FILES: Mapping[str, tuple[str, ...]] = {
    "iostat": ("iostat.json",),
    "sar": ("sar.bin", "sar.json"),
    "perf-mem": ("perf-mem.txt",),
    **{name: (f"{name}.jsonl",) for name in ("vmtouch", "bpftrace", "blocklat", "damon")},
}
_FIO_LOGS = ("bw", "iops", "lat", "clat", "slat")
_FIO = ("fio.json", "fio-job.fio", *(f"fio_{kind}.log" for kind in _FIO_LOGS))


def trace_names(trial: Trial) -> frozenset[str]:
    """Return the names of all files that the collectors of a trial may leave."""
    names = {"sampler.jsonl", "credits.jsonl"}
    names |= {f"credits-{disk}.jsonl" for disk in trial.cage.disks}
    names |= {file for name in trial.collectors for file in _FILES.get(name, ())}
    names |= {f"{one.name}.jsonl" for one in trial.own_collectors}
    names |= {"load.txt"} if trial.workload.kind == "service" else set()
    return frozenset(names | set(_FIO if trial.workload.kind == "fio" else ()))


def trace_path(run_path: Path, record: Record, collector: str) -> Path | None:
    """Return the path of a collector's trace of a trial; None if there is none.

    Raises PagecageError for a path outside the run's folder, because records may be untrusted.
    """
    relative = record.traces.get(collector)
    file = run_path / relative if relative else None
    if file is None or not file.is_file():
        return None
    if not file.resolve().is_relative_to(run_path.resolve()):
        raise PagecageError(
            f"{record.trial_id}: the trace {relative} lies outside its run",
            "restore the folder as it was recorded",
        )
    return file


def read_lines(run_path: Path, record: Record, collector: str) -> list[dict[str, Any]]:
    """Return the JSON lines of a trace.

    An incomplete line, left by a killed process, is skipped. A missing trace is empty.
    """
    file = trace_path(run_path, record, collector)
    rows = []
    for line in file.read_text().splitlines() if file else []:
        try:
            rows.append(json.loads(line))
        except (ValueError, RecursionError):
            continue
    return rows


def check_traces(run_path: Path, record: Record) -> list[str]:
    """Return a sentence about each trace that is missing, cut off or altered since the record.

    Records of older versions do not have their traces' sizes and hashes, so nothing is said about
    them. Traces from a bundle were compared with its manifest, which has the hashes of redacted
    files.
    """
    left_out = _left_out_of_bundle(run_path) if record.trace_files else None
    if left_out is not None:
        lost = (path for path in record.trace_files if not (run_path / path).is_file())
        return [f"the trace {path} is missing" for path in lost if path not in left_out]
    found = (_damage(run_path / path, path, one) for path, one in record.trace_files.items())
    return [sentence for sentence in found if sentence]


def _damage(file: Path, path: str, written: TraceFile) -> str | None:
    try:
        with file.open("rb") as content:
            size_bytes = content.seek(0, os.SEEK_END)
            content.seek(0)
            if size_bytes != written.bytes:
                return f"the trace {path} has {size_bytes} of {written.bytes} bytes"
            is_altered = hashlib.file_digest(content, "sha256").hexdigest() != written.sha256
    except OSError:
        return f"the trace {path} is missing"
    return f"the trace {path} was altered" if is_altered else None


def _left_out_of_bundle(run_path: Path) -> set[str] | None:
    """Return the paths that a bundle left out; None for a run that is not from a bundle."""
    try:
        manifest = from_line((run_path / _BUNDLE).read_bytes())
        return {str(entry["path"]) for entry in manifest["left_out"]}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        return set()
