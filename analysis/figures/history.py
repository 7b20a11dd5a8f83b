"""Figure of a history: each treatment's level over the runs, with its changes."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from analysis.figures.charts import WIDTH
from analysis.figures.style import COLOURS, GREY
from analysis.formatting import format_quantity, treatment_label
from analysis.summaries.history import History, TreatmentHistory

HISTORY_ALT = "Medians with their intervals over the runs; a line marks each change of level"
_ACROSS = 3
_PANEL_HEIGHT = 1.9


def history_figure(history: History) -> Figure:
    """Draw a panel for each treatment: runs from left to right, each panel with its own scale."""
    count = len(history.treatments)
    rows = -(-count // _ACROSS)
    figure = Figure(figsize=(WIDTH, 0.5 + _PANEL_HEIGHT * rows), layout="constrained")
    positions = {str(run.plan["run_id"]): n for n, run in enumerate(history.runs)}
    panels = figure.subplots(rows, min(count, _ACROSS), squeeze=False, sharex=True).flat
    for number, axes in enumerate(panels):
        if number < count:
            _draw(axes, history.treatments[number], positions)
        else:
            axes.set_visible(False)
    return figure


def _draw(axes: Axes, history: TreatmentHistory, positions: dict[str, int]) -> None:
    at = [positions[point.run_id] for point in history.points]
    middle = [point.summary.middle for point in history.points]
    axes.vlines(
        at,
        [point.summary.low for point in history.points],
        [point.summary.high for point in history.points],
        color=COLOURS[0],
        lw=1,
    )
    axes.plot(at, middle, "o-", color=COLOURS[0], ms=3.5, lw=1)
    for change in history.changes:
        style = "-" if change.is_proven else ":"
        colour = COLOURS[1] if change.is_proven else GREY
        axes.axvline(positions[change.run_id] - 0.5, color=colour, ls=style, lw=1.2)
    low, high = min(middle), max(middle)
    if high <= low * 1.02:  # a steady level must not look like noise
        axes.set_ylim(0, high * 1.4 or 1)
    axes.set_title(treatment_label(history.treatment), fontsize=9)
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: format_quantity(history.response, value))
    )
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_xlim(-0.7, len(positions) - 0.3)
