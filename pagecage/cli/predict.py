"""`pagecage predict`: the time or rate of a run on another volume, and its page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pagecage.cli.cage_page import console, plain_table, print_paragraphs, print_table
from pagecage.cli.output import Json
from pagecage.cli.runs import opened_run
from pagecage.cloud.catalogue import offered_providers, tier_name
from pagecage.cloud.comparison import (
    ANSWERS,
    AS_FAST,
    InstanceRow,
    LeftOut,
    VolumeQuestion,
    VolumeRow,
    compare_instances,
    compare_volumes,
    drained_notes,
    prediction_notes,
)
from pagecage.cloud.prediction import (
    COVERED,
    LATENCY,
    PROGRAM,
    VolumePrediction,
    greatest_published_us,
)
from pagecage.cloud.profile import describe_volume
from pagecage.cloud.volume_request import parse_throughput
from pagecage.errors import (
    EXIT_GATE_FAILED,
    EXIT_GATE_UNDECIDED,
    EXIT_OK,
    UNREADABLE,
    PagecageError,
    nearest,
    why_unreadable,
)
from pagecage.memory_search.rounds import with_rounds
from pagecage.model.json_codec import JsonView
from pagecage.model.record import Record
from pagecage.model.run_files import check_records, read_lines, read_plan
from pagecage.model.services import MetricPattern, is_better_if_higher
from pagecage.planning.cage_choice import cage_options, offers
from pagecage.planning.options import CandidateOptions, Duration, Positive, Treatments
from pagecage.planning.plan import parse_treatment
from pagecage.runner.run_folder import RunFolder
from pagecage.terminal import COMMON
from pagecage.units import format_bytes, format_hours, parse_size_bytes
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


def rate_of(definition: JsonView, record: Record) -> ServiceRate | str | None:
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
    return format_hours(seconds) if rate is None else f"{rate.within(seconds):,.3g}"


@dataclass(frozen=True)
class Goal:
    """The target of a prediction: a time, or the rate of a service; neither if there is none."""

    under_seconds: float | None = None
    at_least: float | None = None

    @property
    def is_set(self) -> bool:
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
        return " ".join(f"{factor}={level}" for factor, level in self.levels.items())


def stored_treatments(
    name: str, wanted: Mapping[str, str]
) -> tuple[str, tuple[TreatmentSource, ...]]:
    """Return a run's id, and its treatments that have these levels, in the order of its factors."""
    with opened_run(name) as (folder, _):
        try:
            return _treatments(folder, wanted)
        except UNREADABLE as error:
            raise PagecageError(
                f"{name} cannot be read: {why_unreadable(error)}", "docs/FORMAT.md lists the keys"
            ) from None


def _treatments(
    folder: RunFolder, wanted: Mapping[str, str]
) -> tuple[str, tuple[TreatmentSource, ...]]:
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
    return run, tuple(sources)


