"""The page of `pagecage predict`: its source trials, the volumes and the instances."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pagecage.bundle.unpack import unpack
from pagecage.cli.cage_page import console, plain_table, print_paragraphs, print_table
from pagecage.cli.options import describe_volume, tier_name
from pagecage.cloud.comparison import (
    ANSWERS,
    InstanceRow,
    LeftOut,
    VolumeRow,
    drained_notes,
    prediction_notes,
)
from pagecage.cloud.enough import AS_FAST
from pagecage.cloud.prediction import LATENCY, PROGRAM, VolumePrediction
from pagecage.errors import UNREADABLE, PagecageError, nearest, why_unreadable
from pagecage.memory_search.rounds import with_rounds
from pagecage.model.record import Record
from pagecage.model.run_files import check_records, read_lines, read_plan
from pagecage.model.services import MetricPattern, is_better_if_higher
from pagecage.runner.run_folder import RunFolder, find_run, path_exists
from pagecage.units import format_bytes, format_hours
from pagecage.verdicts.counters import cpu_seconds, final_counter, whole_seconds
from pagecage.verdicts.io_demand import IoDemand, io_demand, undilated
from pagecage.verdicts.windows import WAITING


@dataclass(frozen=True)
class ServiceRate:
    """A rate that a load reached in `seconds`, such as `tps`.

    The I/O of the load is that of a fixed number of transactions. Where it takes twice the time,
    the rate is half as high.
    """

    name: str
    value: float
    seconds: float

    def within(self, seconds: float) -> float:
        """Return the rate if the I/O of the load took this time."""
        return self.value * self.seconds / seconds

    def seconds_for(self, value: float) -> float:
        """Return the time that the I/O of the load may take at this rate."""
        return self.value * self.seconds / value


def rate_of(definition: Mapping[str, Any], record: Record) -> ServiceRate | str | None:
    """Return the rate of a service's trial, or the reason why it has none.

    None stands for programs, and for loads that end by themselves, whose time is measured.
    """
    workload, name = definition["workload"], str(definition.get("response"))
    if workload.get("kind") != "service" or name not in workload.get("metrics", {}):
        return None
    table = workload["metrics"][name]
    pattern = MetricPattern(**table) if isinstance(table, Mapping) else None
    if not is_better_if_higher(name, pattern):
        return f"less {name} is better, and only a rate follows from the time of I/O"
    value = record.response.get(name)
    if not value or record.measured is None:
        return f"its load reported no {name}"
    return ServiceRate(name, value, record.measured.seconds)


def format_figure(rate: ServiceRate | None, seconds: float) -> str:
    """Format a predicted time, or the rate that follows from it."""
    return format_hours(seconds) if rate is None else f"{rate.within(seconds):,.3g}"


@dataclass(frozen=True)
class Goal:
    """The target of a prediction: a time, or the rate of a service; neither if there is none."""

    under_seconds: float | None = None
    at_least: float | None = None

    @property
    def is_set(self) -> bool:
        """True if there is a target."""
        return self.under_seconds is not None or self.at_least is not None

    def seconds_for(self, rate: ServiceRate | None) -> float | None:
        """Return the target as a time; None without one.

        Raises PagecageError for the time of a service, or the rate of another program.
        """
        if rate is not None and self.under_seconds is not None:
            message = f"--under: the load sets the time of the service; {rate.name} is predicted"
            raise PagecageError(message, f"--at-least {rate.value:.3g}")
        if rate is None and self.at_least is not None:
            message = "--at-least: the run has no rate of a service; its time is predicted"
            raise PagecageError(message, "--under 2min")
        if rate is None or self.at_least is None:
            return self.under_seconds
        return rate.seconds_for(self.at_least)


def describe_target(rate: ServiceRate | None, target: float) -> str:
    """Describe the target, for the head of a column and in a sentence."""
    if rate is None:
        return f"under {format_hours(target)}"
    return f"{rate.within(target):,.4g} {rate.name}"


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


_HELD = 0.01
"""Instances whose limits set less than this share of the time are listed without a row."""
_SINGLE = 1.5
"""Most requests at the disk at once, on average, of a program that waits for each of them.

