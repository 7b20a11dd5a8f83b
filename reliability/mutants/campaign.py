"""All mutants, several at a time, and their results as plain data."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from reliability.mutants.evidence import (
    EXAGGERATED,
    WHY_EXAGGERATED,
    WHY_WITHOUT_RULE,
    WITHOUT_RULE,
    evidence_lies,
    service_lies,
)
from reliability.mutants.files import FORGED, FORGED_NAMES, HONEST, results
from reliability.mutants.lies import INVISIBLE, Lie, Mutant, mutants
from reliability.mutants.simulation import Simulated, caught_by, simulate

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
    why = (
        FORGED
        if is_forged
        else {EXAGGERATED: WHY_EXAGGERATED, WITHOUT_RULE: WHY_WITHOUT_RULE}.get(name, "")
    )
    lie = Lie(group, name, INVISIBLE if why else "", "", (how,), why)
    is_verdict = group in ("services", "evidence") or ":" not in found
    kind = found if is_verdict else found.partition(":")[0]
    return result(Mutant(lie, how), kind, found)


def try_all(planted: Iterable[Mutant]) -> list[dict[str, Any]]:
    """Simulate mutants in processes of their own, since a lie may change a clock."""
    with ProcessPoolExecutor(AT_A_TIME, mp_context=get_context("spawn")) as pool:
        return list(pool.map(try_mutant, planted))
