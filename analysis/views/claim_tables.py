"""Tables of claims: published beside measured figures, as data frames whose cells are text."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from analysis.claims.evaluate import ClaimResult, evaluate_claims
from analysis.data.load import Run
from analysis.formatting import (
    break_at_semicolons,
    format_in_unit,
    format_measured,
    format_published,
    format_range,
    format_verdict,
)
from pagecage.model.published_figures import PublishedFigure

_SHORT_TEXT = 24


def claims_table(run: Run) -> pd.DataFrame:
    """Return the claims for which the run has a figure: published, measured, verdict and reason."""
    return pd.DataFrame(
        [_claim_row(result) for result in evaluate_claims(run) if not result.is_silent]
    )


def silent_table(run: Run) -> pd.DataFrame:
    """Return the claims for which the run has no figure, and the reasons."""
    silent = [_claim_row(result) for result in evaluate_claims(run) if result.is_silent]
    return pd.DataFrame(
        silent, columns=["claim", "statement", "published", "reason"] if silent else None
    )


def _claim_row(result: ClaimResult) -> dict[str, str]:
    spread = ""
    if result.low is not None and result.high is not None and result.n > 1:
        low, high = (
            format_in_unit(result.low, result.unit),
            format_in_unit(result.high, result.unit),
        )
        spread = f"\n{result.kind} {format_range(low, high)}, n {result.n}"
    return {
        "claim": result.id,
        "statement": break_at_semicolons(result.says),
        "published": _unbroken(format_published(result.published, result.unit)),
        "measured": _unbroken(format_measured(result.measured, result.unit, result.verdict))
        + spread,
        "verdict": _unbroken(format_verdict(result.verdict)),
        "reason": result.reason,
    }


def _unbroken(text: str) -> str:
    """Keep a figure beside its unit; a long list of flags may break between them."""
    return (
        text.replace(" ", "\N{NO-BREAK SPACE}")
        if len(text) <= _SHORT_TEXT
        else text.replace("|", " ")
    )


def untestable_table(run: Run, rows: Sequence[PublishedFigure]) -> pd.DataFrame:
    """Return the experiment's published figures that no run can test, grouped by reason."""
    found: dict[str, list[PublishedFigure]] = {}
    for row in rows:
        if row.untestable and run.plan["experiment"] in row.experiments:
            found.setdefault(row.untestable, []).append(row)
    return pd.DataFrame(
        [
            {
                "claims": ", ".join(row.id for row in figures),
                "published": _figures(figures),
                "reason": reason,
            }
            for reason, figures in found.items()
        ]
    )


def _figures(rows: Sequence[PublishedFigure]) -> str:
    return "; ".join(f"{row.metric} {format_published(row.published, row.unit)}" for row in rows)
