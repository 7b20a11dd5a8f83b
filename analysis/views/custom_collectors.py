"""Figures and tables of a definition's own collectors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from statistics import median
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator

from analysis.alt_text import RunFrames
from analysis.data.frames import own_collector_names, own_frame
from analysis.figures.charts import ACROSS, WIDTH, wrapped_label
from analysis.figures.panels import shade_outside
from analysis.figures.style import TreatmentStyle
from analysis.formatting import format_quantity
from analysis.views.html import Html, figure_html, table_html

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


ABOUT_OWN = (
    "Numbers that programs and scripts of the definition printed, one line per trial. They ran"
    " outside of the cage. Grey: before <code>go</code> and after the end."
)
_COLUMNS = (
    "lines: median per trial; CPU: most CPU time in a trial, as a share of one CPU while the"
    " collector ran; silent: times without a line for more than a second longer than expected"
)


def own_section(data: RunFrames) -> Html | None:
    """Return a table and a figure per collector of the definition; None without any."""
    names = own_collector_names(data.run)
    if not names:
        return None
    own_df = own_frame(data.run)
    table = table_html(pd.DataFrame(_row(data, name) for name in names), "narrow")
    figures = "".join(_figure(data, own_df[own_df["collector"] == name], name) for name in names)
    note = f'<p class="source">{escape(_COLUMNS)}</p>'
    return Html(
        f"<h3>Collectors of this definition</h3><p>{ABOUT_OWN}</p>"
        f"{table.text if table else ''}{note}{figures}"
    )


def _row(data: RunFrames, name: str) -> dict[str, str]:
    entries = [entry for trial in data.run.trials if (entry := trial.record.collectors.get(name))]
    complete = sum(entry.get("status") == "ok" for entry in entries)
    lines = [count for entry in entries if isinstance(count := entry.get("lines"), int)]
    gaps = sum(gap for entry in entries if isinstance(gap := entry.get("gaps"), int))
    shares = list(_cpu_shares(entries))
    is_required = any(entry.get("required") for entry in entries)
    return {
        "collector": name,
        "complete": f"{complete} of {len(entries)} trials",
        "required": "yes" if is_required else "no",
        "lines": f"{median(lines):g}" if lines else "–",
        "silent": str(gaps),
        "CPU": f"{100 * max(shares):.1f} %" if shares else "–",
    }


def _cpu_shares(entries: Sequence[Mapping[str, Any]]) -> Iterator[float]:
    for entry in entries:
        used, seconds = entry.get("cpu_seconds"), entry.get("seconds")
        if isinstance(used, int | float) and isinstance(seconds, int | float) and seconds > 0:
            yield used / seconds


def _figure(data: RunFrames, own_df: pd.DataFrame, name: str) -> str:
    made = figure_html(
        lambda: own_figure(own_df, data.styles), lambda: own_alt_text(own_df, data.styles)
    )
    if made is None:
        return f'<p class="notice warn">{escape(name)}: no numbers to draw.</p>'
    more = own_df["field"].nunique() - MOST_FIELDS
    rest = f'<p class="source">{more} further fields are in its trace.</p>' if more > 0 else ""
    return f"<h4>{escape(name)}</h4>{made.text}{rest}"
