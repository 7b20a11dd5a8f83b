"""Services: a server in the cage, and a load that drives it from outside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pagecage.model.services.metrics import MetricPattern

STOP_SIGNALS = ("TERM", "INT", "QUIT", "HUP", "KILL")


@dataclass(frozen=True)
class ServiceSpec:
    """The load of a server, and the part of it that is measured.

    The load runs outside the cage. It runs for `warm_up_seconds` first and is then ended; after
    `settle_seconds` it runs again, and is measured from its start to its exit. `metrics` are
    figures in its standard output, by response. The server has `ready_timeout_seconds` to serve
    (None: the trial's timeout), and is ended by `stop_signal`. Its other settings are those of a
    command.
    """

    load: tuple[str, ...]
    metrics: Mapping[str, MetricPattern] = field(default_factory=dict)
    warm_up_seconds: float = 0.0
    settle_seconds: float = 0.0
    ready_timeout_seconds: float | None = None
    stop_signal: str = STOP_SIGNALS[0]


OWN_RESPONSES = ("ready_seconds", "wall_seconds")
"""Responses of every service: the time until it serves, and the length of the measured part."""


def service_to_json(service: ServiceSpec | None) -> dict[str, Any]:
    """Return the entry `service` of a workload as JSON data; empty without a service."""
    return {} if service is None else {"service": {**asdict(service), "load": list(service.load)}}


def service_from_json(data: Mapping[str, Any] | None) -> ServiceSpec | None:
    """Return the service of JSON data."""
    if data is None:
        return None
    metrics = {name: MetricPattern(**pattern) for name, pattern in data["metrics"].items()}
    return ServiceSpec(**{**data, "load": tuple(data["load"]), "metrics": metrics})
