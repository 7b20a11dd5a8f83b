"""The sides of a claim: responses of treatments, figures derived from them, and knees."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any

from analysis.articles.figures import MAXIMUM, MINIMUM, extreme_summary
from analysis.articles.rules import RuleResult, is_within_factor
from analysis.cells import response_value, trials_of
from analysis.data.load import JudgedTrial, Run
from analysis.formatting import convert_response
from analysis.stats import MedianSummary, blocked_ratio, summarise
from pagecage.model.record_sections import SECTOR_BYTES
from pagecage.model.run_files import read_lines
from pagecage.units import KIB
from pagecage.verdicts.counters import counter, difference, measured_seconds
from pagecage.verdicts.prediction import find_knee

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


Side = list[JudgedTrial]
SIDES = ("where", "over", "than", "than_over")
"""Keys of a claim's groups of trials, in order."""


def number_of_sides(table: Mapping[str, Any]) -> int:
    """Return how many groups of trials a claim or a finding compares."""
    if table.get("than_over"):
        return 4
    return 2 if table.get("over") or table.get("over_boot") else 1


def sides_of(run: Run, table: Mapping[str, Any]) -> list[Side]:
    """Return the groups of trials, in the order of `SIDES`."""
    if table.get("over_boot"):
        return _by_boot(trials_of(run.trials, table.get("where") or {}))
    return [trials_of(run.trials, table.get(key) or {}) for key in SIDES[: number_of_sides(table)]]


def _by_boot(trials: Sequence[JudgedTrial]) -> list[Side]:
    """Return the trials of the first boot and those of the last one.

    The second group is empty if all ran in one boot.
    """
    boots = list(dict.fromkeys(trial.record.boot_id for trial in trials))
    groups = [[trial for trial in trials if trial.record.boot_id == boot] for boot in boots]
    return [groups[0], groups[-1]] if len(groups) > 1 else [list(trials), []]


def responses_of(table: Mapping[str, Any]) -> list[str]:
    """Return the response of each group; `over_response` is that of the divisors."""
    own = table["response"]
    return [own, table.get("over_response") or own] * 2


def side_values(run: Run, table: Mapping[str, Any], sides: Sequence[Side]) -> list[list[float]]:
    """Return the figures of each group's trials; a killed trial has none."""
    return [
        [v for trial in side if (v := trial_value(run, trial, response, table)) is not None]
        for side, response in zip(sides, responses_of(table), strict=False)
    ]


def trial_value(
    run: Run, trial: JudgedTrial, response: str, table: Mapping[str, Any]
) -> float | None:
    """Return a trial's figure in the response's unit.

    With `per`, it is in bytes, pages or seconds per byte of that size. None if the trial was
    killed or has no such figure.
    """
    if trial.is_killed:
        return None
    value = (
        derived_value(run, trial, response)
        if is_derived(response)
        else response_value(trial, response)
    )
    if value is None or not table.get("per"):
        return value
    divisor = DIVISORS[table["per"]](trial)
    return value / divisor if divisor else None


def summarise_sides(
    run: Run, table: Mapping[str, Any], sides: Sequence[Side], unit: str | None = None
) -> MedianSummary | None:
    """Return the figure of the groups: a median or minimum, a ratio, or a difference.

    A median, a minimum and a difference are in `unit`, or in the response's own unit without one;
    a ratio has none. None if a group has no figure.
    """
    values = side_values(run, table, sides)
    if not all(values):
        return None
    statistic = table.get("statistic", "")
    is_extreme = statistic in (MINIMUM, MAXIMUM)
    if len(values) == 4 or (len(values) == 2 and table.get("rule") != "difference"):
        if is_extreme and len(values) == 2:
            return extreme_summary(statistic, *values)
        return blocked_ratio(values, _rows(run, table, sides))
    converted = [
        [convert_response(response, v, unit) if unit else v for v in side]
        for side, response in zip(values, responses_of(table), strict=False)
    ]
    if len(converted) == 2:
        return _difference(*converted)
    return extreme_summary(statistic, converted[0]) if is_extreme else summarise(converted[0])


def _rows(run: Run, table: Mapping[str, Any], sides: Sequence[Side]) -> list[list[float]]:
    """Return a figure of each side for every block and treatment that all sides have.

    Trials match if their block is the same, and their level of each factor that the table leaves
    open. The figure is the median, where a side has several such trials.
    """
    fixed = {factor for key in SIDES for factor in table.get(key) or {}}
    found: list[dict[Any, list[float]]] = []
    for side, response in zip(sides, responses_of(table), strict=False):
        found.append(defaultdict(list))
        for trial in side:
            value = trial_value(run, trial, response, table)
            levels = trial.record.treatment.items()
            key = (trial.record.block, *(level for name, level in levels if name not in fixed))
            if value is not None:
                found[-1][key].append(value)
    common = [key for key in found[0] if all(key in one for one in found)]
    return [[median(one[key]) for one in found] for key in common]


def _difference(ones: Sequence[float], others: Sequence[float]) -> MedianSummary:
    """Return the difference of two medians, with the range of the differences."""
    return MedianSummary(
        min(len(ones), len(others)),
        median(ones) - median(others),
        min(ones) - max(others),
        max(ones) - min(others),
        "range",
    )


LEAST_GAIN = 1.5
"""A knee exists only if the least level takes this many times as long as the knee's."""


def evaluate_knee(
    run: Run, claim: Mapping[str, Any], trials: Sequence[JudgedTrial]
) -> tuple[MedianSummary | None, RuleResult]:
    """Return the knee of the claim's response along its factor, and whether it is as published.

    The summary is None, and the claim does not hold, if there is no knee: the figure is the same
    at all levels, or it still falls at the largest one. It is undecided if a level has no figure.
    """
    middles = _medians(run, claim, trials)
    without = [level for level in run.factors[claim["along"]] if float(level) not in middles]
    if without:
        return None, (None, f"no figure for {claim['along']} {', '.join(without)}")
    knee = find_knee(list(middles.items()))
    if knee.value is None:
        return None, (False, f"there is no knee: {knee.reason}")
    gain = middles[min(middles)] / middles[knee.value]
    if gain < LEAST_GAIN:
        return None, (
            False,
            f"there is no knee: the least level takes only {gain:.2f} times as long as"
            f" {knee.value:,.0f}",
        )
    published, factor = float(claim["published"]), float(claim["tolerance_factor"])
    held = is_within_factor(knee.value, published, factor)
    word = "within" if held else "outside"
    n = len(trials)
    return (
        MedianSummary(n, knee.value, knee.value, knee.value, "knee"),
        (held, f"{knee.reason}; {word} a factor of {factor:g} of the published knee"),
    )


def _medians(
    run: Run, claim: Mapping[str, Any], trials: Sequence[JudgedTrial]
) -> dict[float, float]:
    """Return the median figure by level, as a number."""
    values: dict[float, list[float]] = defaultdict(list)
    for trial in trials:
        value = trial_value(run, trial, claim["response"], claim)
        if value is not None:
            values[float(trial.record.treatment[claim["along"]])].append(value)
    return {level: median(figures) for level, figures in values.items()}
