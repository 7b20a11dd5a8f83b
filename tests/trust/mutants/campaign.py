"""All mutants, several at a time, and their results as plain data."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from tests.trust.mutants.lie import Mutant
from tests.trust.mutants.simulation import caught_by, simulate

AT_A_TIME = 3
"""A simulated trial mostly waits."""


def result(mutant: Mutant, found: str, reason: str = "") -> dict[str, Any]:
    """Return one result as plain data."""
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
    """Simulate one mutant."""
    simulated = simulate(mutant)
    found = caught_by(simulated)
    verdicts = simulated.verdicts
    reason = simulated.record.error or "; ".join(verdicts.reasons)
    return result(mutant, found, reason)


def try_all(mutants: Iterable[Mutant]) -> list[dict[str, Any]]:
    """Simulate mutants in processes of their own, since a lie may change a clock."""
    with ProcessPoolExecutor(AT_A_TIME, mp_context=get_context("spawn")) as pool:
        return list(pool.map(try_mutant, mutants))
