"""Statistics of NVMe volumes of clouds: counters, and histograms of latency."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pagecage.errors import PagecageError
from pagecage.importers.document import Document, Table, table
from pagecage.importers.result import ImportedLimit, ImportResult, Observation, UnsupportedLimit
from pagecage.model.volume_model import latency_at, mean_us
from pagecage.units import (
    exact_size,
    format_bytes,
    format_microseconds,
    format_seconds,
    percent_text,
)

COUNT_WRAPS = 2**32
"""Counts are unsigned numbers of 32 bits (struct nvme_histogram_bin of Amazon's log page 0xD0)."""
OPEN_US = 2**32
"""A bin whose upper edge lies above this, more than an hour, is taken as open."""
_DIGITS = 9  # of a probability


@dataclass(frozen=True)
class HistogramBin:
    """The number of requests that took at least `lower_us` and less than `upper_us`."""

    lower_us: int
    upper_us: int
    count: int


def read_bins(tree: Any) -> tuple[HistogramBin, ...]:
    """Return the bins of a histogram, as nvme-cli prints it.

    Raises ValueError if a value is not a number, or if the bins overlap or fall.
    """
    bins = tuple(
        HistogramBin(*(_whole_number(row, key) for key in ("lower", "upper", "count")))
        for row in tree["bins"]
    )
    for one in bins:
        if one.upper_us < one.lower_us:
            raise ValueError(f"a bin from {one.lower_us} to {one.upper_us} us")
    for low, high in itertools.pairwise(bins):
        if high.lower_us < low.upper_us:
            raise ValueError(f"bins that overlap at {high.lower_us} us")
    return bins


def subtract_bins(
    after: Sequence[HistogramBin], before: Sequence[HistogramBin]
) -> tuple[HistogramBin, ...]:
    """Return the requests between two readings. A count that fell has wrapped at 2**32."""
    earlier = {(one.lower_us, one.upper_us): one.count for one in before}
    return tuple(
        HistogramBin(
            one.lower_us,
            one.upper_us,
            (one.count - earlier.get((one.lower_us, one.upper_us), 0)) % COUNT_WRAPS,
        )
        for one in after
    )


def count(bins: Sequence[HistogramBin]) -> int:
    return sum(one.count for one in bins)


def quantiles(bins: Sequence[HistogramBin]) -> tuple[tuple[float, float], ...]:
    """Return pairs of a probability and microseconds at the edges of the bins that are not empty.

    Requests of the bin that begins at 0 take its upper edge, because a logarithm needs a latency
    above 0. Those of an open bin take its lower edge. After empty bins, the latency rises within
    half a request. Raises ValueError for a histogram without requests.
    """
    total = count(bins)
    if not total:
        raise ValueError("a histogram without requests")
    points: list[tuple[float, float]] = []
    below = 0
    for one in bins:
        if one.count:
            upper = one.lower_us if one.upper_us >= OPEN_US else one.upper_us
            low_us, high_us = float(max(one.lower_us or upper, 1)), float(max(upper, 1))
            if not points:
                points.append((0.0, low_us))
            elif low_us > points[-1][1]:
                _append(points, (below + 0.5) / total, low_us)
            below += one.count
            _append(points, below / total, high_us)
    return tuple(points)


def _append(points: list[tuple[float, float]], probability: float, us: float) -> None:
    rounded = round(probability, _DIGITS)
    if rounded <= points[-1][0]:
        points.pop()
    points.append((rounded, us))


EXPORT = "nvme amzn stats /dev/nvme1n1 -o json"
DIRECTIONS = ("read", "write")
LIMITS = {
    "ebs_volume_performance_exceeded_iops": ("volume_iops", "the volume's IOPS"),
    "ebs_volume_performance_exceeded_tp": ("volume_throughput", "the volume's throughput"),
    "ec2_instance_ebs_performance_exceeded_iops": ("instance_iops", "the instance's IOPS"),
    "ec2_instance_ebs_performance_exceeded_tp": (
        "instance_throughput",
        "the instance's throughput",
    ),
}
"""Counters of the time in which the demand exceeded a limit, with a short name and a text."""
_OTHER_LOGS = ("critical_warning", "data_units_read", "subnqn", "bdev", "Devices")
"""Keys of nvme smart-log, id-ctrl, amzn id-ctrl and list."""


@dataclass(frozen=True)
class DirectionCounters:
    """Counters of reads or of writes: operations, bytes, their total time, and a histogram."""

    operations: int
    size_bytes: int
    time_us: int
    bins: tuple[HistogramBin, ...]

    @property
    def requests(self) -> int:
        """The requests in the histogram; the operations if its counts may have wrapped."""
        return self.operations if self.operations >= COUNT_WRAPS else count(self.bins)


@dataclass(frozen=True)
class VolumeCounters:
    """One reading, or the difference of two; `exceeded_us` has the keys of LIMITS."""

    sides: Mapping[str, DirectionCounters]
    exceeded_us: Mapping[str, int]
    queue_length: int

    def plain(self) -> dict[str, int]:
        """Return the counters that never fall, by the names of the log page."""
        totals = {"ops": "operations", "bytes": "size_bytes", "time": "time_us"}
        return {
            f"total_{side}_{name}": getattr(one, key)
            for name, key in totals.items()
            for side, one in self.sides.items()
        } | dict(self.exceeded_us)


def recognise(document: Document) -> bool:
    tree = table(document.tree)
    return "total_read_ops" in tree or any(key in tree for key in _OTHER_LOGS)


def refuse_text(text: str, name: str) -> None:
    """Raise PagecageError if this is the log as nvme-cli prints it without `-o json`."""
    if text.lstrip().startswith("Total Ops") and "Latency Histogram" in text:
        raise PagecageError(f"{name} is the text output of nvme amzn stats, not its JSON", EXPORT)


def read_counters(document: Document, name: str) -> VolumeCounters:
    """Return one reading.

    Raises PagecageError for another log, and ValueError, KeyError or TypeError for a value that
    does not fit.
    """
    tree = table(document.tree)
    if "total_read_ops" not in tree:
        raise PagecageError(f"{name} is another log of nvme, without latencies", EXPORT)
    if "read_io_latency_histogram" not in tree:
        raise PagecageError(f"{name} has no latency histogram", EXPORT)
    sides = {}
    for side in DIRECTIONS:
        keys = (f"total_{side}_{name}" for name in ("ops", "bytes", "time"))
        operations, size_bytes, time_us = (_whole_number(tree, key) for key in keys)
        bins = read_bins(tree[f"{side}_io_latency_histogram"])
        sides[side] = DirectionCounters(operations, size_bytes, time_us, bins)
    exceeded_us = {key: _whole_number(tree, key) for key in LIMITS}
    return VolumeCounters(sides, exceeded_us, _whole_number(tree, "volume_queue_length"))


def _whole_number(tree: Table, key: str) -> int:
    value = tree[key]
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{key} = {value!r}")
    return value


def difference(
    before: VolumeCounters, after: VolumeCounters, names: tuple[str, str]
) -> VolumeCounters:
    """Return the counters between two readings of one volume.

    Raises PagecageError if they are swapped, or if a counter fell.
    """
    changes = {key: value - before.plain()[key] for key, value in after.plain().items()}
    fallen = [key for key, change in changes.items() if change < 0]
    if fallen and not any(change > 0 for change in changes.values()):
        reason = f"{names[1]} was read before {names[0]}: its counters are lower"
        raise PagecageError(reason, f"give {names[1]} first")
    if fallen:
        raise PagecageError(
            f"{fallen[0]} is lower in {names[1]} than in {names[0]}: these are two volumes, or the"
            " volume was attached again in between",
            f"give one file, or two readings of one attachment ({EXPORT})",
        )
    sides = {}
    for side in DIRECTIONS:
        bins = subtract_bins(after.sides[side].bins, before.sides[side].bins)
        keys = (f"total_{side}_{name}" for name in ("ops", "bytes", "time"))
        operations, size_bytes, time_us = (changes[key] for key in keys)
        if count(bins) - operations >= COUNT_WRAPS // 2:
            fell = f"the histogram of {side}s fell between the two files"
            hint = f"read both from one volume: {EXPORT}"
            raise PagecageError(f"{fell}, and the number of {side}s did not", hint)
        sides[side] = DirectionCounters(operations, size_bytes, time_us, bins)
    return VolumeCounters(sides, {key: changes[key] for key in LIMITS}, after.queue_length)


_RATES = (
    "this file has no rates; add --volume aws-gp3 --size 500GiB, or the output of aws ec2"
    " describe-volumes"
)
_AT_LIMIT = "its demand exceeded a limit, so some requests waited; read two files in a calm time"
_SHOWN = (0.5, 0.95, 0.99, 0.999)
_NOTEWORTHY = 0.05
"""Least difference of the distribution's mean from the counted one that is printed."""


def latency_result(
    counters: VolumeCounters, seconds: float | None, *, described: bool
) -> ImportResult:
    """Return the latency distributions, and what the counters say of the volume's use.

    `seconds` is the time that the counters cover, None if unknown. `described` is true if another
    source has the volume's limits. Raises PagecageError if no request was counted, or if the time
    is shorter than that above a limit.
    """
    if not any(count(one.bins) for _, one in counters.sides.items()):
        raise PagecageError("no read and no write was counted", f"run the program, then {EXPORT}")
    queued = counters.queue_length
    longest_us = max(counters.exceeded_us.values())
    if seconds is not None and longest_us > 1e6 * seconds:
        exceeded = format_seconds(longest_us / 1e6)
        reason = f"--time {seconds:g}s is shorter than the {exceeded} above a limit"
        raise PagecageError(reason, "give the time between the two files")
    return ImportResult(
        "nvme amzn stats",
        "The latency of a customer's volume, from nvme amzn stats.",
        tuple(_latencies(counters)),
        tuple(_unsupported(counters, described=described)),
        observed=(
            *(
                each
                for side, one in counters.sides.items()
                if one.operations
                for each in _of_direction(side, one, seconds)
            ),
            Observation("queue_length", queued, f"{queued} in the queue when the file was read"),
            *_limits_met(counters, seconds),
        ),
    )


def _latencies(counters: VolumeCounters) -> Iterator[ImportedLimit]:
    for side, one in counters.sides.items():
        if not count(one.bins):
            continue
        points = quantiles(one.bins)
        size_bytes = max(1, round(one.size_bytes / max(one.requests, 1)))
        distribution = {
            "size": exact_size(size_bytes),
            "percentiles_us": {percent_text(p): us for p, us in points},
        }
        basis = f"histogram of {count(one.bins):,} {side}s of {format_bytes(size_bytes)} on average"
        shown = ", ".join(
            f"p{percent_text(p)} {format_microseconds(latency_at(points, p))}" for p in _SHOWN
        )
        yield ImportedLimit(f"simulation.{side}_latency", [distribution], basis, shown)


def _unsupported(counters: VolumeCounters, *, described: bool) -> Iterator[UnsupportedLimit]:
    if not described:
        yield UnsupportedLimit("the limits of the volume", _RATES)
    if any(counters.exceeded_us.values()):
        yield UnsupportedLimit("the latency without any wait at a limit", _AT_LIMIT)
    for side, one in counters.sides.items():
        if not count(one.bins):
            yield UnsupportedLimit(f"the latency of {side}s", f"no {side} was counted")


def _of_direction(
    side: str, one: DirectionCounters, seconds: float | None
) -> Iterator[Observation]:
    requests = max(one.requests, 1)
    mean = one.time_us / requests
    rate = f", {one.operations / seconds:.0f} per second" if seconds else ""
    yield Observation(f"{side}s", one.operations, f"{one.operations:,} {side}s{rate}")
    size_bytes = one.size_bytes / requests
    yield Observation(
        f"{side}_mean_bytes", size_bytes, f"{format_bytes(size_bytes)} per {side} on average"
    )
    text = f"{format_microseconds(mean)} per {side} on average"
    if count(one.bins) and mean:
        drawn = mean_us(quantiles(one.bins))
        if abs(drawn / mean - 1) >= _NOTEWORTHY:
            text += f"; {format_microseconds(drawn)} by the distribution, whose bins are wide"
    yield Observation(f"{side}_mean_us", mean, text)
    used = [each for each in one.bins if each.count]
    if zero := sum(each.count for each in used if not each.lower_us):
        text = f"{zero:,} {side}s of the bin from 0 us are taken at its upper edge"
        yield Observation(f"{side}s_in_first_bin", zero, text)
    if still_open := sum(each.count for each in used if each.upper_us >= OPEN_US):
        text = f"{still_open:,} {side}s of the last bin, which is open, are taken at its lower edge"
        yield Observation(f"{side}s_in_open_bin", still_open, text)


def _limits_met(counters: VolumeCounters, seconds: float | None) -> Iterator[Observation]:
    for key, (name, limit) in LIMITS.items():
        exceeded = counters.exceeded_us[key] / 1e6
        text = f"the demand never exceeded {limit}"
        if exceeded:
            text = f"the demand exceeded {limit} for {format_seconds(exceeded)}"
        if exceeded and seconds:
            text += f", {100 * exceeded / seconds:.3g} % of {format_seconds(seconds)}"
        yield Observation(f"{name}_exceeded_seconds", exceeded, text)
