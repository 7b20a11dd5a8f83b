"""Collectors that a definition brings along, and the lines that they print."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pagecage.model.json_codec import COLLECTOR, Json, JsonView, from_line

TRACES: Mapping[str, tuple[str, ...]] = {
    "iostat": ("iostat.json",),
    "sar": ("sar.bin", "sar.json"),
    "vmtouch": ("vmtouch.jsonl",),
    "bpftrace": ("bpftrace.jsonl",),
    "blocklat": ("blocklat.jsonl",),
    "perf-mem": ("perf-mem.txt",),
    "damon": ("damon.jsonl",),
}
"""The collectors of pagecage (pagecage/agent/collectors/), and the files that each may leave."""
RESERVED = ("sampler", "credits", "load", "fio")
"""Names of entries and files that pagecage writes itself."""


@dataclass(frozen=True)
class OwnCollector:
    """A program, or a bpftrace script, of the definition that runs beside a trial.

    `command` has {programs} for the folder of the definition's files; of a script it is its path.
    A trial counts without its data unless it is `required`. Lines are expected each
    `period_seconds`; 0 for lines that come irregularly. The workload waits for the first line at
    most `start_timeout_seconds`. It runs in `directory` (None: the agent's).
    """

    name: str
    command: tuple[str, ...]
    required: bool = False
    period_seconds: float = 1.0
    start_timeout_seconds: float = 10.0
    is_script: bool = False
    directory: str | None = None


def wrong_name(name: str, taken: Iterable[str]) -> str | None:
    """Return the reason why a collector cannot have this name, or None."""
    if not COLLECTOR.fullmatch(name):
        return f"{name!r} is not the name of a collector: small letters, digits and _, as in queue"
    if name in {*taken, *RESERVED}:
        return f"{name} is a collector of pagecage itself"
    return None


def clashing(names: Iterable[str]) -> tuple[str, str] | None:
    """Return two names whose responses could be equal, because one continues the other; or None."""
    ordered = sorted(names)
    pairs = ((a, b) for a in ordered for b in ordered if b.startswith(f"{a}_"))
    return next(pairs, None)


STATISTICS = ("mean", "last", "delta", "max")
"""Parts of the responses' names: NAME_mean_FIELD is the mean of a field over the measured part."""
MOST_FIELDS = 64
"""Fields of one collector that become responses: the first ones that it prints."""
SLACK_SECONDS = 1.0
"""A time stamp may be later than the line's arrival by this, and earlier than the start."""
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")
_DEEPEST = 8
"""Objects that are nested deeper have no fields."""
_SHOWN = 60


class LineError(Exception):
    """The line is not a JSON object. The message is the beginning of the line."""


@dataclass(frozen=True)
class FieldValues:
    """The numbers of one line by field, at `t` (CLOCK_MONOTONIC, in seconds)."""

    t: float
    values: Mapping[str, float]
    has_wrong_time: bool = False


def parse_line(text: str) -> Json:
    """Return the object of a line. Raises LineError for anything else, also for NaN."""
    try:
        data = from_line(text)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise LineError(repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"))
    return data


def field_values(line: JsonView, arrived: float, started: float) -> FieldValues:
    """Return the fields of a line of a program; a `t` of another clock does not count."""
    t = line.get("t")
    own = _number(t)
    others = {key: value for key, value in line.items() if key != "t"}
    values = dict(_flat(others))
    if own is not None and started - SLACK_SECONDS <= own <= arrived + SLACK_SECONDS:
        return FieldValues(own, values)
    return FieldValues(arrived, values, has_wrong_time=t is not None)


def script_values(line: JsonView, arrived: float) -> FieldValues | None:
    """Return the fields of a line of `bpftrace -f json`; None for one without figures."""
    kind, data = line.get("type"), line.get("data")
    if kind in ("map", "stats") and isinstance(data, dict):
        return FieldValues(
            arrived, dict(_flat({(k.removeprefix("@") or "map"): v for k, v in data.items()}))
        )
    if kind == "printf" and isinstance(data, str):
        try:
            return FieldValues(arrived, dict(_flat(parse_line(data))))
        except LineError:
            return None
    return None


def lost_events(line: JsonView) -> int:
    """Return the number of events that a line of `bpftrace -f json` reports as lost."""
    data = line.get("data")
    count = data.get("events") if isinstance(data, dict) else None
    return count if line.get("type") == "lost_events" and isinstance(count, int) else 0


def _flat(table: JsonView, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, float]]:
    for key, value in table.items():
        name = _NOT_IN_NAMES.sub("_", f"{prefix}{key}".lower()).strip("_")
        if isinstance(value, dict) and depth < _DEEPEST:
            yield from _flat(value, f"{name}_", depth + 1)
        elif (number := _number(value)) is not None and name:
            yield name, number


def _number(value: Any) -> float | None:
    """Return a finite number; None for anything else, also for true and false."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def fields_of(lines: Iterable[FieldValues]) -> tuple[str, ...]:
    """Return the names of the fields, in the order in which they were first printed."""
    return tuple(dict.fromkeys(name for line in lines for name in line.values))


def responses_of(
    name: str, lines: Sequence[FieldValues], begin: float, end: float
) -> dict[str, float | None]:
    """Return the responses, by NAME_STATISTIC_FIELD, over the lines from `begin` to `end`."""
    within = sorted((one for one in lines if begin <= one.t <= end), key=lambda one: one.t)
    return {
        f"{name}_{statistic}_{field}": _statistic(statistic, values)
        for field in fields_of(lines)[:MOST_FIELDS]
        for values in [[one.values[field] for one in within if field in one.values]]
        for statistic in STATISTICS
    }


def _statistic(statistic: str, values: Sequence[float]) -> float | None:
    if not values or (statistic == "delta" and len(values) < 2):
        return None
    found = _COMPUTED[statistic](values)
    return found if math.isfinite(found) else None


_COMPUTED: Mapping[str, Callable[[Sequence[float]], float]] = {
    "mean": lambda values: math.fsum(value / len(values) for value in values),
    "last": lambda values: values[-1],
    "delta": lambda values: values[-1] - values[0],
    "max": max,
}


def gaps(times: Sequence[float], begin: float, end: float, period_seconds: float) -> list[float]:
    """Return the silences between two moments that exceed the period by over a second."""
    if not period_seconds:
        return []
    moments = [begin, *sorted(t for t in times if begin <= t <= end), end]
    silences = (later - earlier for earlier, later in itertools.pairwise(moments))
    return [one for one in silences if one > period_seconds + SLACK_SECONDS]
