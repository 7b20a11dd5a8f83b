"""A run that varied one limit: each value's time, what the model predicted for it from one trial, and the knee."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from analysis.data.load import JudgedTrial, Run
from analysis.data.traces import read_lines
from analysis.summaries.cells import matching
from pagecage.model.record import Record
from pagecage.units import format_seconds
from pagecage.verdicts.caps import is_io_cap, requested_caps
from pagecage.verdicts.prediction import Knee, Prediction, find_knee, predict

BINDS = 0.5
"""A cap binds where it would hold at least this share of the predicted time; elsewhere the program's own time rules."""


@dataclass(frozen=True)
class SweepPoint:
    """One value of the limit: the median time measured and the time predicted, in seconds; None is not known.

    `level` is what the value is called among the run's factors, `name` the same beside the other values of the sweep.
    `is_counted` is whether trials that nothing excludes stand behind it; the knee and the model are judged by those.
    """

    level: str
    name: str
    value: float
    measured_seconds: float | None
    predicted_seconds: float | None
    error: float | None
    binds: bool | None
    bound_by: str | None
    is_source: bool
    is_counted: bool


@dataclass(frozen=True)
class Sweep:
    """All points in order, the name of the value from which the model predicted, and the knee of what was measured."""

    property: str
    source: str | None
    points: tuple[SweepPoint, ...]
    knee: Knee


def sweep_of(run: Run) -> Sweep | None:
    """The sweep that a run is; None where it is none."""
    about = run.plan.get("sweep")
    if not about:
        return None
    trials = {level: matching(run.trials, {about["factor"]: level}) for level in about["values"]}
    source = _source(about, trials)
    points = tuple(
        _point(run, about, level, told, source) for level, told in trials.items()
    )  # fmt: skip
    times = [(point.value, point.measured_seconds) for point in points if point.measured_seconds and point.is_counted]
    return Sweep(about["property"], _name(about, source[0]) if source else None, points, find_knee(times))


def whole_seconds(record: Record) -> float | None:
    """The time of the whole pass: measured, and scaled where only a part was covered."""
    if not record.measured or record.outcome not in ("ok", "timed_out"):
        return None
    return record.measured.seconds / (record.response.get("covered_fraction") or 1.0)


def _timed(trials: list[JudgedTrial]) -> tuple[list[tuple[float, JudgedTrial]], bool]:
    """The trials with a time, shortest first: those that count, or else those that do not; and which of both."""
    timed = [(seconds, t) for t in trials if (seconds := whole_seconds(t.record)) is not None]
    counted = [pair for pair in timed if pair[1].is_included]
    return sorted(counted or timed, key=lambda pair: pair[0]), bool(counted)


def _source(about: Mapping[str, Any], trials: Mapping[str, list[JudgedTrial]]) -> tuple[str, JudgedTrial] | None:
    """The trial that the model reads: of the cage's own value, else of the least one; of several the median one.

    A trial that is excluded speaks only where no other does.
    """
    found = [(level, *_timed(trials.get(level, []))) for level in [about["own"], *about["values"]]]
    for level, timed, _ in sorted(found, key=lambda one: not one[2]):
        if timed:
            return level, timed[(len(timed) - 1) // 2][1]
    return None


def _point(
    run: Run, about: Mapping[str, Any], level: str, trials: list[JudgedTrial], source: tuple[str, JudgedTrial] | None
) -> SweepPoint:
    timed, is_counted = _timed(trials)
    measured = median(seconds for seconds, _ in timed) if timed else None
    told = _predicted(run, about, level, source)
    error = told.seconds / measured - 1 if told and told.seconds is not None and measured else None
    return SweepPoint(
        level=level, name=_name(about, level), value=about["values"][level], measured_seconds=measured, error=error,
        predicted_seconds=told.seconds if told else None,
        binds=told.held_share >= BINDS if told and told.held_share is not None else None,
        bound_by=trials[0].verdicts.binding_limit.verdict if trials else None,
        is_source=bool(source and source[0] == level), is_counted=is_counted,
    )  # fmt: skip


def _name(about: Mapping[str, Any], level: str) -> str:
    """The value alone: where whole cages are compared a level names its cage and the property before it."""
    return level.rpartition(f"{about['property']} ")[2]


def _predicted(
    run: Run, about: Mapping[str, Any], level: str, source: tuple[str, JudgedTrial] | None
) -> Prediction | None:
    """None for a limit that is no I/O cap: what memory or CPU cost under another limit one trial does not tell."""
    if source is None or not is_io_cap(about["property"]):
        return None
    record = source[1].record
    caps = {**requested_caps(record), about["property"]: about["values"][level]}
    return predict(record, read_lines(run.path, record, "sampler"), caps)


def sentences(sweep: Sweep) -> list[str]:
    """The knee, and how near the model came where a cap binds."""
    knee = sweep.knee
    told = [f"The knee is at {sweep.property} {knee.value:,.0f}: {knee.reason}." if knee.value else _upper(knee.reason)]
    errors = [
        abs(p.error) for p in sweep.points if p.error is not None and p.binds and p.is_counted and not p.is_source
    ]
    if errors:
        told.append(
            f"Where a cap binds, the prediction from {sweep.property} {sweep.source} alone came within "
            f"{100 * max(errors):.0f} % of what was measured ({len(errors)} value{'s' * (len(errors) > 1)})."
        )
    if not all(point.is_counted for point in sweep.points):
        told.append("In brackets: excluded trials alone, on which neither the knee nor the model is judged.")
    return told


def _upper(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def time_of(seconds: float | None, *, is_counted: bool = True) -> str:
    """A time for a table; in brackets where it rests on excluded trials alone."""
    text = "–" if seconds is None else format_seconds(seconds)
    return text if is_counted or seconds is None else f"({text}) †"


def error_of(point: SweepPoint) -> str:
    """How far the prediction was off, for a table; of the point that it was made from, that it was."""
    if point.is_source:
        return "made from this"
    return "–" if point.error is None else f"{100 * point.error:+.0f} %"


def rows(sweep: Sweep) -> list[dict[str, str]]:
    """The points as rows of a table."""
    return [
        {sweep.property: p.name, "measured": time_of(p.measured_seconds, is_counted=p.is_counted),
         "predicted": time_of(p.predicted_seconds), "off by": error_of(p), "held back by": p.bound_by or "–",
         "a cap binds": "–" if p.binds is None else "yes" if p.binds else "no"}
        for p in sweep.points
    ]  # fmt: skip
