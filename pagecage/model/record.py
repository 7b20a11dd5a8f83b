"""The record of one attempt of a trial, which is what a run leaves."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pagecage.errors import PagecageError
from pagecage.model import record_sections as sections
from pagecage.model.json_codec import (
    BOOT_ID,
    EXPERIMENT,
    HOST,
    KEYS_HINT,
    RUN_ID,
    STATE_ID,
    TRIAL_ID,
    WORD,
    Json,
    JsonView,
    from_json,
    from_lines,
    is_attempt,
    lines_of,
    require_identifiers,
    require_treatment,
    to_json,
)
from pagecage.units import LEAST_PAGE_BYTES
from pagecage.whole_files import append_line

_CAGE_KEYS = {"carried": "fidelity", "limited": "driver_cgroup", "outside": "external"}
_EXIT_KEYS = {"said": "stderr_tail", "is_programs_own": "ended_by_itself", "outside": "escaped"}
_FIDELITY_KEYS = {"what": "aspect", "because": "reason"}
_QUEUE_KEYS = {"knobs": "queue_settings"}


def upgrade_record(data: JsonView) -> Json:
    """Return a record of version 1 with the keys of version 2; odd values stay unchanged."""
    new = {**data, "record_version": 2}
    for section, keys in (("cage", _CAGE_KEYS), ("exit", _EXIT_KEYS), ("device", _QUEUE_KEYS)):
        if section in new:
            new[section] = _renamed(new[section], keys)
    if isinstance(new.get("cage"), Mapping) and "fidelity" in new["cage"]:
        new["cage"]["fidelity"] = _each(new["cage"]["fidelity"], _FIDELITY_KEYS)
    for rows, key in (("missed_requirements", "requirement"), ("phases", "name")):
        if isinstance(new.get(rows), list):
            new[rows] = [
                {**row, key: "queue_settings"}
                if isinstance(row, Mapping) and row.get(key) == "knobs"
                else row
                for row in _each(new[rows], {"mend": "hint"} if key == "requirement" else {})
            ]
    if new.get("phase") == "knobs":
        new["phase"] = "queue_settings"
    return new


def upgrade_facts(facts: JsonView) -> Json:
    """Return facts of a host with today's keys. Facts have no version."""
    disk = {"disk": _renamed(facts["disk"], _QUEUE_KEYS)} if "disk" in facts else {}
    return {**facts, **disk}


def _renamed(section: Any, keys: Mapping[str, str]) -> Any:
    if not isinstance(section, Mapping):
        return section
    return {keys.get(key, key): value for key, value in section.items()}


def _each(rows: Any, keys: Mapping[str, str]) -> Any:
    return [_renamed(row, keys) for row in rows] if isinstance(rows, list) else rows


RECORD_VERSION = 2
MOST_RECORD_BYTES = 4 << 20
"""The longest record that an agent sends."""
# Trials with these outcomes are complete; `--resume` repeats the others.
FINAL_OUTCOMES = frozenset({"ok", "oom_killed", "timed_out", "wrong_answer", "requirement_missed"})
OUTCOMES = (
    *("ok", "oom_killed", "timed_out", "failed", "wrong_answer", "not_prepared"),
    *("requirement_missed", "interrupted"),
)


@dataclass(frozen=True)
class TraceFile:
    """Size and SHA-256 of a trace, as the controller wrote it."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Record:
    """One trial's record.

    Mappings have kernel counters under the kernel's keys. None means unknown, never 0. `disks` are
    those of the cage beside the data directory's, by name. `page_bytes` is the size of the host's
    pages; records without it are from x86-64, which has one size. `conditions` are those of the
    trial. `trace_files` has all traces by their path under the run's folder. `record_sha256` is set
    last.
    """

    run_id: str
    plan_sha256: str
    host: str
    experiment: str
    trial_id: str
    treatment: Mapping[str, str]
    repeat: int
    block: int
    position: int
    attempt: int
    outcome: str
    phase: str
    error: str | None = None
    phases: tuple[sections.PhaseTiming, ...] = ()
    boot_id: str | None = None
    state_id: str | None = None
    restore_seq: int | None = None
    emulated: bool | None = None
    page_bytes: int = LEAST_PAGE_BYTES
    response: Mapping[str, float | None] = field(default_factory=dict)
    measured: sections.MeasuredInterval | None = None
    samples: tuple[JsonView, ...] = ()
    counters: sections.CountersEvidence = sections.CountersEvidence()
    outer_host: sections.OuterHost | None = None
    cage: sections.CageEvidence = sections.CageEvidence()
    cache: sections.CacheEvidence = sections.CacheEvidence()
    data: sections.DataEvidence = sections.DataEvidence()
    device: sections.DeviceEvidence = sections.DeviceEvidence()
    disks: Mapping[str, sections.DiskEvidence] = field(default_factory=dict)
    machine: sections.MachineEvidence = sections.MachineEvidence()
    machine_memory: sections.MemoryEvidence = sections.MemoryEvidence()
    dirty_limits: sections.DirtyLimitsEvidence = sections.DirtyLimitsEvidence()
    workload: sections.WorkloadEvidence = sections.WorkloadEvidence()
    exit: sections.ExitEvidence = sections.ExitEvidence()
    load: sections.LoadEvidence = sections.LoadEvidence()
    collectors: Mapping[str, JsonView] = field(default_factory=dict)
    missed_requirements: tuple[sections.MissedEntry, ...] = ()
    conditions: tuple[str, ...] = ()
    traces: Mapping[str, str] = field(default_factory=dict)
    trace_files: Mapping[str, TraceFile] = field(default_factory=dict)
    harness: JsonView = field(default_factory=dict)
    record_sha256: str | None = None
    record_version: int = RECORD_VERSION

    @property
    def is_final(self) -> bool:
        """True if the trial is not repeated: it is complete or its command failed by itself."""
        return self.outcome in FINAL_OUTCOMES or self.is_programs_own_failure

    @property
    def is_programs_own_failure(self) -> bool:
        """True if a replayed command, or a service's load, failed by itself: a result."""
        ended = self.exit.ended_by_itself is True or self.load.ended_by_itself is True
        return self.outcome == "failed" and ended

    @property
    def failed_status(self) -> int:
        """The exit status of the program that failed by itself; 1 if its output was the failure."""
        if self.exit.ended_by_itself or not self.load.ended_by_itself:
            return self.exit.status or 0
        return self.load.status or 1


