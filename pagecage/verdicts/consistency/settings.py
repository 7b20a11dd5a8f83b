"""Contradictions between a disk's queue settings before and after the measured part.

They belong to the disk, so another process, or a run of another user, may change them.
"""

from __future__ import annotations

from collections.abc import Iterator

from pagecage.model.record import Record
from pagecage.model.record_sections import DeviceEvidence


def setting_contradictions(record: Record) -> Iterator[str]:
    """Yield a sentence for each queue setting that changed; none for an older record."""
    yield from _changed(record.device)
    for other in record.disks.values():
        yield from _changed(other.device)


def _changed(device: DeviceEvidence) -> Iterator[str]:
    before, after = device.queue_settings or {}, device.queue_settings_after or {}
    for name in before.keys() & after.keys():
        if before[name] != after[name]:
            yield (
                f"{name} of {device.name} was {before[name]} before the measured part and"
                f" {after[name]} at its end"
            )
