"""Diagnosis of a treatment: which limit of which disk holds it, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pagecage.model.cage import DATA_DISK
from pagecage.model.record import Record
from pagecage.units import KIB, format_rate
from pagecage.verdicts.advice import FULL, WORTH_NAMING, oom_kill_sentence, sentence_of
from pagecage.verdicts.counters import measured_seconds, on_disk
from pagecage.verdicts.io_demand import (
    DiskTraffic,
    Evidence,
    Traffic,
    TrafficSecond,
    format_iops,
    format_percent,
    least_seconds,
    second_by_second,
    traffic,
    traffic_of_others,
)
from pagecage.verdicts.limits import drained_after_seconds, requested_caps
from pagecage.verdicts.verdict import BindingVerdict
from pagecage.verdicts.windows import BindingLimit, Window, binding_limit, full_caps


@dataclass(frozen=True)
class HeldWindows:
    """The windows in which a limit of one disk held the program back, and their share of the time.

    The windows are those of that disk.
    """

    limit: BindingLimit
    windows: Sequence[Window]
    share: float


def record_of(record: Record, disk: str) -> Record:
    """Return the record as seen from a disk."""
    return record if disk == DATA_DISK else on_disk(record, disk)


def _held_by(
    windows: Sequence[Window], limits: Sequence[Sequence[BindingLimit]]
) -> list[HeldWindows]:
    """Return each limit with its windows, the longest first; a window may have several limits."""
    total = sum(one.seconds for one in windows)
    found = []
    for limit in dict.fromkeys(limit for one in limits for limit in one):
        held = [window for window, ones in zip(windows, limits, strict=True) if limit in ones]
        share = sum(one.seconds for one in held) / total
        found.append(HeldWindows(limit, [one.by_disk[limit.disk] for one in held], share))
    return sorted(found, key=lambda one: one.share, reverse=True)


def caps_that_held(windows: Sequence[Window]) -> list[HeldWindows]:
    """Return the caps of all disks that held the program back, the longest first."""
    return _held_by(windows, [full_caps(window) for window in windows])


def disk_limit(
    windows: Sequence[Window], name: str, requested: Mapping[str, Any]
) -> HeldWindows | None:
    """Return the limit of this kind that held for the longest time.

    None if the kind is not one of disks (iops, bandwidth, device).
    """
    found = caps_that_held(windows)
    if name == "device":
        found = _held_by(windows, [[binding_limit(window, requested)] for window in windows])
    return next((one for one in found if one.limit.name == name), None)


def other_caps(windows: Sequence[Window], named: str | None) -> Iterator[str]:
    """Yield a sentence per cap of another disk than the one named that held as well."""
    for held in caps_that_held(windows):
        if held.limit.disk != named and held.share >= WORTH_NAMING:
            yield _sentence(held)


def _sentence(held: HeldWindows) -> str:
    prop, disk = held.limit.property or "", held.limit.disk
    direction = "write" if "Write" in prop else "read"
    moved = traffic(direction, held.windows)
    if "IOPS" in prop:
        cap, rate = moved.iops_cap or 0.0, moved.ios_per_second
        amount = format_iops(cap)
    else:
        cap, rate = moved.bandwidth_cap or 0.0, moved.bytes_per_second
        amount = format_rate(cap)
    verb = "was full" if rate >= FULL * cap else "held the program back"
    where = f"{direction}s {'to' if direction == 'write' else 'from'} the {disk} disk"
    return f"The {amount} cap on {where} {verb} for {format_percent(held.share)} as well."


MUCH_FASTER = 0.8
"""Sequential reading is mentioned if it would take less than this share of the trial's time."""
DEFAULT_READ_AHEAD_KB = 128
"""Used if the record has no value (VM_READAHEAD_PAGES, include/linux/pagemap.h)."""


