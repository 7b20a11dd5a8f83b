"""The proven figures of a run, for programs that read them in formats of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from analysis.data.load import Run, Treatment
from analysis.formatting import treatment_label
from analysis.response_units import depends_on_cpu_speed, response_scale
from analysis.stats.intervals import MedianSummary, summarise
from analysis.summaries.cells import included_values, treatments
from analysis.summaries.sweeps import is_metric_rate

_COUNTS = ("device_read_bytes", "device_reads", "major_faults")
"""Responses that hardly vary between repeats, and are therefore good gates."""


@dataclass(frozen=True)
class TreatmentFigure:
    """A response of one treatment, from its included trials alone.

    `values` are the trials' figures in plan order, and `summary` their median and interval.
    """

    name: str
    treatment: Treatment
    response: str
    values: tuple[float, ...]
    summary: MedianSummary


def responses_of(run: Run) -> tuple[str, ...]:
    """Return the main response, those of the experiment's further tables, and counts of I/Os."""
    tables = run.definition.get("tables") or []
    columns = (name for table in tables for name in table["columns"].values())
    return tuple(dict.fromkeys((run.response, *columns, *_COUNTS)))


def figures_of(run: Run, responses: Sequence[str]) -> Iterator[TreatmentFigure]:
    """Yield the figures of each treatment. One without an included trial has none."""
    for treatment in treatments(run):
        label = treatment_label(treatment)
        name = f"{run.plan['experiment']}: {label}" if label else str(run.plan["experiment"])
        for response in responses:
            if values := included_values(run, treatment, response):
                yield TreatmentFigure(name, treatment, response, tuple(values), summarise(values))


def is_rate(run: Run, response: str) -> bool:
    """Return whether more is better: a response per second, or such a metric of a service."""
    if response in run.metrics:
        return is_metric_rate(run, response)
    return response.endswith("_per_second")


def is_time(response: str) -> bool:
    """Return whether a response is a duration."""
    return depends_on_cpu_speed(response) and not response.endswith("_per_second")


def seconds(response: str, value: float) -> float:
    """Return a duration in seconds."""
    return value * response_scale(response)


def unit_of(response: str) -> str:
    """Return the unit that a response's name states: seconds, bytes, or none for a count."""
    endings = ("bytes_per_second", "per_second", "seconds", "bytes", "ms", "us", "ns", "percent")
    return next((unit for unit in endings if response.endswith(f"_{unit}")), "")
