"""Everything one trial produced, raw. One JSON line; docs/FORMAT.md defines every key."""

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
# A trial with one of these has its answer; the others are tried again by `--resume`.
FINAL_OUTCOMES = frozenset({"ok", "oom_killed", "timed_out", "wrong_answer", "requirement_missed"})


@dataclass(frozen=True)
class Record:
    """One trial's record. Mappings hold kernel counters under the kernel's own keys; None is "not known", never 0."""

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
        """Whether the trial need not be tried again: it has its answer, or its program failed by itself."""
        return self.outcome in FINAL_OUTCOMES or self.is_programs_own_failure

    @property
    def is_programs_own_failure(self) -> bool:
        """Whether somebody else's program ran and failed: that is what there is to tell, and no fault of the host."""
        return self.outcome == "failed" and self.exit.get("ended_by_itself") is True


_FIELDS = frozenset(f.name for f in fields(Record))


def record_to_json(record: Record) -> dict[str, Any]:
    """The record as plain data."""
    return asdict(record)


def record_from_json(data: Mapping[str, Any], where: str = "record") -> Record:
    """The inverse of `record_to_json`; raises PagecageError on an unknown key, outcome or a newer version.

    Keys of version 1 are renamed.
    """
    if not isinstance(data, dict) or not isinstance(data.get("record_version"), int):
        raise PagecageError(f"{where} is no pagecage record", "docs/FORMAT.md lists the keys")
    if data["record_version"] == 1:
        data = upgrade_record(data)
    unknown = sorted(set(data) - _FIELDS)
    if data["record_version"] > RECORD_VERSION:
        raise PagecageError(f"{where} has format version {data['record_version']}", "use a newer pagecage to read it")
    if unknown or data.get("outcome") not in OUTCOMES:
        what = f"unknown key {unknown[0]!r}" if unknown else f"unknown outcome {data.get('outcome')!r}"
        raise PagecageError(f"{where} is no pagecage record: {what}", "docs/FORMAT.md lists the keys")
    _check_kinds(data, where)
    lists = {key: tuple(data[key]) for key in ("phases", "samples", "missed_requirements") if key in data}
    try:
        return Record(**{**data, **lists})
    except TypeError as error:
        raise PagecageError(f"{where} is no pagecage record: {error}", "docs/FORMAT.md lists the keys") from None


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


def _check_kinds(data: Mapping[str, Any], where: str) -> None:
    """Refuse a record whose values are of another kind than the agent writes; counters are not looked into."""
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
        raise PagecageError(f"{where} is no pagecage record: {min(wrong)!r} is of the wrong kind", _KEYS_ARE)


_MEASURED = ("start_wall_seconds", "start_monotonic_seconds", "seconds")
_KEYS_ARE = "docs/FORMAT.md lists the keys"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def append_record(path: Path, record: Record) -> None:
    """Append one line and force it to the disk: what was recorded survives whatever ends the harness.

    A line that a killed writer left unfinished is closed first, so it cannot swallow this one.
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
    """Whether somebody may have written it; a file system that lost its power leaves other bytes."""
    try:
        return line.decode().isprintable()
    except UnicodeDecodeError:
        return False


def read_records(path: Path) -> Iterator[Record]:
    """Every whole record of a file, in the order written; a line cut off by a kill is skipped.

    Raises PagecageError for a line of text that is no beginning of a record: somebody else wrote it.
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
                raise PagecageError(f"{where}:{number} is no pagecage record", _KEYS_ARE) from None
            continue
        yield record_from_json(data, f"{where}:{number}")


def with_outer_host(record: Record, outer_host: Mapping[str, Any] | None) -> Record:
    """The record completed by what only the controller can see: the machine around the guest."""
    return replace(record, outer_host=outer_host)
