"""The definition of a replayed service: its question, its findings and its tables."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from pagecage.model.cage import UNCAGED
from pagecage.model.services.metrics import MetricPattern, is_better_if_higher
from pagecage.model.services.spec import ServiceSpec


def service_question(server: Sequence[str], load: Sequence[str], cages: str) -> str:
    """Return the question of a replay, with both commands. `cages` is a list in words."""
    return f"How does `{shlex.join(server)}` serve the load `{shlex.join(load)}` in {cages}?"


def load_to_json(service: ServiceSpec | None) -> dict[str, Any]:
    """Return the keys of a workload that a file would hold for its load; empty without one."""
    if service is None:
        return {}
    return {
        "load": list(service.load),
        "metrics": {name: _metric(pattern) for name, pattern in service.metrics.items()},
        "warm_up_seconds": service.warm_up_seconds,
        "settle_seconds": service.settle_seconds,
        "ready_timeout_seconds": service.ready_timeout_seconds,
        "stop_signal": service.stop_signal,
    }


def _metric(pattern: MetricPattern) -> str | dict[str, Any]:
    if pattern.higher_is_better is None:
        return pattern.pattern
    return {"pattern": pattern.pattern, "higher_is_better": pattern.higher_is_better}


def service_tables(service: ServiceSpec | None) -> dict[str, Any]:
    """Return the table of all figures of a service; empty without one."""
    if service is None:
        return {}
    columns = {name.replace("_", " "): name for name in service.metrics}
    columns |= {"until the server serves": "ready_seconds", "load measured": "wall_seconds"}
    return {"tables": [{"title": "Figures of the load", "columns": columns}]}


def service_findings(service: ServiceSpec, cages: Sequence[str]) -> list[dict[str, Any]]:
    """Return the findings: each cage against the control, one for each metric and the start."""
    others = [cage for cage in cages if cage != UNCAGED]
    return [finding for cage in others for finding in _findings(service, cage)]


def _findings(service: ServiceSpec, cage: str) -> Iterator[dict[str, Any]]:
    """Yield findings whose ratio is above 1 where the cage costs something."""
    caged, free = {"cage": cage}, {"cage": UNCAGED}
    for name, pattern in service.metrics.items():
        if is_better_if_higher(name, pattern):
            says = f"Without limits, {name} is {{value}} times as high as in `{cage}`."
            yield {"says": says, "response": name, "where": free, "over": caged}
        else:
            says = f"In `{cage}`, {name} is {{value}} times as high as without limits."
            yield {"says": says, "response": name, "where": caged, "over": free}
    if not service.metrics:
        says = f"In `{cage}` the load takes {{value}} times as long as without limits."
        yield {"says": says, "response": "wall_seconds", "where": caged, "over": free}
    says = f"In `{cage}` it takes {{value}} times as long until the server serves."
    yield {"says": says, "response": "ready_seconds", "where": caged, "over": free}
