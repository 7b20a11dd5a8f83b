"""Lies in records of trials: about a service, and those that only other repeats or the machine
around a guest show.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from pagecage.model.record import Record, record_from_json, record_to_json
from pagecage.verdicts.evaluate import evaluate
from reliability.mutants.simulation import Simulated, caught_by, verdict_of

EXAGGERATED = "load that reports twice the rate"
WHY_EXAGGERATED = "The server's counters do not tell how many requests its work was for."


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
        change(data)
        rows = honest.rows if name == EXAGGERATED else ()
        yield "services", name, "", caught_by(Simulated(record_from_json(data), rows))


REPEATS = 4
WITHOUT_RULE = "command that prints half of its output"
WHY_WITHOUT_RULE = (
    "The repeats are reported as different. Outputs with times in them differ as well, so that"
)
WHY_WITHOUT_RULE += " only `--same-output` excludes such a trial."
Data = dict[str, Any]


def _repeat(honest: Simulated) -> Data:
    data = copy.deepcopy(record_to_json(honest.record))
    _serve(data, 0.5)
    data["exit"]["stdout"] = {"bytes": 900, "hashed_bytes": 900, "sha256": "a" * 64}
    data["conditions"] = ["same-output"]
    for moment in ("before", "after"):
        data["outer_host"][moment] |= {
            "pressure": {"memory": {"some_us": 0}},
            "swap": {"in_bytes": 0, "out_bytes": 0},
            "disk": {"io_ms": 0, "sectors_read": 0, "sectors_written": 0},
        }
    return data


def _serve(data: Data, share: float) -> None:
    before, after = (data["counters"][moment]["device"] for moment in ("before", "after"))
    after["reads"] = before["reads"] + max(100, after["reads"] - before["reads"])
    busy_ms = round(1000 * share * data["measured"]["seconds"])
    for key in ("io_ticks", "read_ms"):
        after[key] = before[key] + busy_ms


def _slow(data: Data) -> None:
    _serve(data, 2.5)


def _prints_half(data: Data) -> None:
    data["exit"]["stdout"] = {"bytes": 450, "hashed_bytes": 450, "sha256": "b" * 64}


def _prints_half_without_rule(data: Data) -> None:
    _prints_half(data)
    data["conditions"] = []


def _swaps(data: Data) -> None:
    data["outer_host"]["after"]["swap"]["in_bytes"] = 64 << 20


def _waits_for_memory(data: Data) -> None:
    waited_us = round(0.3e6 * data["measured"]["seconds"])
    data["outer_host"]["after"]["pressure"]["memory"]["some_us"] = waited_us


def _outer_disk_is_busy(data: Data) -> None:
    busy_ms = round(1000 * data["measured"]["seconds"])
    data["outer_host"]["after"]["disk"] = {
        "io_ms": busy_ms,
        "sectors_read": 10_000_000,
        "sectors_written": 0,
    }


LIES: dict[str, Callable[[Data], None]] = {
    "disk slowed by a neighbour of the machine": _slow,
    "command that prints half of its output, which must be the same": _prints_half,
    WITHOUT_RULE: _prints_half_without_rule,
    "outer host swaps": _swaps,
    "outer host is short of memory": _waits_for_memory,
    "outer disk works for others": _outer_disk_is_busy,
}


def evidence_lies(honest: Simulated) -> Iterator[tuple[str, str, str, str]]:
    others = tuple(record_from_json(_repeat(honest)) for _ in range(REPEATS - 1))
    yield "evidence", "none", "", _caught(record_from_json(_repeat(honest)), others)
    for name, change in LIES.items():
        data = _repeat(honest)
        change(data)
        yield "evidence", name, "", _caught(record_from_json(data), others)


def _caught(record: Record, others: tuple[Record, ...]) -> str:
    return verdict_of(record, evaluate(record, repeats=others))
