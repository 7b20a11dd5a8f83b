"""Records of trials: one JSON line each, with raw results. docs/FORMAT.md defines the keys."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from types import NoneType
from typing import Any

from pagecage.errors import PagecageError
from pagecage.model.record_v1 import upgrade_record

RECORD_VERSION = 2
OUTCOMES = (
    "ok", "oom_killed", "timed_out", "failed", "wrong_answer", "not_prepared", "requirement_missed", "interrupted",
)  # fmt: skip
# Trials with these outcomes are complete; `--resume` repeats the others.
FINAL_OUTCOMES = frozenset({"ok", "oom_killed", "timed_out", "wrong_answer", "requirement_missed"})


@dataclass(frozen=True)
class Record:
    """One trial's record.

    Mappings have kernel counters under the kernel's keys. None means unknown, never 0.
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
    phases: tuple[Mapping[str, Any], ...] = ()
    boot_id: str | None = None
    state_id: str | None = None
    restore_seq: int | None = None
    emulated: bool | None = None
    response: Mapping[str, float | None] = field(default_factory=dict)
    measured: Mapping[str, float] | None = None
    samples: tuple[Mapping[str, Any], ...] = ()
    counters: Mapping[str, Any] = field(default_factory=dict)
    outer_host: Mapping[str, Any] | None = None
    cage: Mapping[str, Any] = field(default_factory=dict)
    cache: Mapping[str, Any] = field(default_factory=dict)
    device: Mapping[str, Any] = field(default_factory=dict)
    machine_memory: Mapping[str, Any] = field(default_factory=dict)
    dirty_limits: Mapping[str, Any] = field(default_factory=dict)
    workload: Mapping[str, Any] = field(default_factory=dict)
    exit: Mapping[str, Any] = field(default_factory=dict)
    collectors: Mapping[str, Any] = field(default_factory=dict)
    missed_requirements: tuple[Mapping[str, str], ...] = ()
    traces: Mapping[str, str] = field(default_factory=dict)
    harness: Mapping[str, Any] = field(default_factory=dict)
    record_version: int = RECORD_VERSION

    @property
    def is_final(self) -> bool:
        """True if the trial is not repeated: it is complete or its command failed by itself."""
        return self.outcome in FINAL_OUTCOMES or self.is_programs_own_failure

    @property
    def is_programs_own_failure(self) -> bool:
        """True if a replayed command failed by itself, which is a result and not a host's fault."""
        return self.outcome == "failed" and self.exit.get("ended_by_itself") is True


_FIELDS = frozenset(f.name for f in fields(Record))


def record_to_json(record: Record) -> dict[str, Any]:
    """Return the record as JSON data."""
    return asdict(record)


def record_from_json(data: Mapping[str, Any], where: str = "record") -> Record:
    """Return the record of JSON data; keys of version 1 are renamed.

    Raises PagecageError, which names `where`, for an unknown key, an unknown outcome or a newer
    version.
    """
    if not isinstance(data, dict) or not isinstance(data.get("record_version"), int):
        raise PagecageError(f"{where} is not a pagecage record", _HINT)
    if data["record_version"] == 1:
        data = upgrade_record(data)
    unknown = sorted(set(data) - _FIELDS)
    if data["record_version"] > RECORD_VERSION:
        raise PagecageError(f"{where} has format version {data['record_version']}", "use a newer pagecage to read it")
    if unknown or data.get("outcome") not in OUTCOMES:
        reason = f"unknown key {unknown[0]!r}" if unknown else f"unknown outcome {data.get('outcome')!r}"
        raise PagecageError(f"{where} is not a pagecage record: {reason}", _HINT)
    _check_types(data, where)
    lists = {key: tuple(data[key]) for key in ("phases", "samples", "missed_requirements") if key in data}
    try:
        return Record(**{**data, **lists})
    except TypeError as error:
        raise PagecageError(f"{where} is not a pagecage record: {error}", _HINT) from None


_TABLES = frozenset({
    "treatment", "response", "counters", "cage", "cache", "device", "machine_memory", "workload", "exit", "collectors",
    "traces", "harness",
})  # fmt: skip
_LISTS = frozenset({"phases", "samples", "missed_requirements"})
_NUMBERS = frozenset({"repeat", "block", "position", "attempt"})
_TEXTS = frozenset({"run_id", "plan_sha256", "host", "experiment", "trial_id", "phase"})
_VALUES: Mapping[str, tuple[type, ...]] = {
    "treatment": (str,), "response": (int, float, NoneType), "collectors": (dict,), "traces": (str,),
}  # fmt: skip


def _check_types(data: Mapping[str, Any], where: str) -> None:
    """Check the types of a record's values, except for counters. Raises PagecageError."""
    kinds: tuple[tuple[frozenset[str], type], ...] = ((_TABLES, dict), (_LISTS, list), (_NUMBERS, int), (_TEXTS, str))
    wrong = {key for keys, kind in kinds for key in keys & data.keys() if not isinstance(data[key], kind)}
    wrong |= {key for key in _LISTS & data.keys() - wrong if not all(isinstance(one, dict) for one in data[key])}
    wrong |= {
        key for key, kind in _VALUES.items()
        if key in data.keys() - wrong and not all(isinstance(one, kind) for one in data[key].values())
    }  # fmt: skip
    measured = data.get("measured")
    if measured is not None and not (isinstance(measured, dict) and all(map(_is_number, map(measured.get, _MEASURED)))):
        wrong.add("measured")
    if wrong:
        raise PagecageError(f"{where} is not a pagecage record: {min(wrong)!r} has the wrong type", _HINT)


_MEASURED = ("start_wall_seconds", "start_monotonic_seconds", "seconds")
_HINT = "docs/FORMAT.md lists the keys"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def append_record(path: Path, record: Record) -> None:
    """Append one line and sync the file, so that the record survives a crash.

    If a killed writer has left an incomplete line, end that line first.
    """
    line = json.dumps(record_to_json(record), sort_keys=True, separators=(",", ":")).encode() + b"\n"
    with path.open("ab+") as file:
        if file.tell() and not _ends_with_newline(file.fileno(), file.tell()):
            line = b"\n" + line
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def _ends_with_newline(descriptor: int, size: int) -> bool:
    return os.pread(descriptor, 1, size - 1) == b"\n"


_BEGINNING = b'{"'


def _is_text(line: bytes) -> bool:
    """Return whether the line is text. After a power failure, file systems leave other bytes."""
    try:
        return line.decode().isprintable()
    except UnicodeDecodeError:
        return False


def read_records(path: Path) -> Iterator[Record]:
    """Yield the complete records of a file, in the order written.

    Lines that a kill has cut off are skipped. Raises PagecageError for a line of text that cannot
    be the beginning of a record.
    """
    if not path.exists():
        return
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise PagecageError(f"{path} cannot be read: {error.strerror}", f"ls -l {path}") from None
    where = f"{path.parent.name}/{path.name}"
    for number, line in enumerate(lines, start=1):
        try:
            data = json.loads(line)
        except (ValueError, RecursionError):
            if not line.startswith(_BEGINNING[: len(line)]) and _is_text(line):
                raise PagecageError(f"{where}:{number} is not a pagecage record", _HINT) from None
            continue
        yield record_from_json(data, f"{where}:{number}")


def with_outer_host(record: Record, outer_host: Mapping[str, Any] | None) -> Record:
    """Return the record with the controller's figures of the machine around the guest."""
    return replace(record, outer_host=outer_host)
