"""The measured quantities of a trial (docs/FORMAT.md), from counters and the workload's report."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pagecage.agent.collectors.perf_mem import LOAD_RESPONSES
from pagecage.model.cage import IO_STAT_KEY, Cage
from pagecage.model.json_codec import JsonView
from pagecage.model.record_sections import SECTOR_BYTES, MeasuredInterval, io_count, stall_usec
from pagecage.model.trial import Trial

if TYPE_CHECKING:  # a definition is checked without the rest of the agent
    from pagecage.agent.trial_run import Measured

Row = JsonView
_MOMENTS = ("before", "after")
# sar -B's columns as /proc/vmstat counts them (sar(1)); several keys are added. pgpgin and pgpgout
# count KiB.
_VMSTAT_RATES = {
    "pgpgin_kib_per_second": ("pgpgin",),
    "pgpgout_kib_per_second": ("pgpgout",),
    "faults_per_second": ("pgfault",),
    "major_faults_per_second": ("pgmajfault",),
    "pages_freed_per_second": ("pgfree",),
    "pages_scanned_kswapd_per_second": ("pgscan_kswapd",),
    "pages_scanned_direct_per_second": ("pgscan_direct",),
    "pages_stolen_per_second": ("pgsteal_kswapd", "pgsteal_direct"),
    "pages_promoted_per_second": ("pgpromote_success",),
    "pages_demoted_per_second": ("pgdemote_kswapd", "pgdemote_direct"),
}
TRACED_RESPONSES = frozenset(
    {
        "throttled_seconds",
        *("block_write_p50_us", "block_write_p99_us", "bio_write_p50_us", "bio_write_p99_us"),
        *LOAD_RESPONSES,
    }
)
"""Only with the collectors blocklat and perf-mem."""
STANDARD_RESPONSES = frozenset(
    {
        *("read_seconds", "covered_fraction", "full_pass_seconds", "bytes_per_second"),
        *("device_read_bytes", "device_reads", "device_bytes_per_read"),
        *("device_read_bytes_per_second", "device_reads_per_second"),
        *("device_write_bytes", "device_write_bytes_per_second"),
        *("lower_device_read_bytes", "lower_device_reads", "amplification", "major_faults"),
        *("memory_peak_bytes", "io_stalled_seconds", "start_seconds", "charged_cache_bytes"),
        *("read_bytes_ahead", "reads_ahead"),
        *TRACED_RESPONSES,
        *_VMSTAT_RATES,
    }
)

_ALSO_REPORTED = frozenset({"bytes_per_second", "major_faults"})
"""Computed from the end line, so that a workload may report them as well."""


def wrong_response(own: Any) -> str | None:
    """Return the reason why a workload's own figures cannot be used, or None."""
    if not isinstance(own, dict):
        return "its response is no JSON object"
    for name, value in own.items():
        if name in STANDARD_RESPONSES - _ALSO_REPORTED:
            return f"its response takes the name of {name}"
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
            return f"its response has a figure named {name!r}"
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            return f"its response {name} is no number"
        if value is not None and not is_finite(value):
            return f"its response {name} is too large for a double"
    return None


