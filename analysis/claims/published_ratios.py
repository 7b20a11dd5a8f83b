"""Published ratios of the treatments that a finding compares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from analysis.claims.rules import RATIO_RULES
from analysis.data.load import Run
from analysis.formatting import format_in_unit, format_published
from analysis.response_units import unit_scale


def published_ratios(run: Run) -> list[str]:
    """Return the published ratio of each finding, in the definition's order; empty without one.

    It is that of a claim about the same trials, or the ratio of two published figures.
    """
    claims = run.definition.get("claims", [])
    return [_published(finding, claims) for finding in run.definition.get("findings", [])]


def _published(finding: Mapping[str, Any], claims: Sequence[Mapping[str, Any]]) -> str:
    if not finding.get("over"):
        return ""
    for claim in claims:
        if claim["rule"] in RATIO_RULES and _is_about(claim, finding, "where", "over"):
            return format_published(claim["published"], "x")
    numerator, denominator = (
        next(_absolutes(finding, side, claims), None) for side in ("where", "over")
    )
    if not numerator or not denominator:
        return ""
    ratio = _value(numerator) / _value(denominator)
    parts = (
        format_published(claim["published"], claim["unit"]) for claim in (numerator, denominator)
    )
    return f"{format_in_unit(ratio, 'x')} ({' / '.join(parts)})"


def _absolutes(
    finding: Mapping[str, Any], side: str, claims: Sequence[Mapping[str, Any]]
) -> Iterator[Mapping[str, Any]]:
    """Yield the claims with one published number about one side of a finding."""
    for claim in claims:
        is_number = isinstance(claim["published"], int | float) and claim["published"]
        is_plain = not claim.get("per") and not claim.get("statistic")
        if (
            claim["rule"] == "absolute"
            and is_plain
            and is_number
            and claim["response"] == finding["response"]
            and (claim.get("where") or {}) == (finding.get(side) or {})
        ):
            yield claim


def _is_about(claim: Mapping[str, Any], finding: Mapping[str, Any], *sides: str) -> bool:
    return claim["response"] == finding["response"] and all(
        (claim.get(side) or {}) == (finding.get(side) or {}) for side in sides
    )


def _value(claim: Mapping[str, Any]) -> float:
    return float(claim["published"]) * unit_scale(claim["unit"])
