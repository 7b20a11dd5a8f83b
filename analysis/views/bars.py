"""Bars that stand for a report's figures in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from analysis.data.load import Run
from analysis.exchange.figures import figures_of
from analysis.formatting import response_title, treatment_label
from analysis.summaries.compared_runs import run_letter
from analysis.summaries.comparison import Comparison, ComparisonRow, varying_label
from pagecage.report.model import BarChart, Image


def change_bars(comparison: Comparison, rows: Sequence[ComparisonRow]) -> BarChart | None:
    """Return how many percent the last run differs from the first; None without a ratio.

    A treatment with a figure of zero in the first run has no ratio, and no bar. Nor has a single
    run.
    """
    found = [
        (varying_label(comparison, row.treatment), ratio.middle)
        for row in rows
        if row.changes and (ratio := row.changes[-1].ratio) and isfinite(ratio.middle)
    ]
    if not found:
        return None
    last = run_letter(len(comparison.runs) - 1)
    title = f"{response_title(rows[0].response)}: change from A to {last}, percent"
    return _chart(title, [(label, 100 * (ratio - 1)) for label, ratio in found])


def median_image(run: Run) -> Image:
    """Return the medians of the main response as a figure that only Markdown has."""
    return Image(lambda: None, _median_bars(run))


def _median_bars(run: Run) -> BarChart | None:
    """Return the medians; None without an included trial."""
    constant = run.layout.constant
    found = [
        (
            treatment_label({k: v for k, v in one.treatment.items() if k not in constant}),
            one.summary.middle,
        )
        for one in figures_of(run, (run.response,))
    ]
    title = f"{response_title(run.response)}, medians of included trials"
    return _chart(title, found) if found else None


def _chart(title: str, bars: Sequence[tuple[str, float]]) -> BarChart:
    return BarChart(title, tuple(label for label, _ in bars), tuple(value for _, value in bars))
