"""Responses that are derived from a record's counters and traces when a claim is evaluated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from analysis.data.load import JudgedTrial, Run
from pagecage.model.traces import read_lines
from pagecage.model.trial_counters import SECTOR_BYTES
from pagecage.units import KIB
from pagecage.verdicts.counters import counter, difference, measured_seconds

Derived = Callable[[JudgedTrial], float | None]
_FREE_COLUMNS: Mapping[str, Mapping[str, int]] = {
    "total": {"MemTotal": 1},
    "used": {"MemTotal": 1, "MemAvailable": -1},
    "free": {"MemFree": 1},
    "shared": {"Shmem": 1},
    "buff_cache": {"Buffers": 1, "Cached": 1, "SReclaimable": 1},
    "available": {"MemAvailable": 1},
}
"""Columns of free(1) of procps 4 as sums of the keys of /proc/meminfo, with their signs."""


_LOWER_RATES: Mapping[str, tuple[str, int]] = {
    "lower_device_reads_per_second": ("reads", 1),
    "lower_device_read_bytes_per_second": ("sectors_read", SECTOR_BYTES),
    "lower_device_write_bytes_per_second": ("sectors_written", SECTOR_BYTES),
}
"""Rates of the lowest disk of a stack: its key of /proc/diskstats, and the factor to bytes."""
_LOADS, _SAMPLES = "loads_", "_samples"
_LOAD_LEVELS = ("ram", "l1", "l2", "peer_cache", "fill_buffer", "uncached", "unknown")
"""Levels of memory in the responses of the collector perf-mem."""


def _free_column(column: str, moment: str, trial: JudgedTrial) -> float | None:
    """Return a column of free(1) in bytes at `before` or `after`; None if a key is missing."""
    signs = _FREE_COLUMNS[column]
    values = [counter(trial.record, moment, "host", "meminfo", key) for key in signs]
    if any(value is None for value in values):
        return None
    return float(KIB * sum(s * v for s, v in zip(signs.values(), values, strict=True)))


def _free_growth(column: str, trial: JudgedTrial) -> float | None:
    """Return how many bytes a column of free(1) grew from `before` to `after`."""
    before, after = (_free_column(column, moment, trial) for moment in ("before", "after"))
    return None if before is None or after is None else after - before


def _bar_buckets(run: Run, trial: JudgedTrial) -> float | None:
    """Return the number of parts of vmtouch's bar; None without a trace, or if it varies."""
    widths = {len(line["bar"]) for line in read_lines(run.path, trial.record, "vmtouch")}
    return float(widths.pop()) if len(widths) == 1 else None


def _other_disks_fraction(trial: JudgedTrial) -> float | None:
    """Return the share of the host's reads that did not come from the measured disk.

    `pgpgin` counts the reads of all disks in KiB, each where it was submitted. None if the host
    read nothing.
    """
    all_kib = difference(trial.record, "host", "vmstat", "pgpgin")
    sectors = difference(trial.record, "device", "sectors_read")
    if not all_kib or sectors is None:
        return None
    return max(0.0, 1 - sectors * SECTOR_BYTES / (all_kib * KIB))


def _optimal_io_size(trial: JudgedTrial) -> float | None:
    """Return the optimal I/O size that the measured disk reports, in bytes."""
    size = (trial.record.device.queue_settings or {}).get("optimal_io_size")
    return None if size is None else float(size)


def _position_computations(trial: JudgedTrial) -> float | None:
    """Return how often a whole pass computes the position of a block.

    A pass that was cut short is scaled to the whole.
    """
    blocks = (trial.record.workload.end or {}).get("blocks")
    covered = trial.record.response.get("covered_fraction")
    return float(blocks) / covered if blocks is not None and covered else None


def _lower_rate(key: str, factor: int, trial: JudgedTrial) -> float | None:
    """Return a counter of the stack's lowest disk per second; None if the stack has one layer."""
    grown = difference(trial.record, "lower_device", key)
    seconds = measured_seconds(trial.record)
    return None if grown is None or not seconds else factor * grown / seconds


def _samples_percent(level: str, trial: JudgedTrial) -> float | None:
    """Return the share of all sampled loads that a level served, in percent."""
    response = trial.record.response
    counts = {one: response.get(f"{_LOADS}{one}{_SAMPLES}") for one in _LOAD_LEVELS}
    known = [count for count in counts.values() if count is not None]
    own = counts[level]
    return None if own is None or not sum(known) else 100 * own / sum(known)


_FROM_RECORD: Mapping[str, Derived] = {
    **{f"free_{name}_growth_bytes": partial(_free_growth, name) for name in _FREE_COLUMNS},
    **{
        f"free_{name}_before_bytes": partial(_free_column, name, "before") for name in _FREE_COLUMNS
    },
    **{name: partial(_lower_rate, key, factor) for name, (key, factor) in _LOWER_RATES.items()},
    **{
        f"{_LOADS}{level}{_SAMPLES}_percent": partial(_samples_percent, level)
        for level in _LOAD_LEVELS
    },
    "other_disks_read_fraction": _other_disks_fraction,
    "optimal_io_size_bytes": _optimal_io_size,
    "position_computations": _position_computations,
}
"""Functions by the name of the response."""
_BAR = "vmtouch_bar_buckets"


def is_derived(response: str) -> bool:
    """Return whether a response is derived here instead of being recorded."""
    return response == _BAR or response in _FROM_RECORD


def derived_value(run: Run, trial: JudgedTrial, response: str) -> float | None:
    """Return a derived response of a trial; None if the record or the trace lacks it."""
    return _bar_buckets(run, trial) if response == _BAR else _FROM_RECORD[response](trial)


def dataset_bytes(trial: JudgedTrial) -> float | None:
    """Return the length of the trial's files in bytes; None if it has none."""
    return trial.record.cache.file_bytes or None


def memory_limit_bytes(trial: JudgedTrial) -> float | None:
    """Return the MemoryMax of the trial's cage in bytes; None without one."""
    return (trial.record.cage.requested or {}).get("MemoryMax")


DIVISORS: Mapping[str, Callable[[JudgedTrial], float | None]] = {
    "dataset": dataset_bytes,
    "memory_limit": memory_limit_bytes,
}
"""Sizes by which a claim may divide its response (`per`), so that it holds at any size."""
