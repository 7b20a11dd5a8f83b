"""Frozen values as JSON and back, checked by type, pattern and bounds."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import IO, Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from pagecage.errors import PagecageError

DEFINITION = re.compile(r"[a-z0-9][a-z0-9-]{0,60}")
"""The stem of an experiment's or a cage's file."""
EXPERIMENT = re.compile(r"[a-z0-9][a-z0-9-]{0,199}")
"""An experiment in a plan; that of a replay has the program's name."""
RUN_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+=-]{0,239}")
TRIAL_ID = re.compile(r"[a-z0-9][A-Za-z0-9_-]{0,149}")
HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
DISK = re.compile(r"[a-z][a-z0-9]{0,10}")
"""A disk that a cage names; part of a serial number of 20 bytes in the guest (virtio-blk)."""
COLLECTOR = re.compile(r"[a-z][a-z0-9_]{0,30}")
"""A collector of a definition: the beginning of its responses, and the stem of its trace."""
TRACE = re.compile(r"[a-z][a-z0-9_-]{0,60}\.[a-z]{1,8}")
"""The file of a collector. trace_names() has those that a trial can have."""
TEXT = re.compile(r"[^\x00-\x1f\x7f]{1,1000}")
"""A level, a factor, or the name of a cage, which is shown and part of no path."""
WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,60}")
"""A phase, or the name of a setting."""
SIZE = re.compile(r"[a-z]{1,20}|[0-9][0-9.]{0,20}([KMGT]i|[kMG])?B")
"""A size of a definition, or the bytes of a dataset that fits a time."""
BOOT_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
STATE_ID = re.compile(r"[0-9a-f]{1,64}(-[0-9]{1,20})?")
SHA256 = re.compile(r"[0-9a-f]{64}")
MOST_ATTEMPTS = 10_000
"""Attempts at one trial."""
KEYS_HINT = "docs/FORMAT.md lists the keys"


def is_identifier(value: Any, pattern: re.Pattern[str]) -> bool:
    """Return whether a value of a file or a frame is text of this pattern."""
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def is_attempt(value: Any) -> bool:
    """Return whether a value is the number of an attempt, from 1."""
    return type(value) is int and 1 <= value <= MOST_ATTEMPTS


def require_identifiers(
    data: JsonView, patterns: Mapping[str, re.Pattern[str]], where: str
) -> None:
    """Raise PagecageError for a value that does not have its key's pattern; None is accepted."""
    for key, pattern in patterns.items():
        value = data.get(key)
        if value is not None and not is_identifier(value, pattern):
            shown = repr(value)[:80]
            reason = f"{where}: {key!r} is {shown}, which is not an identifier"
            raise PagecageError(reason, KEYS_HINT)


def require_treatment(treatment: Any, where: str) -> None:
    if not isinstance(treatment, Mapping) or not all(
        is_identifier(word, TEXT) for pair in treatment.items() for word in pair
    ):
        raise PagecageError(f"{where}: 'treatment' does not hold levels by factor", KEYS_HINT)


MOST_LINE_BYTES = 8 << 20
"""The longest line of a file of JSON lines: a record with what the controller adds to it."""
OMITTED = {"omitted": True}
"""Metadata of a field whose key is left out with its default, as in files of earlier versions."""
T = TypeVar("T")
Json = dict[str, Any]
"""An object of JSON, to be written."""
JsonView = Mapping[str, Any]
"""An object of JSON that is only read: facts of a host, a plan, counters of the kernel."""
_SCALARS: Mapping[type, tuple[type, ...]] = {
    int: (int,),
    float: (int, float),
    str: (str,),
    bool: (bool,),
}


@dataclass(frozen=True)
class Section:
    """A part of a record; `present` names its keys in JSON, since an absent key reads as None."""

    present: frozenset[str] = field(default=frozenset(), repr=False, compare=False, kw_only=True)

    def __bool__(self) -> bool:
        """True if the JSON has any key."""
        return bool(self.present)


def from_json(kind: type[T], data: Any, where: str = "") -> T:
    """Return data as a value of `kind`: a dataclass, mapping, tuple, union with None, or scalar.

    `where` is the key path of the data in messages. Unknown keys of a section are ignored: older
    versions wrote some. Raises PagecageError naming the key for an unknown or missing key, or for a
    value of another type.
    """
    value: T = _reader(cast(Hashable, kind))(data, where)
    return value


