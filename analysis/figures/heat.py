"""Heat tables: treatments by two or three factors, shaded by their figure on a log scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from analysis.data.load import Run
from analysis.figures.charts import WIDTH
from analysis.figures.style import GREY, INK, numeric_factor
from analysis.summaries.cells import make_cell, treatments

SHADES: Colormap = LinearSegmentedColormap.from_list(
    "heat", ["#FFF6E0", "#F3C15F", "#D5701A", "#7A2A08", "#3A0F02"]
)
"""Shades of decreasing lightness, so that their order survives grey print and colour blindness."""
COLUMNS = ("panel", "row", "column", "value", "text")
_MAX_PANELS = 4
_MIN_RATIO = 2.0
"""The least ratio of the largest to the smallest figure for which shades are drawn."""
_WHITE_TEXT_BELOW = 0.4
"""Shades of less luminance have white text."""


def heat_frame(run: Run, response: str) -> pd.DataFrame:
    """Return one row per cell: its levels, its median (NaN without one) and its text.

    Empty unless two or three factors vary, none of them is numeric, and the figures differ enough.
    """
    varying = [name for name in run.factors if name not in run.layout.constant]
    if len(varying) not in (2, 3) or run.layout.across is None or numeric_factor(run):
        return pd.DataFrame(columns=list(COLUMNS))
    rows = [_cell_row(run, treatment, response, varying) for treatment in treatments(run)]
    frame = pd.DataFrame(rows, columns=list(COLUMNS)).astype({"value": float})
    known = frame["value"][frame["value"] > 0]
    is_table = (
        frame["row"].nunique() > 1
        and frame["column"].nunique() > 1
        and frame["panel"].nunique() <= _MAX_PANELS
    )
    has_range = len(known) > 1 and known.max() >= _MIN_RATIO * known.min()
    return frame if is_table and has_range else frame.iloc[:0]


def _cell_row(
    run: Run, treatment: Mapping[str, str], response: str, varying: Sequence[str]
) -> tuple[Any, ...]:
    *panel, row, column = (treatment[name] for name in varying)
    cell = make_cell(run, treatment, response)
    return (
        panel[0] if panel else "",
        row,
        column,
        cell.summary.middle if cell.summary else None,
        cell.text,
    )


def heat_figure(heat_df: pd.DataFrame) -> Figure | None:
    """Draw one panel per level of the first of three factors; None for an empty frame."""
    if heat_df.empty:
        return None
    panels = list(dict.fromkeys(heat_df["panel"]))
    known = heat_df["value"][heat_df["value"] > 0]
    norm = LogNorm(float(known.min()), float(known.max()))
    figure = Figure(figsize=(WIDTH, 1.1 + 0.52 * heat_df["row"].nunique()), layout="constrained")
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        _draw_panel(axes, heat_df, panel, norm)
        if axes is not figure.axes[0]:
            axes.set_yticklabels([])
    return figure


def _draw_panel(axes: Axes, heat_df: pd.DataFrame, panel: str, norm: LogNorm) -> None:
    rows, columns = (list(dict.fromkeys(heat_df[name])) for name in ("row", "column"))
    shown = heat_df[heat_df["panel"] == panel]
    positions = [
        (columns.index(column), rows.index(row))
        for column, row in zip(shown["column"], shown["row"], strict=True)
    ]
    for position, text, value in zip(
        positions, shown["text"], shown["value"].to_numpy(dtype=float), strict=True
    ):
        _draw_cell(axes, *position, text, value, norm)
    axes.set_xlim(0, len(columns))
    axes.set_ylim(len(rows), 0)
    axes.set_xticks([position + 0.5 for position in range(len(columns))], columns)
    axes.set_yticks([position + 0.5 for position in range(len(rows))], rows)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.set_title(panel, fontweight="bold")


def _draw_cell(axes: Axes, x: int, y: int, text: str, value: float, norm: LogNorm) -> None:
    """Draw one cell; a cell without a figure is hatched."""
    inset = 0.02
    where, size = (x + inset, y + inset), (1 - 2 * inset, 1 - 2 * inset)
    if value > 0:
        shade = SHADES(norm(value))
        axes.add_patch(Rectangle(where, *size, facecolor=shade, edgecolor="none"))
        ink = "#FFFFFF" if luminance(shade) < _WHITE_TEXT_BELOW else "#111111"
    else:
        axes.add_patch(
            Rectangle(where, *size, facecolor="none", edgecolor=GREY, hatch="///", alpha=0.35, lw=0)
        )
        ink = INK
    axes.annotate(text, (x + 0.5, y + 0.5), ha="center", va="center", color=ink, fontsize=11)


def luminance(colour: Sequence[float]) -> float:
    """Return the luminance of a colour, 0 to 1 (Rec. 709 weights)."""
    return float(0.2126 * colour[0] + 0.7152 * colour[1] + 0.0722 * colour[2])
