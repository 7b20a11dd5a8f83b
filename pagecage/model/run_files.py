"""Files of a run's folder: plan, records and traces."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pagecage.errors import UNREADABLE, PagecageError, why_unreadable
from pagecage.model.collectors import TRACES
from pagecage.model.json_codec import (
    COLLECTOR,
    DISK,
    EXPERIMENT,
    HOST,
    KEYS_HINT,
    RUN_ID,
    SIZE,
    TEXT,
    TRIAL_ID,
    WORD,
    Json,
    JsonView,
    from_line,
    is_identifier,
    require_identifiers,
    require_treatment,
)
from pagecage.model.record import Record, TraceFile, upgrade_facts
from pagecage.model.trial import Trial
from pagecage.whole_files import document_sha256

MOST_TRACE_BYTES = 1 << 30
"""The longest file of a collector."""
_BUNDLE = "bundle.json"
"""The manifest of an unpacked bundle, whose files were compared with it (pagecage/bundle/)."""
_FIO_LOGS = ("bw", "iops", "lat", "clat", "slat")
_FIO = ("fio.json", "fio-job.fio", *(f"fio_{kind}.log" for kind in _FIO_LOGS))


Document = Mapping[str, Any]
"""The plan of a run, plan.json, or one of its trials."""


def trace_names(trial: Trial) -> frozenset[str]:
    """Return the names of all files that the collectors of a trial may leave."""
    names = {"sampler.jsonl", "credits.jsonl"}
    names |= {f"credits-{disk}.jsonl" for disk in trial.cage.disks}
    names |= {file for name in trial.collectors for file in TRACES.get(name, ())}
    names |= {f"{one.name}.jsonl" for one in trial.own_collectors}
    names |= {"load.txt"} if trial.workload.kind == "service" else set()
    return frozenset(names | set(_FIO if trial.workload.kind == "fio" else ()))


def trace_path(run_path: Path, record: Record, collector: str) -> Path | None:
    """Return the path of a trial's trace; None without. Raises PagecageError outside its run."""
    relative = record.traces.get(collector)
    file = run_path / relative if relative else None
    if file is None or not file.is_file():
        return None
    if not file.resolve().is_relative_to(run_path.resolve()):
        reason = f"{record.trial_id}: the trace {relative} lies outside its run"
        raise PagecageError(reason, _RESTORE)
    if file.stat().st_size > MOST_TRACE_BYTES:
        reason = f"{record.trial_id}: the trace {relative} is longer than"
        raise PagecageError(f"{reason} {MOST_TRACE_BYTES >> 20} MiB", _RESTORE)
    return file


def read_lines(run_path: Path, record: Record, collector: str) -> list[Json]:
    """Return the whole JSON lines of a trace; none if it is missing."""
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

    Older records lack sizes and hashes. Traces from a bundle were compared with its manifest.
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


PLAN_VERSION = 1
"""The newest plan.json version that this pagecage reads."""
_KEYS = {
    "run_id": str,
    "experiment": str,
    "definition": dict,
    "host": str,
    "size": str,
    "seed": int,
    "trials": list,
    "command": str,
}
_TRIAL_KEYS = {"trial_id": str, "treatment": dict, "block": int}
_PATTERNS = {"run_id": RUN_ID, "experiment": EXPERIMENT, "host": HOST, "size": SIZE}
MOST_PLAN_BYTES = 256 << 20
"""The longest plan.json."""
MOST_TRIALS = 100_000
"""Trials of a plan."""
_RESTORE = "restore the folder as it was recorded"