def record_to_json(record: Record) -> Json:
    return dict(to_json(record))


def record_from_json(data: JsonView, where: str = "record") -> Record:
    """Return the record of plain data, also of version 1. Raises PagecageError."""
    not_a_record = f"{where} is not a pagecage record"
    if not isinstance(data, dict) or not isinstance(data.get("record_version"), int):
        raise PagecageError(not_a_record, KEYS_HINT)
    if data["record_version"] > RECORD_VERSION:
        reason = f"{where} has format version {data['record_version']}"
        raise PagecageError(reason, "use a newer pagecage to read it")
    if data["record_version"] == 1:
        data = upgrade_record(data)
    if data.get("outcome") not in OUTCOMES:
        raise PagecageError(f"{not_a_record}: unknown outcome {data.get('outcome')!r}", KEYS_HINT)
    try:
        record = from_json(Record, data)
        name = repr(record.trial_id)[:80]
        require_identifiers(vars(record), _PATTERNS, name)
        require_treatment(record.treatment, name)
        if not is_attempt(record.attempt):
            raise PagecageError(f"{name}: attempt {record.attempt} is not a number from 1")
        for path in (*record.traces.values(), *record.trace_files):
            if not _TRACE_PATH.fullmatch(path):
                raise PagecageError(f"{name}: the trace {path[:80]!r} lies outside its run")
    except PagecageError as error:
        raise PagecageError(f"{not_a_record}: {error.message}", KEYS_HINT) from None
    return record


_PATTERNS = {
    "run_id": RUN_ID,
    "host": HOST,
    "experiment": EXPERIMENT,
    "trial_id": TRIAL_ID,
    "phase": WORD,
    "boot_id": BOOT_ID,
    "state_id": STATE_ID,
}
_TRACE_PATH = re.compile(
    rf"trials/{TRIAL_ID.pattern}\.[0-9]{{1,5}}/[A-Za-z0-9_+@=-][A-Za-z0-9._+@=-]{{0,99}}"
)


def record_digest(data: JsonView) -> str:
    content = {key: value for key, value in data.items() if key != "record_sha256"}
    return hashlib.sha256(_line(content)).hexdigest()


def sealed_line(data: JsonView) -> bytes:
    """Return a record's JSON data as a line, with its digest."""
    return _line({**data, "record_sha256": record_digest(data)})


def _line(data: JsonView) -> bytes:
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode()


def append_record(path: Path, record: Record) -> None:
    """Append one line and sync the file, so that the record survives a crash."""
    append_line(path, sealed_line(record_to_json(record)))


def read_records(path: Path) -> Iterator[Record]:
    """Yield the whole records of a file. Raises PagecageError with the number of a bad line."""
    if not path.exists():
        return
    try:
        with path.open("rb") as file:
            yield from records_of_lines(lines_of(file), path)
    except OSError as error:
        raise PagecageError(f"{path} cannot be read: {error.strerror}", f"ls -l {path}") from None


def records_of_lines(lines: Iterable[bytes], path: Path, first: int = 1) -> Iterator[Record]:
    """Yield the records of lines of a file, the first of which has this number."""
    for place, data in from_lines(lines, f"{path.parent.name}/{path.name}", str(path), first):
        written = data.get("record_sha256") if isinstance(data, dict) else None
        if written is not None and written != record_digest(data):
            changed = f"the record of trial {data.get('trial_id')} was changed"
            hint = "restore the folder as it was recorded"
            raise PagecageError(f"{place}: {changed} after it was written", hint)
        yield record_from_json(data, place)


def with_outer_host(record: Record, outer_host: JsonView | None) -> Record:
    """Return the record with counters of the machine around the guest, read by the controller."""
    found = from_json(sections.OuterHost, outer_host, "outer_host") if outer_host else None
    return replace(record, outer_host=found)
