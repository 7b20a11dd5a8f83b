"""The keys of a workload of kind `service`: the load of a server, and the figures in its output."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from pagecage.agent.responses import STANDARD_RESPONSES
from pagecage.definitions.fields import StrictTable
from pagecage.model.services.metrics import NAME, MetricPattern, wrong_pattern
from pagecage.model.services.spec import OWN_RESPONSES, ServiceSpec


def _checked_pattern(pattern: str) -> str:
    if reason := wrong_pattern(pattern):
        raise ValueError(reason)
    return pattern


def wrong_metric_name(name: str) -> str | None:
    """Return the reason why a metric cannot have this name; None if it can."""
    if not NAME.fullmatch(name):
        return f"{name!r} is not the name of a metric: small letters, digits and _, as in p99_ms"
    if name in STANDARD_RESPONSES or name in OWN_RESPONSES:
        return f"{name} is a response of every trial, so that no metric can have its name"
    return None


def _checked_names(metrics: dict[str, object]) -> dict[str, object]:
    for name in metrics:
        if reason := wrong_metric_name(name):
            raise ValueError(reason)
    return metrics


Pattern = Annotated[str, AfterValidator(_checked_pattern)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class MetricTable(StrictTable):
    """A figure in the load's standard output."""

    pattern: Pattern
    higher_is_better: bool | None = None

    def spec(self) -> MetricPattern:
        """Return the pattern as a trial has it."""
        return MetricPattern(self.pattern, self.higher_is_better)


class ServiceKeys(StrictTable):
    """The keys of a workload that only a `service` has."""

    load: list[str] = Field([], description="command that drives the server, from outside its cage")
    metrics: Annotated[dict[str, Pattern | MetricTable], AfterValidator(_checked_names)] = Field(
        {},
        description=(
            "figures in the load's standard output, by name: a regular expression with one group,"
            " or a JSON path that begins with $"
        ),
    )
    warm_up_seconds: Seconds = Field(
        0.0, description="the load runs for this time before it counts"
    )
    settle_seconds: Seconds = Field(
        0.0, description="pause between the warm-up and the measured load"
    )
    ready_timeout_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        None, description="the server must serve within this time"
    )
    stop_signal: Literal["TERM", "INT", "QUIT", "HUP", "KILL"] = Field(
        "TERM", description="signal that ends the server"
    )

    def given_service_keys(self) -> list[str]:
        """Return the keys of a service that differ from their defaults."""
        return [
            key
            for key, field in ServiceKeys.model_fields.items()
            if getattr(self, key) != field.default
        ]

    def service(self) -> ServiceSpec:
        """Return the load as a trial has it."""
        metrics = {
            name: MetricPattern(one) if isinstance(one, str) else one.spec()
            for name, one in self.metrics.items()
        }
        return ServiceSpec(
            tuple(self.load),
            metrics,
            self.warm_up_seconds,
            self.settle_seconds,
            self.ready_timeout_seconds,
            self.stop_signal,
        )


def wrong_response(response: str, service: ServiceKeys) -> str | None:
    """Return the reason why a service has no such response; None if it has."""
    if response in {*service.metrics, *OWN_RESPONSES, *STANDARD_RESPONSES}:
        return None
    known = ", ".join((*service.metrics, *OWN_RESPONSES))
    return f"response: the service has no metric {response!r}; known: {known}"