Read-ahead raises it: 1.0 to 1.3 were seen where pages fault one after the other.
"""
_COLOURS = {"yes": "green", "expected": "green", "not expected": "yellow", "no": "red"}


@dataclass(frozen=True)
class TreatmentPrediction:
    """The rows of one treatment; empty if it allows no prediction.

    `target_seconds` is the time that a volume is to reach, or None.
    """

    treatment: TreatmentSource
    rows: tuple[VolumeRow, ...] = ()
    instances: tuple[InstanceRow, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    target_seconds: float | None = None

    @property
    def rate(self) -> ServiceRate | None:
        """The rate of a service; None for other programs."""
        return self.treatment.source.rate if self.treatment.source else None


def show(run_id: str, predictions: Sequence[TreatmentPrediction]) -> None:
    """Print the page."""
    out = console()
    out.print(f"[bold]{escape(run_id)}[/]")
    for one in predictions:
        out.print(f"\n[bold]{escape(one.treatment.label)}[/]", soft_wrap=True)
        if one.treatment.source is None:
            out.print(f"no prediction: {escape(one.treatment.reason)}")
            continue
        _show_trial(out, one.treatment.source)
        _show_volumes(out, one)
        if memory := _too_little_memory(one.treatment.source, one.rows):
            out.print(escape(memory), soft_wrap=True)
        _show_instances(out, one)
    rows = next(one.rows for one in predictions if one.rows)
    demands = [one.treatment.source.demand for one in predictions if one.treatment.source]
    print_paragraphs(out, prediction_notes(rows, demands))


def _show_trial(out: Console, source: SourceTrial) -> None:
    """Print the figures of the trial from which the times are predicted."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    for name, text in _facts(source):
        grid.add_row(f"[dim]{name}[/]", escape(text))
    print_table(out, grid)


def _facts(source: SourceTrial) -> Iterator[tuple[str, str]]:
    record, demand = source.record, source.demand
    of_trials = f", the median of {source.count} trials" if source.count > 1 else ""
    excluded = "" if source.is_counted else "; excluded, `pagecage show` has the reason"
    dilation = record.cage.dilation or 1.0
    slower = f" on a volume {dilation:g} times slower" if dilation != 1 else ""
    yield "measured", f"{_measured(source)}{slower}{of_trials}{excluded}"
    for name, ios, size in (("reads", "rios", "rbytes"), ("writes", "wios", "wbytes")):
        yield name, _amount(demand.total(ios), demand.total(size))
    if demand.latency_seconds is not None:
        single = ", one at a time" if (demand.depth or 2.0) < _SINGLE else ""
        yield "disk", f"{1e3 * demand.latency_seconds:.2g} ms a request{single}"
    used = cpu_seconds(record)
    cpu = "" if used is None else f", with {format_hours(used / demand.covered_share)} of CPU time"
    real = ", emulated: a real CPU needs a fraction" if record.emulated and cpu else ""
    free = format_figure(source.rate, demand.free_seconds)
    yield (
        "without limits",
        f"{free} {source.rate.name if source.rate else ''}".rstrip() + cpu + real,
    )
    if demand.capped_share >= WAITING:
        cage = f"limits of {record.cage.name}" if record.cage.name else "its limits"
        share = f"{demand.capped_share:.0%} of the run was held back by the {cage}"
        yield "", f"{share}, so the time without limits is uncertain"


def _measured(source: SourceTrial) -> str:
    if source.rate is None:
        return format_hours(source.seconds)
    return f"{source.rate.value:,.3g} {source.rate.name} in {format_hours(source.seconds)}"


def _amount(ios: float, size_bytes: float) -> str:
    if not ios:
        return "none"
    if not size_bytes:
        return f"{ios:,.0f}"
    return f"{ios:,.0f} of {format_bytes(size_bytes / ios)}, {format_bytes(size_bytes)} in all"


def _show_volumes(out: Console, one: TreatmentPrediction) -> None:
    table = _table("volume", "size and rates", of=one)
    table.columns[0].no_wrap = True
    for row in one.rows:
        name, layer = row.kind.name, row.profile.name
        table.add_row(
            f"[bold]{escape(name)}[/]", escape(_description(row)), *_cells(row, layer, one.rate)
        )
    out.print()
    print_table(out, table)
    for sentence in drained_notes(one.rows):
        out.print(escape(sentence), soft_wrap=True)
    for left_out in one.left_out:
        out.print(
            f"[dim]not compared: {escape(left_out.reason)} ({escape(left_out.hint)})[/]",
            soft_wrap=True,
        )
    if one.target_seconds is not None:
        out.print(escape(_conclusion(one.rows, one.target_seconds, one.rate)), soft_wrap=True)


