"""Counters of an EBS volume, as `nvme amzn stats -o json` prints them (log page 0xD0).

The layout is that of nvme-cli, plugins/amzn/amzn-nvme.c. Counters begin when the volume is
attached; times are in microseconds. One reading covers all time since then, two the time between.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pagecage.errors import PagecageError
from pagecage.importers.document import Document, table
from pagecage.importers.latency_histogram import (
    COUNT_WRAPS,
    HistogramBin,
    count,
    read_bins,
    subtract_bins,
)

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

    reads: DirectionCounters
    writes: DirectionCounters
    exceeded_us: Mapping[str, int]
    queue_length: int

    def plain(self) -> dict[str, int]:
        """Return the counters that never fall, by the names of the log page."""
        return {
            **{f"total_{side}_ops": one.operations for side, one in self.sides()},
            **{f"total_{side}_bytes": one.size_bytes for side, one in self.sides()},
            **{f"total_{side}_time": one.time_us for side, one in self.sides()},
            **self.exceeded_us,
        }

    def sides(self) -> tuple[tuple[str, DirectionCounters], ...]:
        """Return reads and writes with their names."""
        return (("read", self.reads), ("write", self.writes))


def recognise(document: Document) -> bool:
    """Return whether this is a log that nvme-cli printed as JSON."""
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
    reads, writes = (_direction(tree, side) for side in DIRECTIONS)
    return VolumeCounters(
        reads,
        writes,
        {key: _natural(tree, key) for key in LIMITS},
        _natural(tree, "volume_queue_length"),
    )


def _direction(tree: dict[str, Any], side: str) -> DirectionCounters:
    operations, size_bytes, time_us = (
        _natural(tree, f"total_{side}_{what}") for what in ("ops", "bytes", "time")
    )
    bins = read_bins(tree[f"{side}_io_latency_histogram"])
    return DirectionCounters(operations, size_bytes, time_us, bins)


def _natural(tree: dict[str, Any], key: str) -> int:
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
        raise PagecageError(
            f"{names[1]} was read before {names[0]}: its counters are lower",
            f"give {names[1]} first",
        )
    if fallen:
        raise PagecageError(
            f"{fallen[0]} is lower in {names[1]} than in {names[0]}: these are two volumes, or the"
            " volume was attached again in between",
            f"give one file, or two readings of one attachment ({EXPORT})",
        )
    reads, writes = (
        _between(one, other, changes, side)
        for (side, one), (_, other) in zip(before.sides(), after.sides(), strict=True)
    )
    return VolumeCounters(reads, writes, {key: changes[key] for key in LIMITS}, after.queue_length)


def _between(
    before: DirectionCounters, after: DirectionCounters, changes: Mapping[str, int], side: str
) -> DirectionCounters:
    bins = subtract_bins(after.bins, before.bins)
    operations = changes[f"total_{side}_ops"]
    if count(bins) - operations >= COUNT_WRAPS // 2:
        raise PagecageError(
            f"the histogram of {side}s fell between the two files, and the number of {side}s did"
            " not",
            f"read both from one volume: {EXPORT}",
        )
    return DirectionCounters(
        operations, changes[f"total_{side}_bytes"], changes[f"total_{side}_time"], bins
    )
