"""Simulated volumes in a run: set and felt latencies."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.cells import included_values, treatments, trials_of
from analysis.data.load import JudgedTrial, Run, Treatment
from analysis.stats import median_of_known
from pagecage.errors import UNREADABLE, PagecageError
from pagecage.model.cage import Cage, cage_from_json
from pagecage.model.record import Record
from pagecage.verdicts.counters import on_disk
from pagecage.verdicts.volume_account import mean_latency_us, volume_account

SUFFIX = ".check.json"


@dataclass(frozen=True)
class VolumeCheck:
    """One check: the cage of the volume, the results by load, and those of its credit buckets.

    `commit` is that of the harness; None for a harness without one.
    """

    name: str
    cage: Cage
    loads: tuple[Mapping[str, Any], ...]
    credits: tuple[Mapping[str, Any], ...]
    commit: str | None = None


def read_checks(folder: Path) -> list[VolumeCheck]:
    """Read all checks of a folder, by name. Raises PagecageError for any other content."""
    checks = []
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            data = json.loads(path.read_text())
            found = cage_from_json(data["cage"]), tuple(data["loads"]), tuple(data["credits"])
            commit = data.get("harness", {}).get("git_revision")
            checks.append(VolumeCheck(path.name.removesuffix(SUFFIX), *found, commit))
        except UNREADABLE as error:
            hint = f"pagecage volume check NAME --json > {path}"
            raise PagecageError(f"{path} is not a check of a volume: {error}", hint) from None
    return checks


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
    found = []
    for treatment in treatments(run):
        trials = trials_of(run.trials, treatment)
        for disk in (None, *dict.fromkeys(name for t in trials for name in t.record.disks)):
            pairs = [
                (trial, record)
                for trial in trials
                if disk is None or disk in trial.record.disks
                if volume_account(
                    record := trial.record if disk is None else on_disk(trial.record, disk)
                )
            ]
            if pairs:
                found.append(_summary(run, treatment, disk, pairs))
    return found


def _summary(
    run: Run, treatment: Treatment, disk: str | None, pairs: Sequence[tuple[JudgedTrial, Record]]
) -> VolumeSummary:
    """Summarise trials with an account, each with its record as seen from the disk."""
    records = [record for _, record in pairs]
    accounts = [account for record in records if (account := volume_account(record))]
    dilation = records[0].cage.dilation or 1.0
    values = included_values(run, treatment, run.response)
    is_time = run.response.endswith("_seconds")
    shares: dict[str, list[float]] = {}
    for title in dict.fromkeys(limit.title for account in accounts for limit in account.limits):
        for account in accounts:
            waited = [one.exceeded_seconds for one in account.limits if one.title == title]
            share = max(waited, default=0.0) / account.seconds if account.seconds else 0.0
            shares.setdefault(title, []).append(share)
    read, write = (
        median_of_known(mean_latency_us(record, direction) for record in records)
        for direction in ("read", "write")
    )
    paths = [(record.cage.external or {}).get("path", {}) for record in records]
    return VolumeSummary(
        treatment,
        dilation,
        statistics.median(values) / dilation if values and is_time else None,
        {title: middle for title, of in shares.items() if (middle := statistics.median(of))},
        (read, write),
        statistics.median(a.late_operations / max(a.operations, 1) for a in accounts),
        sum(trial.verdicts.witnesses.verdict == "disagree" for trial, _ in pairs),
        len(records),
        tuple(dict.fromkeys(path["kind"] for path in paths if path)),
        median_of_known(path.get("latency_us") for path in paths),
        disk,
    )
