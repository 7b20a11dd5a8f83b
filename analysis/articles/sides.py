"""The sides of a claim: responses of treatments, extremes, figures per unit, and knees."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from statistics import median
from typing import Any

from analysis.cells import (
    TreatmentCell,
    claim_trials,
    included_values,
    published_claims,
    response_value,
    treatments,
    trials_of,
)
from analysis.data.load import Claim, JudgedTrial, Run
from analysis.formatting import convert_response, format_quantity, treatment_label, unit_scale
from analysis.stats import MedianSummary, blocked_ratio, median_of_known, quotient, summarise
from pagecage.errors import PagecageError
from pagecage.model.record_sections import SECTOR_BYTES
from pagecage.model.run_files import read_lines
from pagecage.units import GIB, KIB, parse_size_bytes
from pagecage.verdicts.counters import counter, difference, measured_seconds
from pagecage.verdicts.io_demand import find_knee

MINIMUM, MAXIMUM = "minimum", "maximum"
"""Statistics of claims whose published figure is the least time of several trials, or the rate that
belongs to it.
"""


@dataclass(frozen=True)
class TreatmentMinimum:
    """The least figure of a treatment's `n` included trials.

    `published` has the published minima with their units, by the id of their claims.
    """

    label: str
    response: str
    minimum: float
    n: int
    published: dict[str, tuple[float, str]]


def extreme_summary(statistic: str, *sides: Sequence[float]) -> MedianSummary:
    """Return the extreme of one side, or the ratio of the extremes of two.

    The interval spans the extremes of all values but any one: the first and second of each side.
    """
    best = [sorted(side, reverse=statistic == MAXIMUM)[:2] for side in sides]
    figures = [quotient(one, other) for one in best[0] for other in (*best[1:], [1.0])[0]]
    n = min(map(len, sides))
    return MedianSummary(n, figures[0], min(figures), max(figures), statistic)


def minima(run: Run) -> list[TreatmentMinimum]:
    claims = [c for c in run.definition.get("claims", []) if c.get("statistic") == MINIMUM]
    found = []
    for treatment in treatments(run):
        about = [c for c in claims if not c.get("over") and c["where"].items() <= treatment.items()]
        if about and (values := included_values(run, treatment, about[0]["response"])):
            published = {claim["id"]: (claim["published"], claim["unit"]) for claim in about}
            label, response = treatment_label(treatment), about[0]["response"]
            found.append(TreatmentMinimum(label, response, min(values), len(values), published))
    return found


_OF_THE_WHOLE = (
    *("full_pass_seconds", "prefault_seconds", "sum_seconds", "total_seconds"),
    *("pass_1_seconds", "pass_last_tenth_seconds"),
)
"""Times that are proportional to the size of the data."""
_OF_ALL_CALLS = ("with_start_seconds", "append_seconds")
"""Times that are proportional to the number of records."""
PUBLISHED_SIZE = "full"
"""The size at which a definition's figures were published."""


def per_unit_heading(response: str) -> str | None:
    """Return the heading of the column: `per GiB`, `per call`, or None for other responses."""
    if response in _OF_THE_WHOLE:
        return "per GiB"
    return "per call" if response in _OF_ALL_CALLS else None


def per_unit(run: Run, cell: TreatmentCell) -> tuple[str, str]:
    """Return a cell's time per GiB of its files, or per record of its log, and the published one.

    A time per call is published as such. A time per GiB is known only if the treatment's files have
    the size that the definition gives for the run. A text is empty if its time is not known.
    """
    is_per_call = cell.response in _OF_ALL_CALLS
    response = "wall_per_call_us" if is_per_call else cell.response
    claim = published_claims(run, response).get(treatment_label(cell.treatment))
    if is_per_call:
        trials = trials_of(run.trials, cell.treatment)
        work = median_of_known(trial.record.response.get("records") or None for trial in trials)
        of_article: float | None = 1.0
    else:
        planned = (
            one for one in run.plan["trials"] if dict(one["treatment"]) == dict(cell.treatment)
        )
        sizes = ((one.get("dataset"), one.get("files", 1)) for one in planned)
        work = next((data["size_bytes"] * files / GIB for data, files in sizes if data), None)
        is_as_defined = _defined_gib(run, run.size) == work
        of_article = _defined_gib(run, PUBLISHED_SIZE) if is_as_defined else None
    measured, published = "", claim["published"] if claim else None
    if work and cell.summary:
        scaled = replace(cell.summary, middle=cell.summary.middle / work)
        measured = replace(cell, summary=scaled, killed=0).text
    if claim is None or not isinstance(published, int | float) or not of_article:
        return measured, ""
    figure = published * unit_scale(claim["unit"]) / of_article
    return measured, format_quantity(cell.response, figure)


