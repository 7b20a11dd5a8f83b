"""The measured quantities of a trial (docs/FORMAT.md): from the counters around it and from what the workload tells."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pagecage.agent.trial_run import TrialRun
from pagecage.model.cage import IO_STAT_KEY, Cage

# sar -B's columns as /proc/vmstat counts them (sar(1)); several keys are added. pgpgin and pgpgout count KiB.
_VMSTAT_RATES = {
    "pgpgin_kib_per_second": ("pgpgin",), "pgpgout_kib_per_second": ("pgpgout",),
    "faults_per_second": ("pgfault",), "major_faults_per_second": ("pgmajfault",),
    "pages_freed_per_second": ("pgfree",),
    "pages_scanned_kswapd_per_second": ("pgscan_kswapd",), "pages_scanned_direct_per_second": ("pgscan_direct",),
    "pages_stolen_per_second": ("pgsteal_kswapd", "pgsteal_direct"),
    "pages_promoted_per_second": ("pgpromote_success",),
    "pages_demoted_per_second": ("pgdemote_kswapd", "pgdemote_direct"),
}  # fmt: skip
TRACED_RESPONSES = frozenset({
    "throttled_seconds", "block_write_p50_us", "block_write_p99_us", "bio_write_p50_us", "bio_write_p99_us",
})  # fmt: skip
"""Told only where the collector blocklat ran."""
STANDARD_RESPONSES = frozenset({
    "read_seconds", "covered_fraction", "full_pass_seconds", "bytes_per_second", "device_read_bytes", "device_reads",
    "device_read_bytes_per_second", "device_reads_per_second", "device_bytes_per_read", "device_write_bytes",
    "device_write_bytes_per_second", "amplification", "major_faults", "memory_peak_bytes", "io_stalled_seconds",
    "start_seconds", "charged_cache_bytes", "read_bytes_ahead", "reads_ahead", *TRACED_RESPONSES, *_VMSTAT_RATES,
})  # fmt: skip

_TOLD_ANYWAY = frozenset({"bytes_per_second", "major_faults"})
"""Computed from the end line, so that a workload which tells them as well says nothing else."""


def wrong_response(own: Any) -> str | None:
    """Why the figures that a workload tells of itself cannot be taken, or None."""
    if not isinstance(own, dict):
        return "its response is no JSON object"
    for name, value in own.items():
        if name in STANDARD_RESPONSES - _TOLD_ANYWAY:
            return f"its response takes the name of {name}"
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
            return f"its response has a figure named {name!r}"
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            return f"its response {name} is no number"
    return None


def responses(attempt: TrialRun) -> dict[str, float | None]:
    """The measured quantities, None where the evidence is missing; empty when the measured part did not end.

    What the workload tells of itself stands beside them.
    """
    if attempt.measured is None or attempt.outcome not in ("ok", "timed_out", "wrong_answer"):
        return {}
    assert attempt.conversation is not None
    end = attempt.conversation.end
    own = end.get("response", {})
    return {
        **(own if wrong_response(own) is None else {}), **_of_the_pass(attempt, end), **_of_the_disk(attempt, end),
        **_of_the_host(attempt), **_ahead(attempt),
    }  # fmt: skip


def _of_the_pass(attempt: TrialRun, end: dict[str, Any]) -> dict[str, float | None]:
    assert attempt.measured is not None
    seconds, covered = end.get("seconds", attempt.measured["seconds"]), end.get("covered_fraction")
    return {
        "read_seconds": seconds, "covered_fraction": covered, "full_pass_seconds": _ratio(seconds, covered),
        "bytes_per_second": _ratio(end.get("bytes"), seconds), "major_faults": _major_faults(end),
        "memory_peak_bytes": attempt.counters["after"]["cgroup"]["memory.peak"], "start_seconds": attempt.start_seconds,
        "charged_cache_bytes": (attempt.counters["after"]["cgroup"]["memory.stat"] or {}).get("file"),
    }  # fmt: skip


def _of_the_disk(attempt: TrialRun, end: dict[str, Any]) -> dict[str, float | None]:
    assert attempt.measured is not None
    seconds = end.get("seconds", attempt.measured["seconds"])
    bytes_read, reads = _device_delta(attempt, "rbytes"), _device_delta(attempt, "rios")
    written = _device_delta(attempt, "wbytes")
    return {
        "device_read_bytes": bytes_read, "device_reads": reads, "device_bytes_per_read": _ratio(bytes_read, reads),
        "device_read_bytes_per_second": _ratio(bytes_read, seconds), "device_reads_per_second": _ratio(reads, seconds),
        "device_write_bytes": written, "device_write_bytes_per_second": _ratio(written, seconds),
        "amplification": _ratio(bytes_read, end.get("distinct_bytes")), "io_stalled_seconds": _stalled_seconds(attempt),
    }  # fmt: skip


def _ahead(attempt: TrialRun) -> dict[str, float | None]:
    """The head start over the caps; where the cage has no cap there is none."""
    assert attempt.measured is not None
    begin, rows = attempt.measured["start_monotonic_seconds"], attempt.sampler.rows() if attempt.sampler else ()
    return ahead(rows, attempt.trial.cage, begin, begin + attempt.measured["seconds"])


def _of_the_host(attempt: TrialRun) -> dict[str, float | None]:
    """What the whole host's vmstat counted between `go` and `end`, a second; None where the kernel lacks a counter."""
    assert attempt.measured is not None
    before, after = (attempt.counters[when]["host"]["vmstat"] or {} for when in ("before", "after"))
    return {name: _rate(before, after, keys, attempt.measured["seconds"]) for name, keys in _VMSTAT_RATES.items()}


