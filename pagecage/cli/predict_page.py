"""The page of `pagecage predict`: its source trials, the volumes and the instances."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pagecage.cli.cage_page import console, plain_table, print_paragraphs, print_table
from pagecage.cli.runs import opened_run
from pagecage.cloud.catalogue import tier_name
from pagecage.cloud.comparison import (
    ANSWERS,
    AS_FAST,
    InstanceRow,
    LeftOut,
    VolumeRow,
    drained_notes,
    prediction_notes,
)
from pagecage.cloud.prediction import LATENCY, PROGRAM, VolumePrediction
from pagecage.cloud.profile import describe_volume
from pagecage.errors import UNREADABLE, PagecageError, nearest, why_unreadable
from pagecage.memory_search.rounds import with_rounds
from pagecage.model.record import Record
from pagecage.model.run_files import check_records, read_lines, read_plan
from pagecage.model.services import MetricPattern, is_better_if_higher
from pagecage.runner.run_folder import RunFolder
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
        """Return the rate if the I/O of the load took this time, in seconds."""
        return self.value * self.seconds / seconds


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
        """Return the target as a time; None without one."""
        if rate is not None and self.under_seconds is not None:
            message = f"--under: the load sets the time of the service; {rate.name} is predicted"
            raise PagecageError(message, f"--at-least {rate.value:.3g}")
        if rate is None and self.at_least is not None:
            message = "--at-least: the run has no rate of a service; its time is predicted"
            raise PagecageError(message, "--under 2min")
        if rate is None or self.at_least is None:
            return self.under_seconds
        return rate.value * rate.seconds / self.at_least


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


def stored_treatments(name: str, wanted: Mapping[str, str]) -> StoredTreatments:
    """Return the treatments of a run that have these levels."""
    with opened_run(name) as (folder, _):
        try:
            return _treatments(folder, wanted)
        except UNREADABLE as error:
            raise PagecageError(
                f"{name} cannot be read: {why_unreadable(error)}", "docs/FORMAT.md lists the keys"
            ) from None


def _treatments(folder: RunFolder, wanted: Mapping[str, str]) -> StoredTreatments:
    last = folder.last_records()
    plan = with_rounds(read_plan(folder.path), last, folder.judge(last))
    check_records(folder.path, plan, folder.records())
    definition, run = plan["definition"], plan["run_id"]
    factors = definition["factors"]
    groups: dict[Levels, list[Record]] = {}
    for record in last.values():
        levels = tuple((factor, record.treatment[factor]) for factor in factors)
        groups.setdefault(levels, []).append(record)
    ordered = sorted(groups, key=lambda levels: [factors[name].index(one) for name, one in levels])
    chosen = [levels for levels in ordered if wanted.items() <= dict(levels).items()]
    if not chosen:
        pairs = dict.fromkeys(f"{factor}={one}" for levels in ordered for factor, one in levels)
        asked = [f"{factor}={level}" for factor, level in wanted.items()]
        if unknown := [pair for pair in asked if pair not in pairs]:
            raise PagecageError(
                f"--treatment: {run} has no {unknown[0]}", nearest(unknown[0], list(pairs))
            )
        raise PagecageError(
            f"--treatment: {run} has no trial with {' and '.join(asked)}", f"pagecage show {run}"
        )
    sources = (_source(folder, definition, dict(levels), groups[levels]) for levels in chosen)
    return StoredTreatments(run, tuple(sources))


@dataclass(frozen=True)
class _Candidate:
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
    """Return the median of the trials that allow a prediction, or the reason why none does."""
    reason = f"its trial ended as {records[-1].outcome}"
    candidates = []
    for record in records:
        seconds, rate = whole_seconds(record), rate_of(definition, record)
        if isinstance(rate, str):
            reason = rate
        elif seconds is not None:
            candidates.append(_Candidate(record, seconds, rate))
    if not candidates:
        return TreatmentSource(levels, None, reason)
    judge = folder.judge(folder.last_records())
    counted = [one for one in candidates if not judge(one.record).excluded]
    ordered = sorted(counted or candidates, key=lambda one: one.slowness)
    median = ordered[(len(ordered) - 1) // 2]
    demand = io_demand(median.record, read_lines(folder.path, median.record, "sampler"))
    if isinstance(demand, str):
        return TreatmentSource(levels, None, demand)
    demand = undilated(demand, median.record.cage.dilation or 1.0)
    trial = SourceTrial(
        median.record, demand, median.seconds, len(ordered), bool(counted), median.rate
    )
    return TreatmentSource(levels, trial)


_HELD = 0.01
"""Instances whose limits set less than this share of the time are listed without a row."""
_SINGLE = 1.5
"""Most requests at the disk at once, on average, of a program that waits for each of them.

