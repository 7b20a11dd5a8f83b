"""A record as seen from another disk of its cage, so that every verdict on a disk applies to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pagecage.model.record import Record
from pagecage.model.record_sections import CacheEvidence


def on_disk(record: Record, name: str) -> Record:
    """Return the record with another disk's device, I/O limits and counters in place of the data's.

    It has no files and no figures of the workload, since those are not known by disk.
    """
    disk, counters = record.disks[name], record.counters
    return replace(
        record,
        device=disk.device,
        cage=disk.cage,
        counters=replace(
            counters,
            before=_moment_on_disk(counters.before, name),
            after=_moment_on_disk(counters.after, name),
        ),
        cache=CacheEvidence(),
        workload=replace(record.workload, end=None),
        disks={},
    )


def _moment_on_disk(moment: Mapping[str, Any] | None, name: str) -> Mapping[str, Any] | None:
    if moment is None:
        return None
    counted = (moment.get("disks") or {}).get(name) or {"device": None, "lower_device": None}
    return {**moment, **counted}


def disk_views(record: Record) -> dict[str, Record]:
    """Return the record as seen from each other disk, by name; empty for a cage of one disk."""
    return {name: on_disk(record, name) for name in record.disks}


def series_on_disk(series: Sequence[Mapping[str, Any]], name: str) -> list[Mapping[str, Any]]:
    """Return the sampler's rows with another disk's I/O; none for rows that lack the disk."""
    return [{**row, **row["disks"][name]} for row in series if name in row.get("disks", {})]
