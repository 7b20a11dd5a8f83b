"""The disk's own time per request, compared with the other repeats of the same treatment.

A neighbour of a virtual machine slows its disk without any counter of this machine that names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from pagecage.verdicts.quiet.processors import LEAST_LOST_SECONDS
from pagecage.model.record import Record
from pagecage.model.trial_counters import SECTOR_BYTES
from pagecage.units import format_bytes
from pagecage.verdicts.counters import difference, measured_seconds
from pagecage.verdicts.verdict import Verdict

SLOWER = 3.0
"""Times the median of the others from which on the disk was slow. The largest factor of a stored
trial that other verdicts include is 2.1."""
LOST_SHARE = 0.1
"""Time that the disk was busy for longer than the others', as a share of the measured part."""
FEWEST_REQUESTS, FEWEST_OTHERS = 50, 2
ALIKE = 2.0
"""Sizes and depths of requests are alike within this factor."""


@dataclass(frozen=True)
class DiskService:
    """A disk's service of a trial's requests; `ms` is the time of one, the queue included."""

    requests: float
    request_bytes: float
    ms: float
    busy_ms: float

    @property
    def depth(self) -> float:
        """The mean number of requests in the disk while it was busy."""
        return self.ms / self.busy_ms if self.busy_ms else 0.0


def disk_service(record: Record) -> DiskService | None:
    """Return the service of the data's disk in the measured part; None if it is not known."""
    counts = [difference(record, "device", key) for key in ("reads", "writes")]
    sectors = [difference(record, "device", f"sectors_{key}") for key in ("read", "written")]
    spent = [difference(record, "device", key) for key in ("read_ms", "write_ms")]
    busy = difference(record, "device", "io_ticks")
    if None in (*counts, *sectors, *spent) or busy is None or not measured_seconds(record):
        return None
    requests = sum(filter(None, counts))
    size = SECTOR_BYTES * sum(filter(None, sectors)) / max(1.0, requests)
    if requests < FEWEST_REQUESTS or not size:
        return None
    return DiskService(requests, size, sum(filter(None, spent)) / requests, busy / requests)


def judge_disk_speed(record: Record, repeats: Sequence[Record]) -> Verdict:
    """Return `usual`, `slow` or `unknown`, from the other repeats of the trial's treatment."""
    own, seconds = disk_service(record), measured_seconds(record)
    if own is None or not seconds:
        return Verdict("unknown", "The disk served too few requests to judge its speed.")
    known = [found for other in repeats if (found := disk_service(other))]
    alike = [one for one in known if 1 / ALIKE <= one.request_bytes / own.request_bytes <= ALIKE]
    if len(alike) < FEWEST_OTHERS:
        return Verdict("unknown", "Too few other repeats had requests of this size.")
    usual_ms, factor = median(found.ms for found in alike), _slower(own, alike)
    lost = own.requests * own.busy_ms / 1000 * (1 - 1 / factor) if factor > 1 else 0.0
    sentence = (
        f"the disk took {own.ms:.3g} ms per request of {format_bytes(own.request_bytes)}, and"
        f" {usual_ms:.3g} ms in {len(alike)} other repeats"
    )
    is_slow = factor >= SLOWER and lost > max(LOST_SHARE * seconds, LEAST_LOST_SECONDS)
    return Verdict("slow" if is_slow else "usual", sentence)


def _slower(own: DiskService, others: Sequence[DiskService]) -> float:
    """Return how many times longer a request took than in the others.

    With a deeper queue a request waits for others, so that the time between two ends counts.
    """
    usual = median(found.ms for found in others)
    depth = median(found.depth for found in others)
    if own.depth > ALIKE * depth:
        usual, mine = median(found.busy_ms for found in others), own.busy_ms
    else:
        mine = own.ms
    return mine / usual if usual else 1.0
