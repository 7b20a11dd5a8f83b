"""Ratios between runs with their intervals, as a figure."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from analysis.figures.style import COLOURS, MARKERS
from analysis.summaries.comparison import Comparison, ComparisonRow, letter, name_of

_WIDTH = 10.8
_NOISE = "#8A8A8A"
_SHARED = 0.9
"""How much of a treatment's height its runs share."""
_DECADE = 10
"""A log axis that spans less has no second power of ten to label."""
RATIO_ALT = "Ratios of medians with their intervals, the noise floor grey"
_APART = tuple(COLOURS[place] for place in (0, 4, 2, 3, 5, 1, 6))


def ratio_figure(comparison: Comparison, rows: Sequence[ComparisonRow]) -> Figure | None:
    """Draw the ratios with their intervals on a log axis, the noise floor as a band around 1; None without ratios."""
    drawn = [row for row in rows if any(change.ratio and change.ratio.low > 0 for change in row.changes)]
    if not drawn:
        return None
    figure = Figure(figsize=(_WIDTH, 1.0 + 0.34 * len(drawn)))
    _draw(figure, comparison, drawn)
    return figure


def _draw(figure: Figure, comparison: Comparison, rows: Sequence[ComparisonRow]) -> None:
    axes, count = figure.subplots(), len(comparison.runs) - 1
    axes.axvline(1, color=_NOISE, lw=1)
    for place, row in enumerate(rows):
        for number, change in enumerate(row.changes):
            at = place + _SHARED * ((number + 0.5) / count - 0.5)
            colour, marker = _APART[number % len(_APART)], MARKERS[number % len(MARKERS)]
            if change.floor:
                share = 1 + change.floor.share
                axes.barh(at, share - 1 / share, left=1 / share, height=0.5 / count, color=_NOISE, alpha=0.3, lw=0)
            if change.ratio and change.ratio.low > 0 and change.ratio.high < float("inf"):
                axes.plot([change.ratio.low, change.ratio.high], [at, at], color=colour, lw=1.6)
                axes.plot([change.ratio.middle], [at], color=colour, marker=marker, ls="none", label=letter(number + 1))
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    if high / low < _DECADE:
        axes.xaxis.set_major_locator(MaxNLocator(7))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_yticks(range(len(rows)), [name_of(comparison, row.treatment) for row in rows])
    axes.invert_yaxis()
    handles, names = axes.get_legend_handles_labels()
    once = dict(zip(names, handles, strict=True))
    if count > 1:
        axes.legend(once.values(), once.keys(), loc="upper left", bbox_to_anchor=(1.01, 1.0))