def is_finite(value: float) -> bool:
    """Return whether a number is finite as a double; an integer may be too long for that."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def responses(
    trial: Trial, outcome: str, measured: Measured, maj_min: str, rows: Sequence[Row]
) -> dict[str, float | None]:
    """Return the measured quantities.

    Returns None if the evidence is missing, empty if the measured part did not end. The figures
    that the workload reports stand beside them. `rows` are the sampler's.
    """
    interval = measured.interval
    if interval is None or outcome not in ("ok", "timed_out", "wrong_answer"):
        return {}
    own = measured.end.get("response", {})
    return {
        **(own if wrong_response(own) is None else {}),
        **_of_the_pass(measured, interval),
        **_of_the_disk(measured, interval, maj_min),
        **_of_the_host(measured, interval),
        **ahead(rows, trial.cage, interval.start_monotonic_seconds, interval.end_monotonic_seconds),
        **measured.response,
    }


def _of_the_pass(measured: Measured, interval: MeasuredInterval) -> dict[str, float | None]:
    end, cgroup = measured.end, measured.counters["after"]["cgroup"] or {}
    seconds, covered = end.get("seconds", interval.seconds), end.get("covered_fraction")
    faults = [thread.get("major_faults") for thread in end.get("threads") or []]
    return {
        "read_seconds": seconds,
        "covered_fraction": covered,
        "full_pass_seconds": _ratio(seconds, covered),
        "bytes_per_second": _ratio(end.get("bytes"), seconds),
        "major_faults": sum(faults) if faults and None not in faults else None,
        "memory_peak_bytes": cgroup.get("memory.peak"),
        "start_seconds": measured.start_seconds,
        "charged_cache_bytes": (cgroup.get("memory.stat") or {}).get("file"),
    }


def _of_the_disk(
    measured: Measured, interval: MeasuredInterval, maj_min: str
) -> dict[str, float | None]:
    end = measured.end
    seconds = end.get("seconds", interval.seconds)
    bytes_read, reads = (_device_delta(measured, maj_min, key) for key in ("rbytes", "rios"))
    written = _written_bytes(measured, maj_min)
    stalled_usec = _growth(stall_usec(measured.counters[m], "io", "some") for m in _MOMENTS)
    return {
        "device_read_bytes": bytes_read,
        "device_reads": reads,
        "device_bytes_per_read": _ratio(bytes_read, reads),
        "device_read_bytes_per_second": _ratio(bytes_read, seconds),
        "device_reads_per_second": _ratio(reads, seconds),
        "device_write_bytes": written,
        "device_write_bytes_per_second": _ratio(written, seconds),
        "lower_device_read_bytes": _lower_device_delta(measured, "sectors_read", SECTOR_BYTES),
        "lower_device_reads": _lower_device_delta(measured, "reads"),
        "amplification": _ratio(bytes_read, end.get("distinct_bytes")),
        # A task of the trial waited for I/O (io.pressure, some); this includes dirty throttling.
        "io_stalled_seconds": None if stalled_usec is None else stalled_usec / 1e6,
    }


def _of_the_host(measured: Measured, interval: MeasuredInterval) -> dict[str, float | None]:
    """Return rates of the whole host's vmstat; None for a counter that the kernel lacks."""
    before, after = (measured.counters[moment]["host"]["vmstat"] or {} for moment in _MOMENTS)
    known = before.keys() & after.keys()
    return {
        name: _ratio(float(sum(after[key] - before[key] for key in keys)), interval.seconds)
        if known.issuperset(keys)
        else None
        for name, keys in _VMSTAT_RATES.items()
    }


def _ratio(above: float | None, below: float | None) -> float | None:
    return None if above is None or not below else above / below


def _growth(counts: Iterable[float | None]) -> float | None:
    before, after = counts
    return None if before is None or after is None else after - before


def _written_bytes(measured: Measured, maj_min: str) -> float | None:
    if measured.counters["after"]["cgroup"] is not None:
        return _device_delta(measured, maj_min, "wbytes")
    devices = [measured.counters[moment]["device"] or {} for moment in _MOMENTS]
    sectors = _growth(device.get("sectors_written") for device in devices)
    return None if sectors is None else float(sectors) * SECTOR_BYTES


def _device_delta(measured: Measured, maj_min: str, key: str) -> float | None:
    return _growth(io_count(measured.counters[moment], maj_min, key) for moment in _MOMENTS)


def _lower_device_delta(measured: Measured, key: str, factor: int = 1) -> float | None:
    """Return the growth of a counter of the lowest disk; None if the stack has one layer."""
    devices = [measured.counters[moment].get("lower_device") or {} for moment in _MOMENTS]
    grown = _growth(device.get(key) for device in devices)
    return None if grown is None else float(factor * grown)


_CAPS = {"read_bytes_ahead": "IOReadBandwidthMax", "reads_ahead": "IOReadIOPSMax"}


def ahead(rows: Sequence[Row], cage: Cage, begin: float, end: float) -> dict[str, float | None]:
    """Return the largest excess of a trial's reads over each read limit.

    The limit grows from the first read: it is the cage's limit times the time since then.

    `rows` are the sampler's; `begin` and `end` are in CLOCK_MONOTONIC. None without a cap or
    without a read.
    """
    within = [row for row in rows if begin <= row["t"] <= end and "io" in row]
    most: dict[str, float | None] = {}
    for name, prop in _CAPS.items():
        cap, key = cage.properties.get(prop), IO_STAT_KEY[prop]
        counts = [row["io"].get(key, 0) for row in within]
        first = next((n for n in range(1, len(counts)) if counts[n] > counts[n - 1]), None)
        most[name] = None
        if cap is not None and first is not None:
            # The clock starts at the last sample before, up to a tenth of a second early.
            start, t = counts[first - 1], within[first - 1]["t"]
            later = zip(counts[first:], within[first:], strict=True)
            excess = (count - start - cap * (row["t"] - t) for count, row in later)
            most[name] = float(max(0.0, *excess))
    return most
