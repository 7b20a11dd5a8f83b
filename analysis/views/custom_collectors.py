"""Figures and tables of custom collectors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from html import escape
from statistics import median
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, MultipleLocator

from analysis.data.frames import own_collector_names, own_frame
from analysis.data.load import Run
from analysis.figures.charts import ACROSS, WIDTH, stacked_axes, wrapped_label
from analysis.figures.panels import shade_outside
from analysis.figures.style import TreatmentStyle, quantity_formatter
from analysis.formatting import format_quantity
from analysis.views.html import Html, figure_html, table_html

MOST_FIELDS = 6
"""Fields of one collector that are drawn: the first ones that it prints."""
_PANEL_INCHES = 1.6
_FEW_POINTS = 40
"""With at most this many values per trial, each is marked."""


def own_figure(own_df: pd.DataFrame, styles: Mapping[str, TreatmentStyle]) -> Figure | None:
    """Draw the fields of one collector, with treatments side by side; None without any value."""
    names = [name for name in styles if name in set(own_df["treatment"])]
    if not names:
        return None
    fields = _drawn_fields(own_df)
    height = 0.5 + _PANEL_INCHES * len(fields) * -(-len(names) // ACROSS)
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    stacks = stacked_axes(figure, len(names), [field.replace("_", " ") for field in fields])
    for name, stack in zip(names, stacks, strict=True):
        _draw_treatment(stack, own_df, fields, styles[name], name)
    return figure


def _drawn_fields(own_df: pd.DataFrame) -> list[str]:
    return list(dict.fromkeys(own_df["field"]))[:MOST_FIELDS]


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
        for _, of_trial in rows[rows["field"] == field].groupby("trial_id", sort=False):
            points = of_trial.sort_values("seconds")
            marker = style.marker if len(points) <= _FEW_POINTS else ""
            look: dict[str, Any] = {
                "color": style.colour,
                "lw": 1.2,
                "alpha": 0.8,
                "marker": marker,
                "ms": 3.5,
            }
            axes.plot(points["seconds"], points["value"], **look)
        axes.set_xlim(first, last)
        shade_outside(axes, 0.0, end)
        values = own_df[own_df["field"] == field]["value"]
        low, high = min(0.0, float(values.min())), float(values.max())
        margin = 0.05 * (high - low) or 1.0
        axes.set_ylim(low - (margin if low < 0 else 0.0), high + margin)
        top = axes.get_ylim()[1]
        is_binary = field.endswith("_bytes") and top > 4
        axes.yaxis.set_major_locator(
            MultipleLocator(2 ** math.ceil(math.log2(top / 4))) if is_binary else MaxNLocator(4)
        )
        axes.yaxis.set_major_formatter(quantity_formatter(field))
        axes.tick_params(labelbottom=axes is column_axes[-1])
    column_axes[0].set_title(wrapped_label(style.name))
    column_axes[-1].set_xlabel("seconds since go")


def own_alt_text(own_df: pd.DataFrame, styles: Mapping[str, TreatmentStyle]) -> str:
    """Describe the range of each drawn field, by treatment."""
    parts = []
    for field in _drawn_fields(own_df):
        for name, rows in own_df[own_df["field"] == field].groupby("treatment", sort=False):
            values = rows["value"]
            low, high = (format_quantity(field, float(x)) for x in (values.min(), values.max()))
            parts.append(f"{field} of {styles[str(name)].name} from {low} to {high}")
    more = len(parts) - MOST_FIELDS
    rest = f"; and {more} more" if more > 0 else ""
    return f"Numbers of a collector over time. {'; '.join(parts[:MOST_FIELDS])}{rest}"


ABOUT_OWN = (
    "Numbers that programs and scripts of the definition printed, one line per trial. They ran"
    " outside of the cage. Grey: before <code>go</code> and after the end."
)
_COLUMNS = (
    "lines: median per trial; CPU: most CPU time in a trial, as a share of one CPU while the"
    " collector ran; silent: times without a line for more than a second longer than expected"
)


def own_section(run: Run, styles: Mapping[str, TreatmentStyle]) -> Html | None:
    """Return a table and a figure per collector of the definition; None without any."""
    names = own_collector_names(run)
    if not names:
        return None
    all_df, rows, figures = own_frame(run), [], ""
    for name in names:
        rows.append(_row(run, name))
        own_df = all_df[all_df["collector"] == name]
        made = figure_html(
            partial(own_figure, own_df, styles), partial(own_alt_text, own_df, styles)
        )
        if made is None:
            figures += f'<p class="notice warn">{escape(name)}: no numbers to draw.</p>'
            continue
        more = own_df["field"].nunique() - MOST_FIELDS
        rest = f'<p class="source">{more} further fields are in its trace.</p>' if more > 0 else ""
        figures += f"<h4>{escape(name)}</h4>{made.text}{rest}"
    table = table_html(pd.DataFrame(rows), "narrow")
    note = f'<p class="source">{escape(_COLUMNS)}</p>'
    return Html(
        f"<h3>Collectors of this definition</h3><p>{ABOUT_OWN}</p>"
        f"{table.text if table else ''}{note}{figures}"
    )


def _row(run: Run, name: str) -> dict[str, str]:
    entries = [entry for trial in run.trials if (entry := trial.record.collectors.get(name))]
    complete = sum(entry.get("status") == "ok" for entry in entries)
    lines = [count for entry in entries if isinstance(count := entry.get("lines"), int)]
    gaps = sum(gap for entry in entries if isinstance(gap := entry.get("gaps"), int))
    shares = []
    for entry in entries:
        used, seconds = entry.get("cpu_seconds"), entry.get("seconds")
        if isinstance(used, int | float) and isinstance(seconds, int | float) and seconds > 0:
            shares.append(used / seconds)
    return {
        "collector": name,
        "complete": f"{complete} of {len(entries)} trials",
        "required": "yes" if any(entry.get("required") for entry in entries) else "no",
        "lines": f"{median(lines):g}" if lines else "–",
        "silent": str(gaps),
        "CPU": f"{100 * max(shares):.1f} %" if shares else "–",
    }
