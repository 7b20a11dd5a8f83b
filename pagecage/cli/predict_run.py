"""The treatments of a stored run, each with the trial from which its time is predicted."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagecage.bundle.unpack import unpack
from pagecage.cli.service_rate import ServiceRate, rate_of
from pagecage.errors import UNREADABLE, PagecageError, nearest, why_unreadable
from pagecage.memory_search.rounds import with_rounds
from pagecage.model.record import Record
from pagecage.model.run_files import check_records, read_plan
from pagecage.model.traces import read_lines
from pagecage.runner.run_folder import RunFolder, find_run, path_exists
from pagecage.verdicts.counters import whole_seconds
from pagecage.verdicts.io_demand import IoDemand, io_demand, undilated

Levels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class SourceTrial:
    """The trial from which a treatment's time is predicted: the median of its trials by time.

    `seconds` is its time for the whole pass, with the dilation of a simulated volume; `demand` is
    without it. `count` is the number of trials with a time. Without `is_counted` all of them are
    excluded. A service has a `rate`, by which its median is chosen.
    """

    record: Record
    demand: IoDemand
    seconds: float
    count: int
    is_counted: bool
    rate: ServiceRate | None = None


@dataclass(frozen=True)
class TreatmentSource:
    """A treatment of a run, with its source or the reason why it has none."""

    levels: Mapping[str, str]
    source: SourceTrial | None
    reason: str = ""

    @property
    def label(self) -> str:
        """The levels as `--treatment` takes them."""
        return " ".join(f"{factor}={level}" for factor, level in self.levels.items())


@dataclass(frozen=True)
class StoredTreatments:
    """The treatments of a stored run, in the order of its factors."""

    run_id: str
    treatments: tuple[TreatmentSource, ...]


def stored_treatments(runs: Path, name: str, wanted: Mapping[str, str]) -> StoredTreatments:
    """Return the treatments of a run that have these levels.

    `name` is that of a run, or the path of a bundle, which is unpacked while it is read. Raises
    PagecageError if there is no such run or treatment, or if the run cannot be read.
    """
    with _folder(runs, name) as folder:
        try:
            return _treatments(folder, wanted)
        except UNREADABLE as error:
            raise PagecageError(
                f"{name} cannot be read: {why_unreadable(error)}", "docs/FORMAT.md lists the keys"
            ) from None


@contextmanager
def _folder(runs: Path, name: str) -> Iterator[RunFolder]:
    """Find a run, or unpack a bundle; an error then names the bundle, not the temporary folder."""
    if not path_exists(Path(name)) or not Path(name).is_file():
        yield find_run(runs, name)
        return
    with tempfile.TemporaryDirectory(prefix="pagecage-predict-") as scratch:
        folder = Path(scratch) / "run"
        try:
            unpack(Path(name), folder)
            yield RunFolder(folder)
        except PagecageError as error:
            message = error.message.replace(str(folder), name)
            raise PagecageError(message, error.hint.replace(str(folder), name)) from None


def _treatments(folder: RunFolder, wanted: Mapping[str, str]) -> StoredTreatments:
    last = folder.last_records()
    plan = with_rounds(read_plan(folder.path), last, folder.judge(last))
    check_records(folder.path, plan, folder.records())
    groups = _by_treatment(folder, plan["definition"]["factors"])
    chosen = [levels for levels in groups if wanted.items() <= dict(levels).items()]
    if not chosen:
        raise _no_treatment(groups, wanted, plan["run_id"])
    sources = tuple(
        _source(folder, plan["definition"], dict(levels), groups[levels]) for levels in chosen
    )
    return StoredTreatments(plan["run_id"], sources)


def _by_treatment(
    folder: RunFolder, factors: Mapping[str, list[str]]
) -> dict[Levels, list[Record]]:
    """Return the last record of every trial by treatment, in the order of the definition."""
    groups: dict[Levels, list[Record]] = {}
    for record in folder.last_records().values():
        levels = tuple((factor, record.treatment[factor]) for factor in factors)
        groups.setdefault(levels, []).append(record)

    def position(levels: Levels) -> list[int]:
        return [factors[factor].index(level) for factor, level in levels]

    return {levels: groups[levels] for levels in sorted(groups, key=position)}


def _no_treatment(
    groups: Mapping[Levels, Any], wanted: Mapping[str, str], run: str
) -> PagecageError:
    pairs = dict.fromkeys(f"{factor}={level}" for levels in groups for factor, level in levels)
    unknown = [f"{f}={level}" for f, level in wanted.items() if f"{f}={level}" not in pairs]
    if unknown:
        return PagecageError(
            f"--treatment: {run} has no {unknown[0]}", nearest(unknown[0], list(pairs))
        )
    levels = " and ".join(f"{factor}={level}" for factor, level in wanted.items())
    return PagecageError(f"--treatment: {run} has no trial with {levels}", f"pagecage show {run}")


@dataclass(frozen=True)
class _Candidate:
    """A trial with a time, and the rate of a service."""

    record: Record
    seconds: float
    rate: ServiceRate | None

    @property
    def slowness(self) -> float:
        return self.seconds if self.rate is None else -self.rate.value


def _source(
    folder: RunFolder,
    definition: Mapping[str, Any],
    levels: Mapping[str, str],
    records: Sequence[Record],
) -> TreatmentSource:
    found = _candidates(definition, records)
    if isinstance(found, str):
        return TreatmentSource(levels, None, found)
    judge = folder.judge(folder.last_records())
    counted = [one for one in found if not judge(one.record).excluded]
    ordered = sorted(counted or found, key=lambda one: one.slowness)
    median = ordered[(len(ordered) - 1) // 2]
    record = median.record
    demand = io_demand(record, read_lines(folder.path, record, "sampler"))
    if isinstance(demand, str):
        return TreatmentSource(levels, None, demand)
    demand = undilated(demand, record.cage.dilation or 1.0)
    trial = SourceTrial(
        record, demand, median.seconds, len(ordered), bool(counted), rate=median.rate
    )
    return TreatmentSource(levels, trial)


def _candidates(definition: Mapping[str, Any], records: Sequence[Record]) -> list[_Candidate] | str:
    """Return the trials that allow a prediction, or the reason why none does."""
    reason, found = f"its trial ended as {records[-1].outcome}", []
    for record in records:
        seconds = whole_seconds(record)
        rate = rate_of(definition, record)
        if isinstance(rate, str):
            reason = rate
        elif seconds is not None:
            found.append(_Candidate(record, seconds, rate))
    return found or reason
