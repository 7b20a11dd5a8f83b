"""Timelines of the collectors that a definition brings along: fields below one another."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator

from analysis.figures.charts import ACROSS, WIDTH, wrapped_label
from analysis.figures.panels import shade_outside
from analysis.figures.style import TreatmentStyle
from analysis.formatting import format_quantity

MOST_FIELDS = 6
"""Fields of one collector that are drawn: the first ones that it prints."""
_PANEL_INCHES = 1.6
_FEW_POINTS = 40
"""With at most this many values per trial, each is marked."""


def drawn_fields(own_df: pd.DataFrame) -> list[str]:
    """Return the fields that are drawn."""
    return list(dict.fromkeys(own_df["field"]))[:MOST_FIELDS]


def own_figure(own_df: pd.DataFrame, styles: Mapping[str, TreatmentStyle]) -> Figure | None:
    """Draw the fields of one collector, with treatments side by side; None without any value."""
    names = [name for name in styles if name in set(own_df["treatment"])]
    if not names:
        return None
    fields = drawn_fields(own_df)
    height = -(-len(names) // ACROSS)
    across = min(ACROSS, len(names))
    figure = Figure(
        figsize=(WIDTH, 0.5 + _PANEL_INCHES * len(fields) * height), layout="constrained"
    )
    panels = figure.subplots(len(fields) * height, across, squeeze=False)
    for position in range(height * across):
        row, column = divmod(position, across)
        column_axes = [panels[row * len(fields) + depth][column] for depth in range(len(fields))]
        if position < len(names):
            _draw_treatment(column_axes, own_df, fields, styles[names[position]], names[position])
        for axes, field in zip(column_axes, fields, strict=True):
            axes.set_visible(position < len(names))
            axes.set_ylabel(field.replace("_", " ") if column == 0 else "")
    return figure


def _draw_treatment(
    column_axes: Sequence[Axes],
    own_df: pd.DataFrame,
    fields: Sequence[str],
    style: TreatmentStyle,
    name: str,
) -> None:
    rows = own_df[own_df["treatment"] == name]
    end = float(rows["measured_seconds"].max())
    first, last = min(0.0, float(rows["seconds"].min())), max(end, float(rows["seconds"].max()))
    for axes, field in zip(column_axes, fields, strict=True):
        _draw_field(axes, rows[rows["field"] == field], style)
        axes.set_xlim(first, last)
        shade_outside(axes, 0.0, end)
        _format_axis(axes, field, own_df)
        axes.tick_params(labelbottom=axes is column_axes[-1])
    column_axes[0].set_title(wrapped_label(style.name))
    column_axes[-1].set_xlabel("seconds since go")


def _draw_field(axes: Axes, rows: pd.DataFrame, style: TreatmentStyle) -> None:
    for _, of_trial in rows.groupby("trial_id", sort=False):
        ordered = of_trial.sort_values("seconds")
        marker = style.marker if len(ordered) <= _FEW_POINTS else ""
        axes.plot(
            ordered["seconds"],
            ordered["value"],
            color=style.colour,
            lw=1.2,
            alpha=0.8,
            marker=marker,
            ms=3.5,
        )


def _format_axis(axes: Axes, field: str, own_df: pd.DataFrame) -> None:
    """Set a vertical axis that all treatments share; it begins at 0 if no value is negative."""
    values = own_df[own_df["field"] == field]["value"]
    low, high = min(0.0, float(values.min())), float(values.max())
    margin = 0.05 * (high - low) or 1.0
    axes.set_ylim(low - (margin if low < 0 else 0.0), high + margin)
    top = axes.get_ylim()[1]
    is_binary = field.endswith("_bytes") and top > 4
    axes.yaxis.set_major_locator(
        MultipleLocator(2 ** math.ceil(math.log2(top / 4))) if is_binary else MaxNLocator(4)
    )
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_quantity(field, value)))


def own_alt_text(own_df: pd.DataFrame, styles: Mapping[str, TreatmentStyle]) -> str:
    """Describe the range of each drawn field, by treatment."""
    parts = []
    for field in drawn_fields(own_df):
        for name, rows in own_df[own_df["field"] == field].groupby("treatment", sort=False):
            low, high = (format_quantity(field, float(one)) for one in _range(rows["value"]))
            parts.append(f"{field} of {styles[str(name)].name} from {low} to {high}")
    more = len(parts) - MOST_FIELDS
    rest = f"; and {more} more" if more > 0 else ""
    return f"Numbers of a collector over time. {'; '.join(parts[:MOST_FIELDS])}{rest}"


def _range(values: pd.Series[float]) -> tuple[float, float]:
    return values.min(), values.max()