def read_plan(path: Path) -> JsonView:
    """Return plan.json of a run folder. Raises PagecageError if it is invalid or too new."""
    file = path / "plan.json"
    try:
        if file.stat().st_size > MOST_PLAN_BYTES:
            raise PagecageError(f"{file} is longer than {MOST_PLAN_BYTES >> 20} MiB", _RESTORE)
        plan = from_line(file.read_bytes())
    except FileNotFoundError:
        reason = f"{path} is not a run folder: it has no plan.json"
        raise PagecageError(reason, "ls runs/") from None
    except UNREADABLE as error:
        message = f"{file} is not valid JSON: {why_unreadable(error)}"
        raise PagecageError(message, "repeat the run") from None
    version = plan.get("plan_version", PLAN_VERSION) if isinstance(plan, dict) else None
    if isinstance(plan, dict) and not isinstance(version, int):
        raise PagecageError(f"{file}: 'plan_version' is not an integer", KEYS_HINT)
    if isinstance(version, int) and version > PLAN_VERSION:
        reason = f"{file} has format version {version}"
        raise PagecageError(reason, "use a newer pagecage to read it")
    _check(plan, _KEYS, str(file))
    if not isinstance(plan.get("until_ci"), float | None):
        raise PagecageError(f"{file}: 'until_ci' is not a number", KEYS_HINT)
    _check_treatments(plan, file)
    _check_identifiers(plan, str(file))
    digest = plan_sha256(plan)
    if plan.get("plan_sha256", digest) != digest:
        raise PagecageError(f"{file} was changed after it was written", _RESTORE)
    return dict(plan)


def _check_identifiers(plan: JsonView, where: str) -> None:
    require_identifiers(plan, _PATTERNS, where)
    if len(plan["trials"]) > MOST_TRIALS:
        raise PagecageError(f"{where} has more than {MOST_TRIALS} trials", KEYS_HINT)
    ids = [trial["trial_id"] for trial in plan["trials"]]
    if len(set(ids)) < len(ids):
        raise PagecageError(f"{where} has two trials of one name", KEYS_HINT)
    for trial in plan["trials"]:
        require_identifiers(trial, {"trial_id": TRIAL_ID, "experiment": EXPERIMENT}, where)
        require_treatment(trial["treatment"], where)
        cage = _part(trial, "cage", dict, where)
        require_identifiers(cage, {"name": TEXT}, where)
        named = [(DISK, name) for name in _part(cage, "disks", dict, where)]
        named += [(WORD, name) for name in _part(trial, "collectors", list, where)]
        for one in _part(trial, "own_collectors", list, where):
            _check(one, {"name": str}, where)
            named.append((COLLECTOR, one["name"]))
        for pattern, name in named:
            require_identifiers({"name": name}, {"name": pattern}, where)


def _part(table: JsonView, key: str, kind: type, where: str) -> Any:
    value = table.get(key)
    if value is not None and not isinstance(value, kind):
        raise PagecageError(f"{where}: {key!r} is not of type {kind.__name__}", KEYS_HINT)
    return value or kind()


def plan_sha256(plan: JsonView) -> str:
    return document_sha256(plan, "plan_sha256")


def _check(table: Any, keys: Mapping[str, type], where: str) -> None:
    if not isinstance(table, dict):
        raise PagecageError(f"{where} is not a JSON object", KEYS_HINT)
    for key, kind in keys.items():
        if key not in table:
            raise PagecageError(f"{where} lacks {key!r}", KEYS_HINT)
        if not isinstance(table[key], kind):
            raise PagecageError(f"{where}: {key!r} is not of type {kind.__name__}", KEYS_HINT)


def require_factors(definition: Any, where: str) -> Mapping[str, Sequence[str]]:
    """Return a definition's levels by factor. Raises PagecageError without any."""
    factors = definition.get("factors") if isinstance(definition, dict) else None
    if not isinstance(factors, dict) or not all(
        isinstance(levels, list) and levels and all(is_identifier(level, TEXT) for level in levels)
        for levels in factors.values()
    ):
        raise PagecageError(f"{where}: its definition has no factors", KEYS_HINT)
    return factors


