"""The page of `pagecage predict`: for each treatment its trial, the volumes, and the instances."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pagecage.cli.cage_options import describe_volume, tier_name
from pagecage.cli.cage_page import console, plain_table, print_paragraphs, print_table
from pagecage.cli.predict_run import SourceTrial, TreatmentSource
from pagecage.cli.service_rate import ServiceRate, describe_target, format_figure
from pagecage.cloud.comparison import ANSWERS, LeftOut, VolumeRow
from pagecage.cloud.demand_walk import LATENCY, PROGRAM
from pagecage.cloud.enough import AS_FAST
from pagecage.cloud.instance_comparison import InstanceRow
from pagecage.cloud.prediction_notes import drained_notes, prediction_notes
from pagecage.cloud.run_prediction import VolumePrediction
from pagecage.units import format_bytes, format_hours
from pagecage.verdicts.counters import cpu_seconds, final_counter
from pagecage.verdicts.window_limit import WAITING

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
