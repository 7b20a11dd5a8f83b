"""Estimates of the duration of trials, from the speed of their disk and their limits.

An estimate assumes what a first run meets: no dataset exists yet, and reads wait for the disk one
after the other. A mapped file that is read at random under a memory limit brings a whole read-ahead
window for nearly every block, because the limit drops its neighbours before they are needed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from pagecage.model.latency_quantiles import mean_us_at_size
from pagecage.model.trial import Trial
from pagecage.units import BLOCK_BYTES, KIB

_MEMORY_BYTES_PER_SECOND = 3e9  # one processor that adds up the bytes of a resident file
_LEAST_OBSERVED_SECONDS = 1.0  # iostat and sar report each second, and the first is waited for
_DEFAULT_WINDOW_KIB = 128  # the kernel's read-ahead
_MOST_IN_FLIGHT = 16  # reads of threads beyond this number wait for each other


@dataclass(frozen=True)
class DiskSpeed:
    """Rates of a disk: in order, and the seconds of single cold reads of 4 and of 128 KiB.

    `trial_seconds` is what its machine takes for a trial besides the measured part.
    """

    read_bytes_per_second: float
    write_bytes_per_second: float
    block_seconds: float
    window_seconds: float
    trial_seconds: float = 0.2

    def read_seconds(self, size_bytes: float) -> float:
        """Return the time of one read, by the line through the two sizes that were measured."""
        slope = (self.window_seconds - self.block_seconds) / (WINDOW_BYTES - BLOCK_BYTES)
        return self.block_seconds + max(0.0, slope) * (size_bytes - BLOCK_BYTES)


WINDOW_BYTES = _DEFAULT_WINDOW_KIB * KIB
"""Size of the larger of the two reads of a DiskSpeed."""


def making_seconds(trials: Sequence[Trial], disk: DiskSpeed) -> float:
    """Return the estimated time in which the datasets of trials are made, each of them once."""
    datasets = {data.file_name: data.size_bytes for trial in trials for data in trial.datasets}
    return sum(datasets.values()) / disk.write_bytes_per_second


def trial_seconds(trial: Trial, disk: DiskSpeed) -> float:
    """Return the estimated duration of one trial whose datasets exist."""
    fixed = disk.trial_seconds
    if trial.cache == "resident":
        fixed += trial.dataset_bytes / disk.read_bytes_per_second
    measured = min(_measured_seconds(trial, disk), trial.max_seconds or math.inf)
    return fixed + (max(measured, _LEAST_OBSERVED_SECONDS) if trial.collectors else measured)


def _measured_seconds(trial: Trial, disk: DiskSpeed) -> float:
    words = trial.workload.arguments
    if "time_based=1" in words:
        return trial.max_seconds or 0.0
    passes = float(_value(words, "--passes") or 1)
    cpu = trial.dataset_bytes / _MEMORY_BYTES_PER_SECOND
    if trial.cache == "resident" and _value(words, "--source") != "heap":
        return passes * cpu
    reads, size_bytes = _reads(trial)
    return passes * max(cpu, _disk_seconds(trial, disk, reads, size_bytes))


def _reads(trial: Trial) -> tuple[float, float]:
    """Return the number of reads that reach the disk in one pass, and their mean size."""
    words, total = trial.workload.arguments, trial.dataset_bytes
    read_ahead_kb = _DEFAULT_WINDOW_KIB if trial.read_ahead_kb is None else trial.read_ahead_kb
    window = max(BLOCK_BYTES, read_ahead_kb * KIB)
    if not _is_random(words):
        return total / window, window
    if "--direct" in words or _value(words, "--advice") == "random" or "direct=1" in words:
        window = BLOCK_BYTES
    if _value(words, "--source") in ("heap", "heap-thp"):  # filled from the file in order
        return total / window, window
    block = int(_value(words, "--block-bytes") or BLOCK_BYTES)
    memory = trial.cage.properties.get("MemoryMax") or trial.machine_memory_bytes or total
    refused = max(0.0, 1 - memory / total)
    windows = total / max(window, block)
    return windows + max(0.0, total / block - windows) * refused, max(window, block)


def _is_random(words: Sequence[str]) -> bool:
    pattern = _value(words, "--pattern") or next(
        (word.removeprefix("rw=") for word in words if word.startswith("rw=")), "sequential"
    )
    return pattern not in ("sequential", "read", "write")


def _value(words: Sequence[str], option: str) -> str | None:
    """Return the last value of an option, since that is the one that holds."""
    found = [value for name, value in itertools.pairwise(words) if name == option]
    return found[-1] if found else None


def _disk_seconds(trial: Trial, disk: DiskSpeed, reads: float, size_bytes: float) -> float:
    """Return the time of reads one after the other, under the caps and latencies of the cage."""
    cage, total = trial.cage, reads * size_bytes
    in_order = not _is_random(trial.workload.arguments)
    threads = int(_value(trial.workload.arguments, "--threads") or 1)
    one = 0.0 if in_order else disk.read_seconds(size_bytes) / min(threads, _MOST_IN_FLIGHT)
    if cage.is_volume and cage.simulation and cage.simulation.read_latency:
        one = max(one, mean_us_at_size(cage.simulation.read_latency, size_bytes) / 1e6)
    times = [reads * one, total / disk.read_bytes_per_second]
    for name, amount in (("IOReadBandwidthMax", total), ("IOReadIOPSMax", reads)):
        if cap := cage.properties.get(name):
            times.append(amount / cap)
    return max(times)
