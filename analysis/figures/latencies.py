"""Latency percentile curves, from histograms if there are any, otherwise from percentiles."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from operator import itemgetter
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter

from analysis.data.events import decode, events_in_measured_part
from analysis.data.load import JudgedTrial, Run
from analysis.figures.charts import WIDTH, draw_legend, extremes, label_lines, medians
from analysis.figures.style import MOST_GROUPS, Styles, TreatmentStyle, format_value_axis
from analysis.formatting import treatment_label
from pagecage.model.run_files import trace_path

COLUMNS = ("trial_id", "treatment", "is_included", "what", "us", "count")
_HDR = "_hdr_v2_base64"
_BLOCK = ("bio_write", "block_write")
_PERCENTILE = re.compile(r"^(?P<what>.+)_p(?P<digits>[0-9]+)_(?P<unit>us|ms|ns|seconds)$")
_POINTS_PER_DECADE = 60
"""Points per decade of the axis; more would fall on the same pixel."""
_FASTER = "share of operations that are faster"
_SHARES = (0.5, 0.1, 0.01, 0.001, 1e-4, 1e-5, 1e-6)


def latency_frame(run: Run) -> pd.DataFrame:
    """Return one row per histogram bucket of a trial: name, latency in microseconds and count."""
    rows = [
        {
            "trial_id": trial.record.trial_id,
            "treatment": treatment_label(trial.record.treatment),
            "is_included": trial.is_included,
            "what": metric,
            "us": us,
            "count": count,
        }
        for trial in run.trials
        for metric, counts in _histograms(run, trial)
        for us, count in sorted(counts.items())
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype({"is_included": bool})


def _histograms(run: Run, trial: JudgedTrial) -> Iterator[tuple[str, Mapping[float, int]]]:
    for key, text in (trial.record.workload.end or {}).items():
        if key.endswith(_HDR) and text:
            yield key.removesuffix(_HDR), {float(us): count for us, count in decode(text).items()}
    file, bins = trace_path(run.path, trial.record, "fio"), Counter[float]()
    with suppress(ValueError):  # without a report by fio, which prints other lines before it
        text = file.read_text() if file else "{}"
        for job in json.loads(text[text.index("{") :]).get("jobs", []):
            counts = job["read"].get("clat_ns", {}).get("bins", {})
            bins.update({int(ns) / 1e3: n for ns, n in counts.items()})
    yield "fio", bins
    for metric in _BLOCK:
        latency = itemgetter("us")
        yield metric, events_in_measured_part(run, trial, f"{metric}_us", latency, "blocklat")


def percentile_responses(columns: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return percentile responses by metric, each with its tail share: `x_p999_us` has 0.001."""
    found: dict[str, dict[str, float]] = {}
    for column in columns:
        match = _PERCENTILE.match(column)
        if match:
            share = 1 - float(f"0.{match['digits']}")
            found.setdefault(f"{match['what']}_{match['unit']}", {})[column] = share
    return {metric: named for metric, named in found.items() if len(named) > 1}


