"""Page faults and read-ahead by treatment: flags, pages, orders and returned values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis.data.event_counts import UNTRACED, events_in_measured_part, traced_table
from analysis.data.load import Run
from analysis.formatting import treatment_label

_LEAST_SHARE = 0.01
"""Values in a smaller share of events come from a thread's start or end, and are left out."""


@dataclass(frozen=True)
class EventColumn:
    """A column: the probe, the key of its events, and the format of a value."""

    title: str
    probe: str
    key: str
    text: Callable[[int], str] = str


def _hexadecimal(word: int) -> str:
    return f"{word:X}"


COLUMNS = (
    EventColumn("vm_flags", "filemap_fault", "vm_flags", _hexadecimal),
    EventColumn("fault_flags", "filemap_fault", "fault_flags", _hexadecimal),
    EventColumn("pages", "filemap_fault", "ra_pages"),
    EventColumn("returned", "filemap_fault_return", "returned"),
    EventColumn("read-ahead pages", "page_cache_ra_order", "pages"),
    EventColumn("read-ahead order", "page_cache_ra_order", "order"),
)


def fault_event_table(run: Run) -> pd.DataFrame:
    """Return one row per treatment with a traced fault, and the frequent values of each column.

    Flags are hexadecimal, as bpftrace prints them with %x. A cell without an event is empty; so is
    a column that the trace of an older version lacks. Where the attached probes could not tell, the
    cell says so.
    """
    counts: dict[str, dict[str, Counter[int]]] = {}
    untraced: dict[str, set[str]] = {}
    for trial in run.trials:
        label = treatment_label(trial.record.treatment)
        of_treatment = counts.setdefault(label, {})
        for column in COLUMNS:
            found, table = Counter[Any](), traced_table(trial, column.probe, column.key)
            if table is None:
                untraced.setdefault(label, set()).add(column.title)
            else:
                found = events_in_measured_part(run, trial, table, _value_of(column.key))
                found.pop(None, None)
            of_treatment.setdefault(column.title, Counter()).update(found)
    rows = [
        {
            "treatment": name,
            **{
                column.title: _cell(column, found)
                or (UNTRACED if column.title in untraced.get(name, ()) else "")
                for column in COLUMNS
            },
        }
        for name, found in counts.items()
        if any(found.values())
    ]
    return pd.DataFrame(rows, columns=["treatment", *(column.title for column in COLUMNS)])


def _value_of(key: str) -> Callable[[Mapping[str, Any]], int | None]:
    return lambda entry: entry.get(key)


def _cell(column: EventColumn, found: Mapping[str, Counter[int]]) -> str:
    counter = found[column.title]
    least = _LEAST_SHARE * counter.total()
    return ", ".join(column.text(value) for value, n in counter.most_common() if n >= least)
