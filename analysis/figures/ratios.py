"""Figure of the ratios between runs, with their intervals."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from analysis.figures.charts import WIDTH
from analysis.figures.curves import draw_legend
from analysis.figures.style import COLOURS, GREY, MARKERS
from analysis.summaries.compared_runs import run_letter
from analysis.summaries.comparison import Comparison, ComparisonRow, varying_label

_HEIGHT_SHARE = 0.9
"""Share of a treatment's height that its runs occupy."""
_DECADE = 10
"""A log axis that spans less has no second power of ten to label."""
RATIO_ALT = "Ratios of medians with their intervals; the noise floor is grey"
_RUN_COLOURS = tuple(COLOURS[position] for position in (0, 4, 2, 3, 5, 1, 6))


def ratio_figure(comparison: Comparison, rows: Sequence[ComparisonRow]) -> Figure | None:
    """Draw the ratios with intervals on a log axis, and the noise floor as a band around 1.

    None without ratios.
    """
    rows_with_ratio = [
        row for row in rows if any(change.ratio and change.ratio.low > 0 for change in row.changes)
    ]
    if not rows_with_ratio:
        return None
    figure = Figure(figsize=(WIDTH, 1.0 + 0.34 * len(rows_with_ratio)))
    _draw(figure, comparison, rows_with_ratio)
    return figure


def _draw(figure: Figure, comparison: Comparison, rows: Sequence[ComparisonRow]) -> None:
    axes, count = figure.subplots(), len(comparison.runs) - 1
    axes.axvline(1, color=GREY, lw=1)
    for position, row in enumerate(rows):
        for number, change in enumerate(row.changes):
            at = position + _HEIGHT_SHARE * ((number + 0.5) / count - 0.5)
            colour, marker = (
                _RUN_COLOURS[number % len(_RUN_COLOURS)],
                MARKERS[number % len(MARKERS)],
            )
            if change.floor:
                share = 1 + change.floor.share
                axes.barh(
                    at,
                    share - 1 / share,
                    left=1 / share,
                    height=0.5 / count,
                    color=GREY,
                    alpha=0.3,
                    lw=0,
                )
            if change.ratio and change.ratio.low > 0 and change.ratio.high < float("inf"):
                axes.plot([change.ratio.low, change.ratio.high], [at, at], color=colour, lw=1.6)
                axes.plot(
                    [change.ratio.middle],
                    [at],
                    color=colour,
                    marker=marker,
                    ls="none",
                    label=run_letter(number + 1),
                )
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    if high / low < _DECADE:
        axes.xaxis.set_major_locator(MaxNLocator(7))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_yticks(range(len(rows)), [varying_label(comparison, row.treatment) for row in rows])
    axes.invert_yaxis()
    draw_legend(axes, is_needed=count > 1)
