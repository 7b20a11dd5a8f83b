"""Lies of a service's load and of its server, in the record of a simulated trial."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from pagecage.model.record import record_from_json, record_to_json
from reliability.mutants.simulation import Simulated, caught_by

EXAGGERATED = "load that reports twice the rate"
WHY = "The server's counters do not tell how many requests its work was for."


def _served(honest: Simulated) -> dict[str, Any]:
    data = copy.deepcopy(record_to_json(honest.record))
    data["workload"]["program"] = "server"
    data["workload"]["end"] = {}
    data["response"] = {}
    data["load"] = {
        "metrics": {"tps": 1000.0},
        "cpus": [1],
        "user_seconds": 0.0,
        "system_seconds": 0.0,
    }
    return data


def _idle(data: dict[str, Any]) -> None:
    before = data["counters"]["before"]
    data["counters"]["after"]["cgroup"] = copy.deepcopy(before["cgroup"])
    data["counters"]["after"]["device"] = copy.deepcopy(before["device"])


def _warm(data: dict[str, Any]) -> None:
    before, after = (data["counters"][moment]["cgroup"] for moment in ("before", "after"))
    before["io.stat"] = copy.deepcopy(after["io.stat"])
    data["counters"]["before"]["device"] = copy.deepcopy(data["counters"]["after"]["device"])


def service_lies(honest: Simulated) -> Iterator[tuple[str, str, str, str]]:
    for name, change in (
        ("load that reached no server", _idle),
        ("server that had read its data before the load", _warm),
        (EXAGGERATED, lambda data: data["load"]["metrics"].update(tps=2000.0)),
    ):
        data = _served(honest)
        change(data)
        rows = honest.rows if name == EXAGGERATED else ()
        yield "services", name, "", caught_by(Simulated(record_from_json(data), rows))