def _too_little_memory(source: SourceTrial, rows: Sequence[VolumeRow]) -> str | None:
    """Return a sentence if the instance has less memory than the trial used."""
    peak = final_counter(source.record, "memory.peak")
    profile = rows[0].profile if rows else None
    if profile is None or profile.memory_bytes is None or not peak or peak <= profile.memory_bytes:
        return None
    return (
        f"{profile.memory_by} has {format_bytes(profile.memory_bytes)} of memory, and the run used"
        f" {format_bytes(peak)} with its page cache: pages that are read again are not predicted."
    )


def _show_instances(out: Console, one: TreatmentPrediction) -> None:
    """Print the instances that hold the run back, those with equal times in one row."""
    holding = [row for row in one.instances if row.prediction.held_share >= _HELD]
    if holding:
        out.print()
        table = _table("instance, with any volume", of=one)
        alike: dict[tuple[str, ...], list[str]] = {}
        for row in holding:
            alike.setdefault(tuple(_cells(row, "", one.rate)), []).append(_names(row))
        for cells, names in alike.items():
            table.add_row(escape(" ".join(names)), *cells)
        print_table(out, table)
    if one.instances:
        others = "The other instances" if holding else "The instances"
        out.print(f"[dim]{others} of the catalogue do not hold it back.[/]")


def _names(row: InstanceRow) -> str:
    types = f" ({', '.join(row.types)})" if row.types else ""
    return f"{' '.join(row.names)}{types}"


def _table(*heads: str, of: TreatmentPrediction) -> Table:
    target = of.target_seconds
    goal = [] if target is None else [describe_target(of.rate, target)]
    figure = of.rate.name if of.rate else "time"
    table = plain_table(*heads, figure, "range", "bound by", *goal)
    for column in table.columns[len(heads) :]:
        column.no_wrap = True
    return table


def _cells(row: VolumeRow | InstanceRow, volume: str, rate: ServiceRate | None) -> Iterator[str]:
    found = row.prediction
    yield format_figure(rate, found.seconds)
    yield _range(found, rate)
    yield escape(_cause(found, volume))
    if row.answer:
        yield f"[{_COLOURS[row.answer]}]{row.answer}[/]"


def _range(found: VolumePrediction, rate: ServiceRate | None) -> str:
    if rate is not None:
        return f"{format_figure(rate, found.high)} to {format_figure(rate, found.low)}"
    low, high = format_hours(found.low), format_hours(found.high)
    both = low.removesuffix(" s") if " min" not in high and low.endswith(" s") else low
    return f"{both} to {high}"


def _cause(found: VolumePrediction, volume: str) -> str:
    """Return the cause of most of the time, and the layer that sets a limit."""
    cause = found.cause
    if cause.limit == PROGRAM:
        return "the program"
    if cause.limit == LATENCY:
        return "latency"
    return f"{cause.limit}, {'volume' if cause.by == volume else 'instance'}"


def _description(row: VolumeRow) -> str:
    volume = row.profile.volume
    return describe_volume(volume, tier_name(row.kind, volume.size_bytes if volume else None))


def _conclusion(rows: Sequence[VolumeRow], target: float, rate: ServiceRate | None) -> str:
    """Return the volume with the lowest rates that reaches the target, or the nearest one."""
    goal = describe_target(rate, target)
    is_reached, reach = ("reaches", "reach") if rate else ("is", "be")
    best = min(rows, key=lambda row: ANSWERS.index(row.answer or "no"))
    if best.answer in ("not expected", "no"):
        fastest = min(row.prediction.seconds for row in rows)
        best = next(row for row in rows if row.prediction.seconds <= AS_FAST * fastest)
    found = best.prediction
    named = f"{best.kind.name} ({_description(best)})"
    if best.answer == "yes":
        return f"Enough with the lowest rates: {named}."
    times = f"{format_figure(rate, found.seconds)}, {_range(found, rate)}"
    if best.answer == "expected":
        certain = f"No volume is certain to {reach} {goal}."
        return f"{certain} Expected, with the lowest rates: {named}, {times}."
    verb = is_reached if best.answer == "no" else f"is expected to {reach}"
    return f"No volume {verb} {goal}. The nearest is {named}: {times}."