def _source(
    folder: RunFolder,
    definition: JsonView,
    levels: Mapping[str, str],
    records: Sequence[Record],
) -> TreatmentSource:
    """Return the median of the trials that allow a prediction, or the reason why none does."""
    reason = f"its trial ended as {records[-1].outcome}"
    candidates: list[tuple[Record, float, ServiceRate | None]] = []
    for record in records:
        whole, found = whole_seconds(record), rate_of(definition, record)
        if isinstance(found, str):
            reason = found
        elif whole is not None:
            candidates.append((record, whole, found))
    if not candidates:
        return TreatmentSource(levels, None, reason)
    judge = folder.judge(folder.last_records())
    counted = [one for one in candidates if not judge(one[0]).excluded]
    ordered = sorted(counted or candidates, key=lambda one: -one[2].value if one[2] else one[1])
    record, seconds, rate = ordered[(len(ordered) - 1) // 2]
    demand = io_demand(record, read_lines(folder.path, record, "sampler"))
    if isinstance(demand, str):
        return TreatmentSource(levels, None, demand)
    demand = undilated(demand, record.cage.dilation or 1.0)
    trial = SourceTrial(record, demand, seconds, len(ordered), bool(counted), rate)
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


def _show(run_id: str, predictions: Sequence[TreatmentPrediction]) -> None:
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
        count, size_bytes = demand.total(ios), demand.total(size)
        each = f" of {format_bytes(size_bytes / count)}" if count and size_bytes else ""
        whole = f"{each}, {format_bytes(size_bytes)} in all" if each else ""
        yield name, f"{count:,.0f}{whole}" if count else "none"
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


def predict(
    name: str,
    /,
    *,
    under: Duration | None = None,
    at_least: Annotated[Positive | None, Parameter(metavar="RATE")] = None,
    treatment: Annotated[Treatments, Parameter(group=COMMON)] = (),
    options: CandidateOptions = CandidateOptions(),  # noqa: B008 - frozen
    as_json: Json = False,
) -> int:
    """Predict the time of a stored run on cloud volumes.

    The table has the time of each volume as a range, and the limit that would bind; for a service,
    its rate. With --under or --at-least it has the smallest size and rates that are enough; the
    exit status is 5 if nothing is, and 6 if that is not certain.

    Parameters
    ----------
    name
        Run: id, path, an experiment's name for its newest run, or a bundle
    under
        Target, for example 2min or 90s
    at_least
        Target of a service, in the unit of its rate, for example 500
    treatment
        Only treatments with this level; by default all that allow a prediction
    """
    question = _question(options)
    goal = Goal(under, at_least)
    run_id, treatments = stored_treatments(name, parse_treatment(treatment))
    predictions = [_prediction(one, question, goal) for one in treatments]
    _require_rows(predictions, run_id, name)
    if as_json:
        print(json.dumps(_to_json(run_id, predictions, question, goal)))
    else:
        _show(run_id, predictions)
    return _exit_code(predictions) if goal.is_set else EXIT_OK


def _question(options: CandidateOptions) -> VolumeQuestion:
    catalogue = offers()
    providers = offered_providers(catalogue, options.provider)
    if options.throughput is not None:
        parse_throughput(options.throughput, providers[0].types[0])
    return VolumeQuestion(
        providers,
        cage_options(options),
        greatest_published_us(catalogue),
        options.type or "",
        options.instance,
        None if options.size is None else parse_size_bytes(options.size, "--size"),
        None if options.iops is None else Fraction(options.iops),
        options.throughput,
    )


def _prediction(
    treatment: TreatmentSource, question: VolumeQuestion, goal: Goal
) -> TreatmentPrediction:
    if treatment.source is None:
        return TreatmentPrediction(treatment)
    demand, files = treatment.source.demand, treatment.source.record.cache.file_bytes
    seconds = goal.seconds_for(treatment.source.rate)
    asked = replace(question, least_bytes=files or 0, under_seconds=seconds)
    rows, left_out = compare_volumes(demand, asked)
    instances = compare_instances(demand, asked) if question.instance is None else []
    return TreatmentPrediction(treatment, tuple(rows), tuple(instances), tuple(left_out), seconds)


def _require_rows(predictions: Sequence[TreatmentPrediction], run_id: str, name: str) -> None:
    if any(one.rows for one in predictions):
        return
    for one in predictions:
        for left_out in one.left_out:
            raise PagecageError(left_out.reason, left_out.hint)
    reason = predictions[0].treatment.reason
    raise PagecageError(f"{run_id} allows no prediction: {reason}", f"pagecage show {name}")


def _exit_code(predictions: Sequence[TreatmentPrediction]) -> int:
    answers = ([ANSWERS.index(row.answer or "no") for row in one.rows] for one in predictions)
    worst = max(map(min, filter(None, answers)))
    if worst == ANSWERS.index("no"):
        return EXIT_GATE_FAILED
    return EXIT_OK if worst == 0 else EXIT_GATE_UNDECIDED


def _to_json(
    run_id: str, predictions: Sequence[TreatmentPrediction], question: VolumeQuestion, goal: Goal
) -> JsonView:
    return {
        "run_id": run_id,
        "under_seconds": goal.under_seconds,
        "at_least": goal.at_least,
        "start": question.options.start,
        "scale": float(question.options.scale),
        "range_coverage": COVERED,
        "treatments": [
            {
                "treatment": dict(one.treatment.levels),
                "reason": one.treatment.reason or None,
                "source": one.treatment.source and _source_to_json(one.treatment.source),
                **_rows_to_json(one),
                "left_out": [asdict(left_out) for left_out in one.left_out],
            }
            for one in predictions
        ],
    }


def _source_to_json(source: SourceTrial) -> JsonView:
    rate, demand = source.rate, source.demand
    return {
        "trial_id": source.record.trial_id,
        "seconds": source.seconds,
        "rate": rate and {"name": rate.name, "value": rate.value},
        "trials": source.count,
        "is_counted": source.is_counted,
        "emulated": source.record.emulated,
        "free_seconds": demand.free_seconds,
        "capped_share": demand.capped_share,
        "latency_seconds": demand.latency_seconds,
        "depth": demand.depth,
    }


def _rows_to_json(one: TreatmentPrediction) -> JsonView:
    volumes = [
        {
            "name": row.kind.name,
            "volume": row.profile.volume and asdict(row.profile.volume),
            "latency_seconds": asdict(row.latency),
            **_times_to_json(row.prediction, one.rate),
            "answer": row.answer,
        }
        for row in one.rows
    ]
    instances = [
        {
            "provider": row.provider,
            "names": list(row.names),
            "types": list(row.types),
            **_times_to_json(row.prediction, one.rate),
            "answer": row.answer,
        }
        for row in one.instances
    ]
    return {"volumes": volumes, "instances": instances}


def _times_to_json(found: VolumePrediction, rate: ServiceRate | None) -> JsonView:
    return {
        "seconds": found.seconds,
        "rate": None if rate is None else rate.within(found.seconds),
        "low": found.low,
        "high": found.high,
        "bound_by": {"limit": found.cause.limit, "by": found.cause.by or None},
        "share": found.share,
        "held_share": found.held_share,
        "drained": [
            {"limit": cause.limit, "by": cause.by or None, "after_seconds": seconds}
            for cause, seconds in found.drained.items()
        ],
    }