def _check_treatments(plan: JsonView, file: Path) -> None:
    factors = require_factors(plan["definition"], str(file))
    if not isinstance(plan["definition"].get("question"), str):
        raise PagecageError(f"{file}: its definition has no question", KEYS_HINT)
    for number, trial in enumerate(plan["trials"]):
        where = f"{file}: trial {number}"
        _check(trial, _TRIAL_KEYS, where)
        strange = set(trial["treatment"]) ^ set(factors)
        if strange or any(level not in factors[name] for name, level in trial["treatment"].items()):
            raise PagecageError(f"{where} has a treatment that is not in the definition", KEYS_HINT)
        _part(_part(trial, "cage", dict, where), "properties", dict, where)
        _part(trial, "files", int, where)
        if dataset := _part(trial, "dataset", dict, where):
            _check(dataset, {"size_bytes": int}, f"{where}: its dataset")


def read_facts(path: Path) -> tuple[JsonView, ...]:
    """Return the facts files of a run folder, by name. Raises PagecageError."""
    found = []
    for file in sorted((path / "facts").glob("*.json")):
        hint = f"rm {file}: facts do not affect results"
        try:
            facts = from_line(file.read_bytes())
        except UNREADABLE as error:
            reason = f"{file} is not valid JSON: {why_unreadable(error)}"
            raise PagecageError(reason, hint) from None
        if not isinstance(facts, dict):
            raise PagecageError(f"{file} does not hold facts", hint)
        found.append(upgrade_facts(facts))
    return tuple(found)


def check_records(path: Path, plan: JsonView, records: Sequence[Record]) -> None:
    """Raise PagecageError if there are no records, or records of another run."""
    file = f"{path}/records.jsonl"
    if not records:
        raise PagecageError(f"{path} has no record yet", f"pagecage run --resume {path}")
    planned = {trial["trial_id"]: trial["treatment"] for trial in plan["trials"]}
    for record in records:
        if record.experiment != plan["experiment"]:
            mixed = f"a record of {record.experiment} in a run of {plan['experiment']}"
            raise PagecageError(f"{file} mixes experiments: {mixed}", _RESTORE)
        if record.trial_id not in planned:
            reason = f"{file} has trial {record.trial_id}, which its plan lacks"
            raise PagecageError(reason, _RESTORE)
        if record.run_id != plan["run_id"]:
            raise PagecageError(f"{file} has a record of another run, {record.run_id}", _RESTORE)
        if dict(record.treatment) != planned[record.trial_id]:
            message = f"{file}: trial {record.trial_id} has another treatment than its plan"
            raise PagecageError(message, KEYS_HINT)
    _check_origin(file, plan, records)
    _check_attempts(file, records)


def _check_origin(file: str, plan: JsonView, records: Sequence[Record]) -> None:
    cages = {trial["trial_id"]: trial.get("cage") or {} for trial in plan["trials"]}
    for record in records:
        if record.plan_sha256 != plan.get("plan_sha256", record.plan_sha256):
            raise PagecageError(f"{file} has a record of another plan", _RESTORE)
        planned, requested = cages[record.trial_id].get("properties"), record.cage.requested
        if requested and planned is not None and dict(requested) != dict(planned):
            reason = f"{file}: trial {record.trial_id} has other limits than its plan"
            raise PagecageError(reason, _RESTORE)


def _check_attempts(file: str, records: Sequence[Record]) -> None:
    """Raise PagecageError unless the attempts of each trial are numbered from 1, each once."""
    attempts: dict[str, int] = {}
    has_digests = False
    for record in records:
        attempts[record.trial_id] = attempts.get(record.trial_id, 0) + 1
        if record.attempt != attempts[record.trial_id]:
            raise PagecageError(
                f"{file} has attempt {record.attempt} of trial {record.trial_id} in the place of"
                f" attempt {attempts[record.trial_id]}",
                _RESTORE,
            )
        if has_digests and record.record_sha256 is None:
            reason = f"{file}: the record of trial {record.trial_id} has lost its record_sha256"
            raise PagecageError(reason, _RESTORE)
        has_digests = has_digests or record.record_sha256 is not None
