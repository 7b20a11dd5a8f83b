"""Changes of the records of a built run (tests/fixtures/runs.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pagecage.model.json_codec import Json
from tests.fixtures.runs import Change


def where(levels: Mapping[str, str], change: Change, repeat: int | None = None) -> Change:
    """Return the change of the records with these levels, and of one repeat if it is given."""

    def changed(record: Json) -> None:
        if levels.items() <= record["treatment"].items() and repeat in (None, record["repeat"]):
            change(record)

    return changed


def updated(**values: Any) -> Change:
    """Return a change that replaces these keys of a record."""
    return lambda record: record.update(values)


def responding(**figures: float) -> Change:
    """Return a change that gives these figures to every trial that has some."""

    def change(record: Json) -> None:
        if record["response"]:
            record["response"] |= figures

    return change


def seconds(*by_repeat: float) -> Change:
    """Return a change that gives the trials of each repeat a time."""
    return lambda record: responding(full_pass_seconds=by_repeat[record["repeat"] - 1])(record)


def warm(record: Json) -> None:
    """Let the file be in the cache before the trial, which is excluded for it."""
    record["cache"]["resident_bytes_before"] = 4096