Read-ahead raises it: 1.0 to 1.3 were seen where pages fault one after the other.
"""
_COLOURS = dict(zip(ANSWERS, ("green", "green", "yellow", "yellow", "red"), strict=True))


@dataclass(frozen=True)
class TreatmentPrediction:
    """The rows of one treatment; empty if it allows no prediction."""

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
        source = one.treatment.source
        if source is None:
            out.print(f"no prediction: {escape(one.treatment.reason)}")
            continue
        grid = Table.grid(padding=(0, 2, 0, 0))
        for name, text in _facts(source):
            grid.add_row(f"[dim]{name}[/]", escape(text))
        print_table(out, grid)
        _show_volumes(out, one)
        if memory := _too_little_memory(source, one.rows):
            out.print(escape(memory), soft_wrap=True)
        _show_instances(out, one)
    rows = next(one.rows for one in predictions if one.rows)
    demands = [one.treatment.source.demand for one in predictions if one.treatment.source]
    print_paragraphs(out, prediction_notes(rows, demands))


def _facts(source: SourceTrial) -> Iterator[tuple[str, str]]:
    record, demand, rate = source.record, source.demand, source.rate
    time = format_hours(source.seconds)
    measured = f"{rate.value:,.3g} {rate.name} in {time}" if rate else time
    of_trials = f", the median of {source.count} trials" if source.count > 1 else ""
    excluded = "" if source.is_counted else "; excluded, `pagecage show` has the reason"
    dilation = record.cage.dilation or 1.0
    slower = f" on a volume {dilation:g} times slower" if dilation != 1 else ""
    yield "measured", f"{measured}{slower}{of_trials}{excluded}"
    for name, ios, size in (("reads", "rios", "rbytes"), ("writes", "wios", "wbytes")):
        yield name, _amount(demand.total(ios), demand.total(size))
    if demand.latency_seconds is not None:
        single = ", one at a time" if (demand.depth or 2.0) < _SINGLE else ""
        yield "disk", f"{1e3 * demand.latency_seconds:.2g} ms a request{single}"
    used = cpu_seconds(record)
    cpu = "" if used is None else f", with {format_hours(used / demand.covered_share)} of CPU time"
    real = ", emulated: a real CPU needs a fraction" if record.emulated and cpu else ""
    free = format_figure(rate, demand.free_seconds)
    yield "without limits", f"{free} {rate.name if rate else ''}".rstrip() + cpu + real
    if demand.capped_share >= WAITING:
        cage = f"limits of {record.cage.name}" if record.cage.name else "its limits"
        share = f"{demand.capped_share:.0%} of the run was held back by the {cage}"
        yield "", f"{share}, so the time without limits is uncertain"


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
        name = f"[bold]{escape(row.kind.name)}[/]"
        table.add_row(name, escape(_description(row)), *_cells(row, row.profile.name, one.rate))
    out.print()
    print_table(out, table)
    for sentence in drained_notes(one.rows):
        out.print(escape(sentence), soft_wrap=True)
    for left_out in one.left_out:
        reason = f"not compared: {escape(left_out.reason)} ({escape(left_out.hint)})"
        out.print(f"[dim]{reason}[/]", soft_wrap=True)
    if one.target_seconds is not None:
        out.print(escape(_conclusion(one.rows, one.target_seconds, one.rate)), soft_wrap=True)


def _too_little_memory(source: SourceTrial, rows: Sequence[VolumeRow]) -> str | None:
    peak = final_counter(source.record, "memory.peak")
    profile = rows[0].profile if rows else None
    if profile is None or profile.memory_bytes is None or not peak or peak <= profile.memory_bytes:
        return None
    return (
        f"{profile.memory_by} has {format_bytes(profile.memory_bytes)} of memory, and the run used"
        f" {format_bytes(peak)} with its page cache: pages that are read again are not predicted."
    )


def _show_instances(out: Console, one: TreatmentPrediction) -> None:
    holding = [row for row in one.instances if row.prediction.held_share >= _HELD]
    if holding:
        out.print()
        table = _table("instance, with any volume", of=one)
        alike: dict[tuple[str, ...], list[str]] = {}
        for row in holding:
            types = f" ({', '.join(row.types)})" if row.types else ""
            names = f"{' '.join(row.names)}{types}"
            alike.setdefault(tuple(_cells(row, "", one.rate)), []).append(names)
        for cells, groups in alike.items():
            table.add_row(escape(" ".join(groups)), *cells)
        print_table(out, table)
    if one.instances:
        others = "The other instances" if holding else "The instances"
        out.print(f"[dim]{others} of the catalogue do not hold it back.[/]")


def _table(*heads: str, of: TreatmentPrediction) -> Table:
    target = of.target_seconds
    goal = [] if target is None else [describe_target(of.rate, target)]
    figure = of.rate.name if of.rate else "time"
    table = plain_table(*heads, figure, "range", "bound by", *goal)
    for column in table.columns[len(heads) :]:
        column.no_wrap = True
    return table


def _cells(row: VolumeRow | InstanceRow, volume: str, rate: ServiceRate | None) -> Iterator[str]:
    cause = row.prediction.cause
    yield format_figure(rate, row.prediction.seconds)
    yield _range(row.prediction, rate)
    layer = "volume" if cause.by == volume else "instance"
    known = {PROGRAM: "the program", LATENCY: "latency"}
    yield escape(known.get(cause.limit, f"{cause.limit}, {layer}"))
    if row.answer:
        yield f"[{_COLOURS[row.answer]}]{row.answer}[/]"


def _range(found: VolumePrediction, rate: ServiceRate | None) -> str:
    if rate is not None:
        return f"{format_figure(rate, found.high)} to {format_figure(rate, found.low)}"
    low, high = format_hours(found.low), format_hours(found.high)
    both = low.removesuffix(" s") if " min" not in high and low.endswith(" s") else low
    return f"{both} to {high}"


def _description(row: VolumeRow) -> str:
    volume = row.profile.volume
    return describe_volume(volume, tier_name(row.kind, volume.size_bytes if volume else None))


def _conclusion(rows: Sequence[VolumeRow], target: float, rate: ServiceRate | None) -> str:
    """Return the volume with the lowest rates that reaches the target, or the nearest one."""
    goal = describe_target(rate, target)
    is_reached, reach = ("reaches", "reach") if rate else ("is", "be")
    best = min(rows, key=lambda row: ANSWERS.index(row.answer or "no"))
    if best.answer == "unknown":
        return (
            f"No conclusion about {goal}: the CPU of the run was emulated, and a real one needs a"
            " fraction of its time. Repeat the run on a real CPU; `pagecage doctor` says how."
        )
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