def from_line(line: bytes | str) -> Any:
    """Return the data of a line of JSON. Raises ValueError, also for NaN and deep nesting."""
    try:
        return json.loads(line, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def lines_of(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file, and only the beginning of a line that is too long."""
    return iter(lambda: file.readline(MOST_LINE_BYTES + 1), b"")


def from_lines(
    lines: Iterable[bytes], where: str, path: str, first: int = 1
) -> Iterator[tuple[str, Any]]:
    """Yield place and data of lines, the first of which has this number.

    A last line that a kill has cut off is skipped: it has no newline. Raises PagecageError with the
    number of any other damaged line.
    """
    for number, line in enumerate(lines, start=first):
        place, is_cut_off = f"{where}:{number}", not line.endswith(b"\n")
        if line.strip() == b"":
            continue
        try:
            data = from_line(line) if len(line) <= MOST_LINE_BYTES else None
        except ValueError:
            if is_cut_off and (line.startswith(_BEGINNING[: len(line)]) or not _is_text(line)):
                continue
            hint = f"restore the file; or drop what this line had: sed -i {number}d {path}"
            raise PagecageError(f"{place} is damaged: it is not a line of JSON", hint) from None
        if data is None:
            raise PagecageError(f"{place} is longer than {MOST_LINE_BYTES >> 20} MiB", KEYS_HINT)
        yield place, data


_BEGINNING = b'{"'


def _is_text(line: bytes) -> bool:
    """Return whether the line is text. After a power failure, file systems leave other bytes."""
    try:
        return line.decode().isprintable()
    except UnicodeDecodeError:
        return False


def to_json(value: Any) -> Any:
    """Return the plain data of a value that `from_json` returned."""
    if type(value) in _PLAIN:  # nine of ten values of a record
        return value
    if is_dataclass(value) and not isinstance(value, type):
        kind: Any = type(value)
        present = value.present if isinstance(value, Section) else _names(kind)
        items = [(name, getattr(value, name)) for name in _names(kind) if name in present]
        omitted = _omitted(kind)
        return {n: to_json(item) for n, item in items if n not in omitted or item != omitted[n]}
    if isinstance(value, Mapping):
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    return value


def _wrong_kind(where: str) -> PagecageError:
    return PagecageError(f"{where!r} is of the wrong kind", KEYS_HINT)


_PLAIN = frozenset((str, int, float, bool, type(None)))
Reader = Callable[[Any, str], Any]


@cache
def _reader(kind: Any) -> Reader:
    """Return the reader of a type; hints are resolved once, for emulated CPUs."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return lambda data, _where: data
    if origin in (Union, UnionType):
        [kind] = [argument for argument in arguments if argument is not NoneType]
        inner = _reader(kind)
        return lambda data, where: None if data is None else inner(data, where)
    if origin is tuple:
        return _tuple_reader(_reader(arguments[0]))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping_reader(_reader(arguments[1]))
    if isinstance(kind, type) and is_dataclass(kind):
        return _dataclass_reader(kind)
    allowed = _SCALARS[kind]

    def read(data: Any, where: str) -> Any:
        if not isinstance(data, allowed) or (isinstance(data, bool) and kind is not bool):
            raise _wrong_kind(where)
        return data

    return read


def _tuple_reader(inner: Reader) -> Reader:
    def read(data: Any, where: str) -> tuple[Any, ...]:
        if not isinstance(data, (list, tuple)):
            raise _wrong_kind(where)
        return tuple(inner(item, where) for item in data)

    return read


def _mapping_reader(inner: Reader) -> Reader:
    def read(data: Any, where: str) -> JsonView:
        if not isinstance(data, Mapping):
            raise _wrong_kind(where)
        return {key: inner(item, _below(where, key)) for key, item in data.items()}

    return read


def _dataclass_reader(kind: type) -> Reader:
    hints = get_type_hints(kind)
    names = _names(kind)
    readers = {name: _reader(hints[name]) for name in names}
    required = {
        one.name
        for one in fields(kind)
        if one.name in readers and one.default is MISSING and one.default_factory is MISSING
    }
    is_section = issubclass(kind, Section)

    def read(data: Any, where: str) -> Any:
        if not isinstance(data, Mapping):
            raise _wrong_kind(where)
        unknown, missing = sorted(data.keys() - readers.keys()), sorted(required - data.keys())
        if unknown and not is_section:
            raise PagecageError(f"unknown key {_below(where, unknown[0])!r}", KEYS_HINT)
        if missing:
            raise PagecageError(f"{_below(where, missing[0])!r} is missing", KEYS_HINT)
        values = {
            key: readers[key](item, _below(where, key))
            for key, item in data.items()
            if key in readers
        }
        return kind(**values, present=frozenset(values)) if is_section else kind(**values)

    return read


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(one.name for one in fields(kind) if one.name != "present")


@cache
def _omitted(kind: Any) -> JsonView:
    return {one.name: one.default for one in fields(kind) if one.metadata == OMITTED}


def _below(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key
