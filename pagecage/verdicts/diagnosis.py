"""What held a trial back and what would help, in a sentence to be forwarded and in the figures it is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pagecage.model.record import Record
from pagecage.units import KIB
from pagecage.verdicts.advice import killed, sentence_of
from pagecage.verdicts.amplification import least_seconds
from pagecage.verdicts.binding import bound
from pagecage.verdicts.caps import drained_after_seconds, requested_caps
from pagecage.verdicts.counters import measured_seconds
from pagecage.verdicts.evidence import Evidence
from pagecage.verdicts.traffic import Traffic, TrafficSecond, second_by_second, traffic
from pagecage.verdicts.verdict import BindingVerdict
from pagecage.verdicts.windows import Window

WORTH_SAYING = 0.8
"""Reading the files in order is told of when it would take less than this share of the time."""
DEFAULT_READ_AHEAD_KB = 128
"""Where a record does not tell (VM_READAHEAD_PAGES, include/linux/pagemap.h)."""


@dataclass(frozen=True)
class Diagnosis:
    """Which limit bound, for how long (`share` of the measured part), and every second of it.

    `property` is the cap's systemd property. `sequential_seconds` is the least time in which the caps let the
    files be read once, in order. `read` and `write` are of the whole measured part; None where it did not end.
    """

    bound_by: str
    sentence: str
    property: str | None = None
    share: float | None = None
    read: Traffic | None = None
    write: Traffic | None = None
    sequential_seconds: float | None = None
    seconds: tuple[TrafficSecond, ...] = ()


def diagnose(record: Record, binding: BindingVerdict, cut: Sequence[Window]) -> Diagnosis:
    """The diagnosis from a record, its binding verdict and the windows of its measured part (may be empty)."""
    if not cut or not binding.shares:
        return Diagnosis(binding.verdict, killed(record) or binding.reason, share=binding.shares.get(binding.verdict))
    requested = record.cage.get("requested") or {}
    prop = _most(binding, cut, requested)
    held = [window for window in cut if bound(window, requested).name == binding.verdict] or list(cut)
    case = Evidence(
        binding, prop, record, tuple(cut), tuple(held), in_order_seconds=_worth_saying(record),
        drained_seconds=drained_after_seconds(record),
    )  # fmt: skip
    return Diagnosis(
        bound_by=binding.verdict, sentence=killed(record) or sentence_of(case), property=prop,
        share=binding.shares[binding.verdict], read=traffic("read", cut), write=traffic("write", cut),
        sequential_seconds=sequential_seconds(record), seconds=second_by_second(cut, requested),
    )  # fmt: skip


def _most(binding: BindingVerdict, cut: Sequence[Window], requested: dict[str, Any]) -> str | None:
    """The cap that held for the longest, among those of the verdict's kind."""
    kind = {found.property for window in cut if (found := bound(window, requested)).name == binding.verdict}
    return max((prop for prop in kind if prop), key=lambda prop: binding.caps.get(prop, 0.0), default=None)


def sequential_seconds(record: Record) -> float | None:
    """The least time for reading all files once, in order, by whole read-ahead windows; None without a read cap."""
    size, caps = record.cache.get("file_bytes"), requested_caps(record)
    if not size:
        return None
    window_kb = (record.device.get("queue_settings") or {}).get("read_ahead_kb") or DEFAULT_READ_AHEAD_KB
    ios = size / (KIB * max(4, int(window_kb)))
    needs = {"IOReadBandwidthMax": size, "IOReadIOPSMax": ios}
    return max((least_seconds(record, name, need) for name, need in needs.items() if name in caps), default=None)


def _worth_saying(record: Record) -> float | None:
    """`sequential_seconds` where that is much less than what the trial took, or would have taken to its end."""
    in_order, took = sequential_seconds(record), measured_seconds(record)
    whole = record.response.get("full_pass_seconds") or took
    return in_order if in_order is not None and whole and in_order < WORTH_SAYING * whole else None
