"""Conclusions of an article that a run contradicts."""

from __future__ import annotations

from collections.abc import Iterable

from analysis.claims.evaluate import ClaimResult
from analysis.formatting import format_measured, format_published
from pagecage.model.published_figures import CONCLUSION


def contradicted_conclusions(results: Iterable[ClaimResult]) -> list[ClaimResult]:
    """Return the conclusions that were judged and did not hold, in the order of the results.

    An undecided or incomparable conclusion contradicts nothing.
    """
    return [r for r in results if r.origin == CONCLUSION and r.verdict == "not_held"]


def contradiction_sentences(results: Iterable[ClaimResult]) -> list[str]:
    """Return a sentence per contradicted conclusion, for the first lines of a report."""
    return [
        f"This run contradicts its article ({result.id}): {result.says}, published as"
        f" {format_published(result.published, result.unit).replace('_', ' ')}, measured"
        f" {format_measured(result.measured, result.unit, result.verdict)}."
        for result in contradicted_conclusions(results)
    ]