@dataclass(frozen=True)
class Diagnosis:
    """The binding limit, its `share` of the measured time, and the traffic in every second.

    `property` is the systemd property of the cap. `sequential_seconds` is the least time in which
    the caps allow the files to be read once, in order. `read` and `write` cover the whole measured
    part; they are None if it did not end. `disk` is the disk of the limit; None with one disk, or
    if the limit is not on a disk. `others` has the traffic of disks beside the data directory's.
    """

    bound_by: str
    sentence: str
    property: str | None = None
    disk: str | None = None
    share: float | None = None
    read: Traffic | None = None
    write: Traffic | None = None
    others: Mapping[str, DiskTraffic] = field(default_factory=dict)
    sequential_seconds: float | None = None
    seconds: tuple[TrafficSecond, ...] = ()


def diagnose(record: Record, binding: BindingVerdict, windows: Sequence[Window]) -> Diagnosis:
    """Return the diagnosis from a record, its binding verdict and its windows (may be empty)."""
    if not windows or not binding.shares:
        sentence = oom_kill_sentence(record) or binding.reason
        return Diagnosis(binding.verdict, sentence, share=binding.shares.get(binding.verdict))
    evidence = (_several_disks if record.disks else _one_disk)(record, binding, windows)
    sentences = [oom_kill_sentence(record) or sentence_of(evidence)]
    if record.disks:
        sentences += other_caps(windows, evidence.disk)
    return Diagnosis(
        bound_by=binding.verdict,
        sentence=" ".join(sentences),
        property=evidence.cap_property,
        disk=evidence.disk,
        share=evidence.share,
        read=traffic("read", windows),
        write=traffic("write", windows),
        others=traffic_of_others(windows),
        sequential_seconds=sequential_seconds(record),
        seconds=second_by_second(windows, record.cage.requested or {}),
    )


def _one_disk(record: Record, binding: BindingVerdict, windows: Sequence[Window]) -> Evidence:
    requested = record.cage.requested or {}
    held = [
        window for window in windows if binding_limit(window, requested).name == binding.verdict
    ]
    return Evidence(
        binding,
        _longest_cap(binding, windows, requested),
        record,
        held or windows,
        sequential_seconds=_much_faster_in_order(record),
        drained_seconds=drained_after_seconds(record),
    )


def _several_disks(record: Record, binding: BindingVerdict, windows: Sequence[Window]) -> Evidence:
    """Return the evidence as seen from the disk whose limit held the program back."""
    held = disk_limit(windows, binding.verdict, record.cage.requested or {})
    if held is None:
        return _one_disk(record, binding, windows)
    view = record_of(record, held.limit.disk)
    return Evidence(
        binding,
        held.limit.property,
        view,
        held.windows,
        sequential_seconds=_much_faster_in_order(view),
        drained_seconds=drained_after_seconds(view),
        disk=held.limit.disk,
        disk_share=held.share,
    )


def _longest_cap(
    binding: BindingVerdict, windows: Sequence[Window], requested: Mapping[str, Any]
) -> str | None:
    """Return the property of the verdict's kind that held the program back for the longest time."""
    limits = [binding_limit(window, requested) for window in windows]
    properties = {
        limit.property for limit in limits if limit.name == binding.verdict and limit.property
    }
    return max(properties, key=lambda prop: binding.caps.get(prop, 0.0), default=None)


def sequential_seconds(record: Record) -> float | None:
    """Return the least time to read all files once, in order, by whole read-ahead windows.

    None if the cage has no cap on reads.
    """
    size, caps = record.cache.file_bytes, requested_caps(record)
    if not size:
        return None
    window_kb = (record.device.queue_settings or {}).get("read_ahead_kb") or DEFAULT_READ_AHEAD_KB
    ios = size / (KIB * max(4, int(window_kb)))
    needs = {"IOReadBandwidthMax": size, "IOReadIOPSMax": ios}
    return max(
        (least_seconds(record, name, need) for name, need in needs.items() if name in caps),
        default=None,
    )


def _much_faster_in_order(record: Record) -> float | None:
    """Return `sequential_seconds` if it is much less than the time of the whole pass."""
    in_order, took = sequential_seconds(record), measured_seconds(record)
    whole = record.response.get("full_pass_seconds") or took
    return in_order if in_order is not None and whole and in_order < MUCH_FASTER * whole else None
