"""The figure that is predicted: the time of a program, or the rate of a service under its load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pagecage.errors import PagecageError
from pagecage.model.record import Record
from pagecage.model.services.metrics import MetricPattern, is_better_if_higher
from pagecage.units import format_hours


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
