"""All lies in simulated trials and in records, what caught them, and their section of the page."""

from __future__ import annotations

import copy
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from pagecage.model.record import Record, record_from_json, record_to_json
from pagecage.verdicts.evaluate import evaluate
from reliability.campaign import read_results
from reliability.mutants.files import FORGED, FORGED_NAMES, HONEST, results
from reliability.mutants.lies import EQUIVALENT, INVISIBLE, SURVIVED, Lie, Mutant, mutants
from reliability.mutants.simulation import Simulated, caught_by, simulate, verdict_of

EXAGGERATED = "load that reports twice the rate"
WHY_EXAGGERATED = "The server's counters do not show how many requests it served."


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
        cpu = {"cpus": [1], "user_seconds": 0.0, "system_seconds": 0.0}
        data["load"] = {"metrics": {"tps": 1000.0}, **cpu}
        change(data)
        rows = honest.rows if name == EXAGGERATED else ()
        yield "services", name, "", caught_by(Simulated(record_from_json(data), rows))


REPEATS = 4
WITHOUT_RULE = "command that prints half of its output"
WHY_WITHOUT_RULE = (
    "The repeats are reported as different. Outputs with times in them differ as well, so that"
    " only `--same-output` excludes such a trial."
)
Record_ = dict[str, Any]


def _repeat(honest: Simulated) -> Record_:
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


def _serve(data: Record_, share: float) -> None:
    before, after = (data["counters"][moment]["device"] for moment in ("before", "after"))
    after["reads"] = before["reads"] + max(100, after["reads"] - before["reads"])
    busy_ms = round(1000 * share * data["measured"]["seconds"])
    for key in ("io_ticks", "read_ms"):
        after[key] = before[key] + busy_ms


def _slow(data: Record_) -> None:
    _serve(data, 2.5)


def _prints_half(data: Record_) -> None:
    data["exit"]["stdout"] = {"bytes": 450, "hashed_bytes": 450, "sha256": "b" * 64}


def _prints_half_without_rule(data: Record_) -> None:
    _prints_half(data)
    data["conditions"] = []


def _swaps(data: Record_) -> None:
    data["outer_host"]["after"]["swap"]["in_bytes"] = 64 << 20


def _waits_for_memory(data: Record_) -> None:
    waited_us = round(0.3e6 * data["measured"]["seconds"])
    data["outer_host"]["after"]["pressure"]["memory"]["some_us"] = waited_us


def _outer_disk_is_busy(data: Record_) -> None:
    busy_ms = round(1000 * data["measured"]["seconds"])
    disk = {"io_ms": busy_ms, "sectors_read": 10_000_000, "sectors_written": 0}
    data["outer_host"]["after"]["disk"] = disk


RECORD_LIES: dict[str, Callable[[Record_], None]] = {
    "disk slowed by a neighbour of the machine": _slow,
    "command that prints half of its output, which must be the same": _prints_half,
    WITHOUT_RULE: _prints_half_without_rule,
    "outer host swaps": _swaps,
    "outer host is short of memory": _waits_for_memory,
    "outer disk works for others": _outer_disk_is_busy,
}


def evidence_lies(honest: Simulated) -> Iterator[tuple[str, str, str, str]]:
    others = tuple(record_from_json(_repeat(honest)) for _ in range(REPEATS - 1))
    yield "evidence", "none", "", _caught_among(record_from_json(_repeat(honest)), others)
    for name, change in RECORD_LIES.items():
        data = _repeat(honest)
        change(data)
        yield "evidence", name, "", _caught_among(record_from_json(data), others)


def _caught_among(record: Record, others: tuple[Record, ...]) -> str:
    return verdict_of(record, evaluate(record, repeats=others))


AT_A_TIME = 3
"""A simulated trial mostly waits."""
_FOLDER = re.compile(r"/\S*/mutant-[^/]*/")
"""The folder of a simulated machine, which is another one each time."""


def result(mutant: Mutant, found: str, reason: str = "") -> dict[str, Any]:
    lie = mutant.lie
    return {
        "group": lie.group,
        "lie": lie.name,
        "moment": mutant.moment,
        "expected": lie.expected,
        "found": found,
        "why": lie.why,
        "reason": reason,
    }


def try_mutant(mutant: Mutant) -> dict[str, Any]:
    simulated = simulate(mutant)
    found = caught_by(simulated)
    verdicts = simulated.verdicts
    reason = simulated.record.error or "; ".join(verdicts.reasons)
    return result(mutant, found, _FOLDER.sub("/", reason))


