"""Sentences about a simulated volume's restore from a snapshot and its events."""

from __future__ import annotations

from collections.abc import Iterator

from pagecage.model.simulation import VolumeEvent, VolumeSimulation
from pagecage.units import format_both_rates, format_bytes, format_microseconds, format_seconds


def event_notes(simulation: VolumeSimulation) -> Iterator[str]:
    """Yield a sentence for the restore, and one for each event."""
    restore = simulation.restore
    if restore:
        yield (
            f"The volume is restored from a snapshot: the first touch of each"
            f" {format_bytes(restore.block_bytes)} loads it at"
            f" {format_both_rates(restore.bytes_per_second)}."
        )
    for event in simulation.events:
        yield f"{_period(event)}, {_effect(event)}."


def _period(event: VolumeEvent) -> str:
    begin = f"From {format_seconds(event.from_seconds)}"
    if event.until_seconds is None:
        return begin
    return f"{begin} to {format_seconds(event.until_seconds)}"


def _effect(event: VolumeEvent) -> str:
    share = f"{100 * (event.share or 0):g} %"
    match event.kind:
        case "degrade":
            return f"the volume delivers {share} of its rates"
        case "delay":
            return f"{share} of the I/Os take {format_microseconds(event.latency_us or 0)} longer"
        case "pause":
            return "no I/O starts"
        case "fail":
            return f"{share} of the I/Os{_range(event)} fail with EIO"
        case _:
            return "the volume is detached and every I/O fails with EIO"


def _range(event: VolumeEvent) -> str:
    if event.first_byte is None and event.end_byte is None:
        return ""
    end = "the end" if event.end_byte is None else f"byte {event.end_byte}"
    return f" from byte {event.first_byte or 0} to before {end}"
