"""Collectors that a definition brings along: programs that print JSON lines, bpftrace scripts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pagecage.model.identifiers import COLLECTOR

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


def own_collectors_to_json(collectors: Iterable[OwnCollector]) -> dict[str, Any]:
    """Return the key of a trial as JSON data; nothing without any, as in earlier plans."""
    data = [{**asdict(one), "command": list(one.command)} for one in collectors]
    return {"own_collectors": data} if data else {}


def own_collectors_from_json(data: Iterable[Mapping[str, Any]]) -> tuple[OwnCollector, ...]:
    """Return the collectors of JSON data."""
    return tuple(OwnCollector(**{**one, "command": tuple(one["command"])}) for one in data)