def _defined_gib(run: Run, name: str) -> float | None:
    size = (run.definition.get("sizes") or {}).get(name) or {}
    with suppress(PagecageError):
        if isinstance(size.get("dataset"), str):
            return parse_size_bytes(size["dataset"]) * int(size.get("files", 1)) / GIB
    return None


_FREE_COLUMNS: Mapping[str, Mapping[str, int]] = {
    "total": {"MemTotal": 1},
    "used": {"MemTotal": 1, "MemAvailable": -1},
    "free": {"MemFree": 1},
    "shared": {"Shmem": 1},
    "buff_cache": {"Buffers": 1, "Cached": 1, "SReclaimable": 1},
    "available": {"MemAvailable": 1},
    "swap": {"SwapTotal": 1, "SwapFree": -1},
}
"""Columns of free(1) of procps 4 as sums of the keys of /proc/meminfo, with their signs; `swap` is
what is used of it.
"""


_LOWER_RATES: Mapping[str, tuple[str, int]] = {
    "lower_device_reads_per_second": ("reads", 1),
    "lower_device_read_bytes_per_second": ("sectors_read", SECTOR_BYTES),
    "lower_device_write_bytes_per_second": ("sectors_written", SECTOR_BYTES),
}
"""Rates of the lowest disk of a stack: its key of /proc/diskstats, and the factor to bytes."""
_LOAD_LEVELS = ("ram", "l1", "l2", "peer_cache", "fill_buffer", "uncached", "unknown")
"""Levels of memory in the responses of the collector perf-mem."""


def _free_column(column: str, moment: str, trial: JudgedTrial) -> float | None:
    """Return a column of free(1) in bytes, or its growth; None if a key is missing."""
    if moment == "growth":
        before, after = (_free_column(column, one, trial) for one in ("before", "after"))
        return None if before is None or after is None else after - before
    signs = _FREE_COLUMNS[column]
    values = [counter(trial.record, moment, "host", "meminfo", key) for key in signs]
    if any(value is None for value in values):
        return None
    return float(KIB * sum(s * v for s, v in zip(signs.values(), values, strict=True)))


def _samples_percent(level: str, trial: JudgedTrial) -> float | None:
    counts = {one: trial.record.response.get(f"loads_{one}_samples") for one in _LOAD_LEVELS}
    total, of_level = sum(filter(None, counts.values())), counts[level]
    return None if of_level is None or not total else 100 * of_level / total


def _figure_of_record(response: str, trial: JudgedTrial) -> float | None:
    record = trial.record
    match response:
        case "optimal_io_size_bytes":
            size = (record.device.queue_settings or {}).get("optimal_io_size")
            return None if size is None else float(size)
        case "position_computations":  # how often a whole pass computes the position of a block
            blocks = (record.workload.end or {}).get("blocks")
            covered = record.response.get("covered_fraction")
            return float(blocks) / covered if blocks is not None and covered else None
        case "repeat":
            return float(record.repeat)
    key, factor = _LOWER_RATES[response]
    grown, seconds = difference(record, "lower_device", key), measured_seconds(record)
    return None if grown is None or not seconds else factor * grown / seconds


def _other_disks_fraction(trial: JudgedTrial) -> float | None:
    """Return the share of the host's reads that did not come from the measured disk.

    `pgpgin` counts the reads of all disks in KiB, each where it was submitted: those of a disk by
    loop again where its file is read.
    """
    all_kib = difference(trial.record, "host", "vmstat", "pgpgin")
    sectors = difference(trial.record, "device", "sectors_read")
    if not all_kib or sectors is None:
        return None
    below = difference(trial.record, "lower_device", "sectors_read")
    if below is not None and (trial.record.device.name or "").startswith("loop"):
        sectors += below
    return max(0.0, 1 - sectors * SECTOR_BYTES / (all_kib * KIB))


