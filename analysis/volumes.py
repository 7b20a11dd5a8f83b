"""Simulated volumes in a run: set and felt latencies."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analysis.cells import included_values, treatments, trials_of
from analysis.data.load import JudgedTrial, Run, Treatment
from pagecage.errors import PagecageError
from pagecage.model.cage import Cage, cage_from_json
from pagecage.verdicts.counters import on_disk
from pagecage.verdicts.volume_account import VolumeAccount, mean_latency_us, volume_account

SUFFIX = ".check.json"


@dataclass(frozen=True)
class VolumeCheck:
    """One check: the cage of the volume, the results by load, and those of its credit buckets."""

    name: str
    cage: Cage
    loads: tuple[Mapping[str, Any], ...]
    credits: tuple[Mapping[str, Any], ...]


def read_checks(folder: Path) -> list[VolumeCheck]:
    """Read all checks of a folder, by name. Raises PagecageError for a file that is none."""
    return [_read(path) for path in sorted(folder.glob(f"*{SUFFIX}"))]


def _read(path: Path) -> VolumeCheck:
    try:
        data = json.loads(path.read_text())
        loads, credits_ = tuple(data["loads"]), tuple(data["credits"])
        return VolumeCheck(
            path.name.removesuffix(SUFFIX), cage_from_json(data["cage"]), loads, credits_
        )
    except (OSError, ValueError, LookupError, TypeError) as error:
        hint = f"pagecage volume check NAME --json > {path}"
        raise PagecageError(f"{path} is not a check of a volume: {error}", hint) from None


@dataclass(frozen=True)
class VolumeSummary:
    """The volume of one treatment: medians over its trials with an account.

    `undilated` is the response divided by the dilation, None for another response than a time.
    `met` has the share of the time in which requests waited, by layer and unit of the limit.
    `latencies_us` are the mean latencies of reads and writes by the volume's clock, None without
    any. `late_share` is the share of replies later than the model decided. `disagreeing` counts the
    trials whose witnesses disagree. `paths` are the kinds of path to the volume. `path_us` is the
    median of their latencies, which were taken off; None if they were not measured. `disk` is a
    disk of the cage beside the data directory's; None for that one.
    """

    treatment: Treatment
    dilation: float
    undilated: float | None
    met: dict[str, float]
    latencies_us: tuple[float | None, float | None]
    late_share: float
    disagreeing: int
    trials: int
    paths: tuple[str, ...] = ()
    path_us: float | None = None
    disk: str | None = None


def volume_summaries(run: Run) -> list[VolumeSummary]:
    """Return the volumes of a run's treatments; empty if a cgroup enforces all limits."""
    found = (
        _summary(run, treatment, disk)
        for treatment in treatments(run)
        for disk in _disks(trials_of(run.trials, treatment))
    )
    return [one for one in found if one is not None]


def _disks(trials: Sequence[JudgedTrial]) -> list[str | None]:
    return [None, *dict.fromkeys(name for trial in trials for name in trial.record.disks)]


def _seen_from(trial: JudgedTrial, disk: str | None) -> JudgedTrial | None:
    """Return the trial with its record as seen from a disk; None if its cage lacks the disk."""
    if disk is None:
        return trial
    if disk not in trial.record.disks:
        return None
    return replace(trial, record=on_disk(trial.record, disk))


def _summary(run: Run, treatment: Treatment, disk: str | None) -> VolumeSummary | None:
    of_disk = (_seen_from(trial, disk) for trial in trials_of(run.trials, treatment))
    trials = [trial for trial in of_disk if trial and volume_account(trial.record)]
    accounts = [account for t in trials if (account := volume_account(t.record))]
    if not accounts:
        return None
    dilation = trials[0].record.cage.dilation or 1.0
    values = included_values(run, treatment, run.response)
    is_time = run.response.endswith("_seconds")
    return VolumeSummary(
        treatment,
        dilation,
        statistics.median(values) / dilation if values and is_time else None,
        _met(accounts),
        (_mean_us(trials, "read"), _mean_us(trials, "write")),
        statistics.median(a.late_operations / max(a.operations, 1) for a in accounts),
        sum(trial.verdicts.witnesses.verdict == "disagree" for trial in trials),
        len(trials),
        *_paths(trials),
        disk,
    )


def _paths(trials: Sequence[JudgedTrial]) -> tuple[tuple[str, ...], float | None]:
    """Return the kinds of path, none in older records, and the median of their latencies."""
    found = [(trial.record.cage.external or {}).get("path", {}) for trial in trials]
    kinds = tuple(dict.fromkeys(path["kind"] for path in found if path))
    latencies = [path["latency_us"] for path in found if "latency_us" in path]
    return kinds, statistics.median(latencies) if latencies else None


def _met(accounts: Sequence[VolumeAccount]) -> dict[str, float]:
    """Return the share of the time in which requests waited for each limit that was met."""
    names = dict.fromkeys(limit.title for a in accounts for limit in a.limits)
    shares = {
        name: statistics.median(_share(account, name) for account in accounts) for name in names
    }
    return {name: share for name, share in shares.items() if share}


def _share(account: VolumeAccount, name: str) -> float:
    met = (one.exceeded_seconds for one in account.limits if one.title == name)
    return max(met, default=0.0) / account.seconds if account.seconds else 0.0


def _mean_us(trials: Sequence[JudgedTrial], direction: str) -> float | None:
    """Return the median of the trials' mean latencies in microseconds."""
    means = [mean for t in trials if (mean := mean_latency_us(t.record, direction)) is not None]
    return statistics.median(means) if means else None
