"""Diagnosis of a treatment: which limit of which disk holds it, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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


def _other_cap(held: HeldWindows) -> str:
    """Return a sentence on a cap of another disk that held the program back as well."""
    prop = held.limit.property or ""
    moved = traffic("write" if "Write" in prop else "read", held.windows)
    if "IOPS" in prop:
        cap, rate = moved.iops_cap or 0.0, moved.ios_per_second
        amount = format_iops(cap)
    else:
        cap, rate = moved.bandwidth_cap or 0.0, moved.bytes_per_second
        amount = format_rate(cap)
    verb = "was full" if rate >= FULL * cap else "held the program back"
    where = f"{'writes to' if 'Write' in prop else 'reads from'} the {held.limit.disk} disk"
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
    caps = _held_by(windows, [full_caps(window) for window in windows]) if record.disks else []
    evidence = _evidence(record, binding, windows, caps)
    sentences = [oom_kill_sentence(record) or sentence_of(evidence)]
    sentences += [
        _other_cap(held)
        for held in caps
        if held.limit.disk != evidence.disk and held.share >= WORTH_NAMING
    ]
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


def _evidence(
    record: Record, binding: BindingVerdict, windows: Sequence[Window], caps: Sequence[HeldWindows]
) -> Evidence:
    """Return the evidence, with several disks as seen from the one whose limit held for longest.

    `caps` are those of all disks that held the program back; empty with one disk.
    """
    name, limits = (
        binding.verdict,
        [binding_limit(window, record.cage.requested or {}) for window in windows],
    )
    found = caps
    if record.disks and name == "device":
        found = _held_by(windows, [[limit] for limit in limits])
    of_disk = next((held for held in found if held.limit.name == name), None)
    if of_disk:
        prop, disk = of_disk.limit.property, of_disk.limit.disk
        view, held = record if disk == DATA_DISK else on_disk(record, disk), of_disk.windows
    else:
        properties = {limit.property for limit in limits if limit.name == name and limit.property}
        prop = max(properties, key=lambda prop: binding.caps.get(prop, 0.0), default=None)
        held = [w for w, limit in zip(windows, limits, strict=True) if limit.name == name]
        view = record
    in_order = sequential_seconds(view)
    whole = view.response.get("full_pass_seconds") or measured_seconds(view)
    is_faster = in_order is not None and whole and in_order < MUCH_FASTER * whole
    return Evidence(
        binding,
        prop,
        view,
        held or windows,
        sequential_seconds=in_order if is_faster else None,
        drained_seconds=drained_after_seconds(view),
        disk=of_disk.limit.disk if of_disk else None,
        disk_share=of_disk.share if of_disk else None,
    )


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