_FROM_RECORD: Mapping[str, Callable[[JudgedTrial], float | None]] = {
    **{
        f"free_{name}_{moment}_bytes": partial(_free_column, name, moment)
        for name in _FREE_COLUMNS
        for moment in ("growth", "before")
    },
    **{f"loads_{one}_samples_percent": partial(_samples_percent, one) for one in _LOAD_LEVELS},
    **{
        name: partial(_figure_of_record, name)
        for name in (*_LOWER_RATES, "optimal_io_size_bytes", "position_computations", "repeat")
    },
    "other_disks_read_fraction": _other_disks_fraction,
}
"""Functions by the name of the response."""


_Second = Mapping[str, float]
_FROM_IOSTAT: Mapping[str, Callable[[_Second], float]] = {
    **{
        f"iostat_{name}": itemgetter(name)
        for name in ("read_bytes_per_second", "reads_per_second", "write_bytes_per_second")
    },
    "iostat_bytes_per_read": lambda row: row["read_bytes_per_second"] / row["reads_per_second"],
}
"""Functions of one line of iostat, by the name of the response."""


def _usual_second(run: Run, trial: JudgedTrial, figure: Callable[[_Second], float]) -> float | None:
    """Return the median of the seconds in which the disk read.

    The articles print single lines of iostat, from the middle of a run: in its first and last
    second the disk is not busy throughout.
    """
    from analysis.data.frames import iostat_rows

    seconds = [row for row in iostat_rows(run, trial) if row["reads_per_second"] > 0]
    return median(map(figure, seconds[1:-1] or seconds)) if seconds else None


Sides = Sequence[Sequence[JudgedTrial]]
"""Groups of trials, in the order of a claim's `SIDES`."""
RuleResult = tuple[bool | None, str]
"""True if the claim holds, None if the figures cannot decide it, and the reason."""


def is_within_factor(measured: float, published: float, factor: float) -> bool:
    return published / factor <= measured <= published * factor


SIDES = ("where", "over", "than", "than_over")
"""Keys of a claim's groups of trials, in order."""


def arms_of(claim: Claim) -> list[Claim]:
    """Return the claim, and once more for each entry of `also`, with its levels exchanged."""
    where = claim.get("where") or {}
    sides = {key: claim[key] for key in SIDES if claim.get(key)}
    arms = [claim]
    for levels in claim.get("also") or ():
        changed = {
            key: {n: levels[n] if n in levels and v == where.get(n) else v for n, v in side.items()}
            for key, side in sides.items()
        }
        arms.append({**claim, **changed})
    return arms


def number_of_sides(table: Claim) -> int:
    if table.get("than_over"):
        return 4
    return 2 if table.get("over") or table.get("over_boot") else 1


def sides_of(run: Run, table: Claim) -> list[list[JudgedTrial]]:
    """Return the groups of trials, in the order of `SIDES`."""
    if table.get("over_boot"):
        trials = trials_of(run.trials, table.get("where") or {})
        boots = list(dict.fromkeys(trial.record.boot_id for trial in trials))
        groups = [[trial for trial in trials if trial.record.boot_id == boot] for boot in boots]
        return [groups[0], groups[-1]] if len(groups) > 1 else [list(trials), []]
    return [trials_of(run.trials, table.get(key) or {}) for key in SIDES[: number_of_sides(table)]]


def responses_of(table: Claim) -> list[str]:
    """Return the response of each group; `over_response` is that of the divisors."""
    own = table["response"]
    return [own, table.get("over_response") or own] * 2


def _trial_value(run: Run, trial: JudgedTrial, response: str, table: Claim) -> float | None:
    """Return a trial's figure in the response's unit; None if it was killed or has none.

    With `per` (`dataset` or `memory_limit`), it is divided by that size in bytes, so that a claim
    holds at any size.
    """
    if trial.is_killed:
        return None
    if response == "vmtouch_bar_buckets":
        widths = {len(line["bar"]) for line in read_lines(run.path, trial.record, "vmtouch")}
        value = float(widths.pop()) if len(widths) == 1 else None
    elif response in _FROM_IOSTAT:
        value = _usual_second(run, trial, _FROM_IOSTAT[response])
    elif response in _FROM_RECORD:
        value = _FROM_RECORD[response](trial)
    else:
        value = response_value(trial, response)
    if value is None or not table.get("per"):
        return value
    sizes = {
        "dataset": trial.record.cache.file_bytes,
        "memory_limit": (trial.record.cage.requested or {}).get("MemoryMax"),
    }
    divisor = sizes[table["per"]]
    return value / divisor if divisor else None


