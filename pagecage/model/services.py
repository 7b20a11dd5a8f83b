"""A service and its load, and the metrics in the load's output."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

NAME = re.compile(r"[a-z][a-z0-9_]*")
"""The names that responses may have. The name's suffix is the unit: `_seconds`, `_ms`, `_us`."""
_PATH = re.compile(r"\.[A-Za-z_][A-Za-z0-9_-]*|\[-?[0-9]{1,9}\]|\[\"[^\"]*\"\]")
_TIMES = ("_seconds", "_ms", "_us", "_ns")
_WORSE_IF_HIGHER = re.compile(r"(^|_)(latency|lat|errors?|fail(s|ed|ures?)|timeouts?|retries|p\d+)")
_FLAGS = re.MULTILINE
_BEGINNING = re.compile(r"^[ \t]*([{\[])", _FLAGS)
_SHOWN = 40


class MetricMissing(Exception):
    """The output has no such figure. The message completes "the output has"."""


@dataclass(frozen=True)
class MetricPattern:
    """A figure in the output of a program.

    `pattern` is a regular expression with one group, or a JSON path that begins with `$`. The last
    match counts, or the last JSON document that has a number there. `higher_is_better` decides
    where a curve of it has its knee; None leaves that to the name.
    """

    pattern: str
    higher_is_better: bool | None = None

    @property
    def is_path(self) -> bool:
        """True if the pattern is a JSON path: no regular expression that begins so ever matches."""
        return self.pattern.startswith(("$.", "$["))

    def value(self, name: str, output: str) -> float:
        """Return the figure of this name. Raises MetricMissing if the output has none."""
        read = _of_json if self.is_path else _of_text
        return read(name, self.pattern, output)


def wrong_pattern(pattern: str) -> str | None:
    """Return the reason why this is not the pattern of a metric; None if it is."""
    if pattern.startswith(("$.", "$[")):
        return None if _keys(pattern) else f"{pattern!r} is not a JSON path, as $.latency.p99 is"
    try:
        groups = re.compile(pattern, _FLAGS).groups
    except (re.error, OverflowError, RecursionError) as error:
        return f"{pattern!r} is not a regular expression: {error}"
    if groups != 1:
        return f"{pattern!r} has {groups or 'no'} groups; one group in ( ) marks the figure"
    return None


def is_better_if_higher(name: str, pattern: MetricPattern | None = None) -> bool:
    """Return whether more of this metric is better; a time, a latency or an error is not."""
    if pattern is not None and pattern.higher_is_better is not None:
        return pattern.higher_is_better
    return not (name.endswith(_TIMES) or _WORSE_IF_HIGHER.search(name))


def read_metrics(
    patterns: Mapping[str, MetricPattern], output: str
) -> tuple[dict[str, float], str | None]:
    """Return the figures by name, and a phrase about the first that is missing, or None."""
    found: dict[str, float] = {}
    missing: str | None = None
    for name, pattern in patterns.items():
        try:
            found[name] = pattern.value(name, output)
        except MetricMissing as error:
            missing = missing or str(error)
    return found, missing


def _of_text(name: str, pattern: str, output: str) -> float:
    texts = [match[1] for match in re.finditer(pattern, output, _FLAGS)]
    if not texts:
        raise MetricMissing(f"no match for {name!r}")
    return _number(name, texts[-1])


def _number(name: str, text: str | None) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise MetricMissing(f"{(text or '')[:_SHOWN]!r} for {name!r}, which is not a number")
    return value


def _of_json(name: str, path: str, output: str) -> float:
    keys = _keys(path) or []
    found = (reduce(_item, keys, document) for document in _documents(output))
    numbers = [one for one in found if isinstance(one, int | float) and not isinstance(one, bool)]
    if not numbers:
        raise MetricMissing(f"no number at {path} for {name!r}")
    return _number(name, str(numbers[-1]))


def _keys(path: str) -> list[str | int] | None:
    parts = _PATH.findall(path[1:])
    if not parts or "".join(parts) != path[1:]:
        return None
    texts = {".": slice(1, None), '["': slice(2, -2)}
    inner = [texts.get(part[0], texts.get(part[:2])) for part in parts]
    return [part[i] if i else int(part[1:-1]) for part, i in zip(parts, inner, strict=True)]


def _item(found: Any, key: str | int) -> Any:
    if isinstance(key, int) and isinstance(found, list):
        return found[key] if -len(found) <= key < len(found) else None
    return found.get(key) if isinstance(found, dict) else None


def _documents(output: str) -> Iterator[Any]:
    """Yield the JSON objects and arrays that begin at the start of a line."""
    decoder, end = json.JSONDecoder(), 0
    for start in (match.start(1) for match in _BEGINNING.finditer(output)):
        if start >= end:
            with suppress(ValueError, RecursionError):
                document, end = decoder.raw_decode(output, start)
                yield document


STOP_SIGNALS = ("TERM", "INT", "QUIT", "HUP", "KILL")


@dataclass(frozen=True)
class ServiceSpec:
    """The load of a server, and the part of it that is measured.

    The load runs outside the cage. It runs for `warm_up_seconds` first and is then ended; after
    `settle_seconds` it runs again, and is measured from its start to its exit. `metrics` are
    figures in its standard output, by response. The server has `ready_timeout_seconds` to serve
    (None: the trial's timeout), and is ended by `stop_signal`. Its other settings are those of a
    command.
    """

    load: tuple[str, ...]
    metrics: Mapping[str, MetricPattern] = field(default_factory=dict)
    warm_up_seconds: float = 0.0
    settle_seconds: float = 0.0
    ready_timeout_seconds: float | None = None
    stop_signal: str = STOP_SIGNALS[0]


OWN_RESPONSES = ("ready_seconds", "wall_seconds")
"""Responses of every service: the time until it serves, and the length of the measured part."""