def try_everything() -> dict[str, Any]:
    """Return the results of every simulated mutant and of every edit of a run."""
    scratch = Path(tempfile.mkdtemp(prefix="pagecage-mutants-"))
    try:
        honest = simulate(HONEST)
        edits = [as_row(*one) for one in (*edits_of_records(honest), *results(honest, scratch))]
    finally:
        shutil.rmtree(scratch)
    return {"mutants": [*try_all(mutants()), *edits]}


def edits_of_records(honest: Simulated) -> Iterator[tuple[str, str, str, str]]:
    """Yield class, lie, way and finding of each lie that is an edit of an honest record."""
    yield from service_lies(honest)
    yield from (row for row in evidence_lies(honest) if row[1] != "none")


def as_row(group: str, name: str, how: str, found: str) -> dict[str, Any]:
    """Return the result of an edit as plain data, by the kind of what caught it."""
    is_forged = name in FORGED_NAMES or (group == "baselines" and "again" in how)
    known = {EXAGGERATED: WHY_EXAGGERATED, WITHOUT_RULE: WHY_WITHOUT_RULE}
    why = FORGED if is_forged else known.get(name, "")
    lie = Lie(group, name, INVISIBLE if why else "", "", (how,), why)
    is_verdict = group in ("services", "evidence") or ":" not in found
    kind = found if is_verdict else found.partition(":")[0]
    return result(Mutant(lie, how), kind, found)


def try_all(planted: Iterable[Mutant]) -> list[dict[str, Any]]:
    """Simulate mutants in processes of their own, since a lie may change a clock."""
    with ProcessPoolExecutor(AT_A_TIME, mp_context=get_context("spawn")) as pool:
        return list(pool.map(try_mutant, planted))


STORED = "mutants.json"
_CAUGHT = "caught"
Row = Mapping[str, Any]
_INTRODUCTION = """Each lie was planted in a trial of the real agent on a simulated host, at every
possible moment. The kernel's files and the workload lie; the agent and the verdicts are real. A lie
is *caught* if the trial is refused, has no answer, or is excluded by a named verdict, so that no
table counts it as proven. It is *equivalent* if it changes no figure, and *invisible* if no counter
can show it. [METHODOLOGY.md](METHODOLOGY.md) has the thresholds below which a lie is too small to
be detected. The thresholds were chosen from stored trials, so these results are not an independent
test of false alarms.
"""


def mutants_summary(results: Path) -> Iterator[str]:
    """Yield the summary of planted lies, also of those in the guest."""
    counted = Counter(map(_state, _read(results)))
    told = sum(counted.values()) - counted[EQUIVALENT]
    yield (
        f"**Lies**: {counted[_CAUGHT]} of {told} planted lies that change a figure are caught,"
        f" {counted[INVISIBLE]} are invisible, and {counted[SURVIVED]} survived."
    )


def mutants_section(results: Path) -> Iterator[str]:
    rows = _read(results)
    if not rows:
        return
    counted = Counter(map(_state, rows))
    yield "## Lies that are caught\n"
    yield _INTRODUCTION
    tried = len(rows) - counted[EQUIVALENT]
    yield (
        f"{len(rows)} lies were planted, and {counted[EQUIVALENT]} of them are equivalent. Of the"
        f" other {tried}, {counted[_CAUGHT]} were caught ({100 * counted[_CAUGHT] / tried:.1f}"
        f" %), {counted[INVISIBLE]} are invisible and {counted[SURVIVED]} survived.\n"
    )
    for state, title in (
        (INVISIBLE, "Lies that no counter shows:"),
        (SURVIVED, "Lies that survived:"),
    ):
        if named := [row for row in rows if _state(row) == state]:
            yield f"{title}\n"
            yield "\n".join(_named(named)) + "\n"


def _read(results: Path) -> list[Row]:
    return list(read_results(results / STORED, {"mutants": []})["mutants"])


def _state(row: Row) -> str:
    if row["found"] != SURVIVED:
        return _CAUGHT
    return row["expected"] if row["expected"] in (EQUIVALENT, INVISIBLE) else SURVIVED


def _named(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a line for each reason, with the lies for which it holds."""
    by_reason: dict[str, dict[str, None]] = {}
    for row in rows:
        by_reason.setdefault(row["why"], {})[f"{row['group']}: {row['lie']}"] = None
    yield from (f"- {'; '.join(lies)}. {why}".rstrip() for why, lies in by_reason.items())