def _rate(before: dict[str, int], after: dict[str, int], keys: tuple[str, ...], seconds: float) -> float | None:
    if not all(key in before and key in after for key in keys):
        return None
    return _ratio(float(sum(after[key] - before[key] for key in keys)), seconds)


def _major_faults(end: dict[str, Any]) -> float | None:
    threads = end.get("threads") or []
    faults = [thread.get("major_faults") for thread in threads]
    return sum(faults) if faults and None not in faults else None


def _ratio(above: float | None, below: float | None) -> float | None:
    return None if above is None or not below else above / below


def _stalled_seconds(attempt: TrialRun) -> float | None:
    """How long some task of the slice waited for I/O (io.pressure: some); a pause by the dirty limits is one."""
    before, after = (attempt.counters[when]["cgroup"]["io.pressure"] for when in ("before", "after"))
    if not before or not after:
        return None
    return float(after["some"]["total"] - before["some"]["total"]) / 1e6


def _device_delta(attempt: TrialRun, key: str) -> float | None:
    before, after = (attempt.counters[when]["cgroup"]["io.stat"] for when in ("before", "after"))
    if before is None or after is None:
        return None
    maj_min = attempt.disk.maj_min
    # A disk that the slice has not touched has no line, or a bare one: that is a true zero.
    return float(after.get(maj_min, {}).get(key, 0) - before.get(maj_min, {}).get(key, 0))


_CAPS = {"read_bytes_ahead": "IOReadBandwidthMax", "reads_ahead": "IOReadIOPSMax"}
Row = Mapping[str, Any]


def ahead(rows: Sequence[Row], cage: Cage, begin: float, end: float) -> dict[str, float | None]:
    """For each cap the most that was through at any sample above cap times the time since the first read.

    `rows` are the sampler's, `begin` and `end` moments of CLOCK_MONOTONIC; None without a cap or without a read.
    """
    within = [row for row in rows if begin <= row["t"] <= end and "io" in row]
    return {name: _most_ahead(within, cage.properties.get(cap), IO_STAT_KEY[cap]) for name, cap in _CAPS.items()}


def _most_ahead(rows: Sequence[Row], cap: int | None, key: str) -> float | None:
    """The clock starts at the last sample before anything moved, which is up to a tenth of a second early."""
    first = next((n for n in range(1, len(rows)) if _moved(rows, n, key) > 0), None)
    if cap is None or first is None:
        return None
    start, t = rows[first - 1]["io"].get(key, 0), rows[first - 1]["t"]
    return float(max(0.0, *(row["io"].get(key, 0) - start - cap * (row["t"] - t) for row in rows[first:])))


def _moved(rows: Sequence[Row], n: int, key: str) -> int:
    return int(rows[n]["io"].get(key, 0)) - int(rows[n - 1]["io"].get(key, 0))