def summarise_sides(
    run: Run, table: Claim, sides: Sides, unit: str | None = None
) -> MedianSummary | None:
    """Return the figure of the groups: a median or extreme, a ratio, or a difference.

    It is in `unit`, or in the response's own unit; a ratio has none. None if a group has no figure.
    """
    of_sides = list(zip(sides, responses_of(table), strict=False))
    values = [
        [v for trial in side if (v := _trial_value(run, trial, response, table)) is not None]
        for side, response in of_sides
    ]
    if not all(values):
        return None
    statistic = table.get("statistic", "")
    is_extreme = statistic in (MINIMUM, MAXIMUM)
    if len(values) == 4 or (len(values) == 2 and table.get("rule") != "difference"):
        if is_extreme and len(values) == 2:
            return extreme_summary(statistic, *values)
        return blocked_ratio(values, _rows(run, table, sides))
    ones, *others = (
        [convert_response(response, v, unit) if unit else v for v in side]
        for side, (_, response) in zip(values, of_sides, strict=True)
    )
    if others:
        low, high = min(ones) - max(others[0]), max(ones) - min(others[0])
        n = min(len(ones), len(others[0]))
        return MedianSummary(n, median(ones) - median(others[0]), low, high, "range")
    return extreme_summary(statistic, ones) if is_extreme else summarise(ones)


def included_ratio(
    run: Run, response: str, over: Mapping[str, str], under: Mapping[str, str]
) -> MedianSummary | None:
    """Return the ratio of the included trials with the levels `over` to those with `under`."""
    table = {"response": response, "where": over, "over": under}
    sides = [claim_trials(side, table) for side in sides_of(run, table)]
    return summarise_sides(run, table, sides)


def _rows(run: Run, table: Claim, sides: Sides) -> list[list[float]]:
    """Return a row per block and level of the other factors that all sides have: their medians."""
    fixed = {factor for key in SIDES for factor in table.get(key) or {}}
    found: list[dict[Any, list[float]]] = []
    for side, response in zip(sides, responses_of(table), strict=False):
        found.append(defaultdict(list))
        for trial in side:
            value = _trial_value(run, trial, response, table)
            levels = trial.record.treatment.items()
            key = (trial.record.block, *(level for name, level in levels if name not in fixed))
            if value is not None:
                found[-1][key].append(value)
    common = [key for key in found[0] if all(key in one for one in found)]
    return [[median(one[key]) for one in found] for key in common]


LEAST_GAIN = 1.5
"""A knee exists only if the least level takes this many times as long as the knee's."""


def evaluate_knee(
    run: Run, claim: Claim, trials: Sequence[JudgedTrial]
) -> tuple[MedianSummary | None, RuleResult]:
    """Return the knee of the response along its factor, and whether it is as published.

    The summary is None, and the claim does not hold, if the figure is the same at all levels or
    still falls at the largest one. It is undecided if a level has no figure.
    """
    values: dict[float, list[float]] = defaultdict(list)
    for trial in trials:
        value = _trial_value(run, trial, claim["response"], claim)
        if value is not None:
            values[float(trial.record.treatment[claim["along"]])].append(value)
    middles = {level: median(figures) for level, figures in values.items()}
    without = [level for level in run.factors[claim["along"]] if float(level) not in middles]
    if without:
        return None, (None, f"no figure for {claim['along']} {', '.join(without)}")
    knee = find_knee(list(middles.items()))
    if knee.value is None:
        return None, (False, f"there is no knee: {knee.reason}")
    gain = middles[min(middles)] / middles[knee.value]
    if gain < LEAST_GAIN:
        short = f"the least level takes only {gain:.2f} times as long as {knee.value:,.0f}"
        return None, (False, f"there is no knee: {short}")
    factor = float(claim["tolerance_factor"])
    held = is_within_factor(knee.value, float(claim["published"]), factor)
    reason = f"{knee.reason}; {'within' if held else 'outside'} a factor of {factor:g} of the"
    summary = MedianSummary(len(trials), knee.value, knee.value, knee.value, "knee")
    return summary, (held, f"{reason} published knee")