def tail_distribution(counts: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return sorted latencies, and the share of all that take at least as long."""
    summed = counts.groupby("us")["count"].sum().sort_index()
    values, total = summed.index.to_numpy(dtype=float), summed.sum()
    shares = (total - np.concatenate([[0], summed.cumsum().to_numpy()[:-1]])) / total
    positions = np.round(-np.log10(shares) * _POINTS_PER_DECADE)
    is_kept = np.concatenate([positions[1:] != positions[:-1], [True]])
    return values[is_kept], shares[is_kept]


def latency_figures(
    trial_df: pd.DataFrame, latency_df: pd.DataFrame, styles: Styles
) -> dict[str, Figure]:
    """Draw one figure per latency metric; both axes are logarithmic, the tail is on the right."""
    columns_by_metric = {
        metric.rpartition("_")[0]: named
        for metric, named in percentile_responses(list(trial_df.columns)).items()
    }
    counted = latency_df[latency_df["is_included"]]
    found = {}
    for metric in dict.fromkeys([*columns_by_metric, *counted["what"]]):
        named = columns_by_metric.get(metric, {})
        rows = trial_df[trial_df["is_included"]].dropna(subset=list(named), how="all")
        counts = counted[counted["what"] == metric]
        if len(counts) or (named and len(rows)):
            found[metric] = _figure(rows, named, counts, styles)
    return found


def _figure(
    rows: pd.DataFrame, named: Mapping[str, float], counts: pd.DataFrame, styles: Styles
) -> Figure:
    names = [name for name in styles if name in {*rows["treatment"], *counts["treatment"]}]
    along = list(dict.fromkeys(styles[name].along for name in names))
    levels = along if len(names) > MOST_GROUPS else [""]
    figure = Figure(figsize=(WIDTH, 4.8), layout="constrained")
    panels = figure.subplots(1, len(levels), squeeze=False, sharex=True, sharey=True)[0]
    for axes, level in zip(panels, levels, strict=True):
        for name in (name for name in names if level in ("", styles[name].along)):
            style = styles[name]
            label = style.others if level else style.name
            if len(levels) > 1:
                # Each panel has one level, so that line and marker may distinguish the treatments
                # of one colour instead.
                style = replace(style, line=style.curve_line, marker=style.curve_marker)
            line_df, count_df = (df[df["treatment"] == name] for df in (rows, counts))
            _draw_line(axes, line_df, count_df, named, style, label)
        axes.set_title(level)
    _format_axes(panels, next(iter(named), "x_us"))
    return figure


def _draw_line(
    axes: Axes,
    rows: pd.DataFrame,
    counts: pd.DataFrame,
    named: Mapping[str, float],
    style: TreatmentStyle,
    label: str,
) -> None:
    look: dict[str, Any] = {"color": style.colour, "ls": style.line, "marker": style.marker}
    look["lw"] = 1.5
    if len(counts):
        values, shares = tail_distribution(counts)
        is_shown = values > 0
        last = [int(is_shown.sum()) - 1]
        look |= {"drawstyle": "steps-post", "ms": 5, "markevery": last}
        axes.plot(shares[is_shown], values[is_shown], label=label, **look)
    elif named:
        middle = rows[sorted(named, key=lambda column: -named[str(column)])].median()
        known = middle[middle > 0].dropna()
        tails = [named[str(column)] for column in known.index]
        axes.plot(tails, known, ms=4.5, label=label, **look)


def _format_axes(panels: Sequence[Axes], response: str) -> None:
    lines = [line for axes in panels for line in axes.lines]
    positions = np.concatenate(
        [np.asarray(line.get_xdata(), dtype=float) for line in lines] or [np.array([0.01])]
    )
    least = float(positions.min(initial=0.5))
    shares = [share for share in _SHARES if share >= least / 1.3]
    for axes in panels:
        axes.set(xscale="log", yscale="log", xlim=(1.0, least / 1.3))
        axes.xaxis.set_major_locator(FixedLocator(shares if len(panels) == 1 else shares[::2]))
        axes.xaxis.set_minor_locator(FixedLocator([]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * (1 - share):.6g} %"))
    if len(panels) > 1:
        panels[0].figure.supxlabel(_FASTER, fontsize="medium")
    else:
        panels[0].set_xlabel(_FASTER)
    format_value_axis(panels[0].yaxis, response)
    panels[0].set_ylabel("time")
    last = panels[-1]
    if len(panels) == 1:
        label_lines(last)
        return
    for line in (line for axes in panels[:-1] for line in axes.lines):
        if line.get_label() not in last.get_legend_handles_labels()[1]:
            like = last.plot([], [], label=line.get_label(), color=line.get_color())[0]
            like.set_linestyle(line.get_linestyle())
            like.set_marker(str(line.get_marker()))
    draw_legend(last)


def latency_alt_text(
    metric: str, trial_df: pd.DataFrame, latency_df: pd.DataFrame, styles: Styles
) -> str:
    """Describe the lowest and highest latency that one in a hundred exceeds."""
    counted = latency_df[latency_df["is_included"] & (latency_df["what"] == metric)]
    found = {}
    for name, rows in counted.groupby("treatment", sort=False):
        values, shares = tail_distribution(rows)
        found[str(name)] = float(values[shares >= 0.01][-1])
    named = itertools.chain.from_iterable(percentile_responses(list(trial_df.columns)).values())
    column = next((column for column in named if column.startswith(f"{metric}_p99_")), None)
    if column:
        found = {**medians(trial_df, column), **found}
    ends = extremes(found, column or "x_us", styles)
    return f"Percentiles of {metric.replace('_', ' ')}; exceeded by one in a hundred: {ends}"
