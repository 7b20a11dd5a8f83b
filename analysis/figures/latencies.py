"""Latencies over how rare they are: whole histograms where a record or a trace keeps one, percentiles elsewhere."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter

from analysis.data.event_counts import grown
from analysis.data.hdr_histogram import decode
from analysis.data.load import JudgedTrial, Run
from analysis.data.traces import trace_path
from analysis.figures.charts import WIDTH
from analysis.figures.curves import legend, quantities
from analysis.figures.style import MOST_GROUPS, TreatmentStyle
from analysis.formatting import label

COLUMNS = ("trial_id", "treatment", "is_included", "what", "us", "count")
_HDR = "_hdr_v2_base64"
_BLOCK = ("bio_write", "block_write")
_PERCENTILE = re.compile(r"^(?P<what>.+)_p(?P<digits>[0-9]+)_(?P<unit>us|ms|ns|seconds)$")
_A_DECADE = 60
"""Places of a line in a decade of the axis: more than it has pixels for."""
_SHARES = (0.5, 0.1, 0.01, 0.001, 1e-4, 1e-5, 1e-6)


def latency_frame(run: Run) -> pd.DataFrame:
    """One row a bucket of a trial's histogram: what it is of, the latency in microseconds, how often.

    Read are the HDR histograms of `end` lines, fio's bins, and what the collector `blocklat` counted.
    """
    rows = [
        {"trial_id": trial.record.trial_id, "treatment": label(dict(trial.record.treatment)),
         "is_included": trial.is_included, "what": what, "us": us, "count": count}
        for trial in run.trials for what, counts in _histograms(run, trial) for us, count in sorted(counts.items())
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype({"is_included": bool})


def _histograms(run: Run, trial: JudgedTrial) -> Iterator[tuple[str, Mapping[float, int]]]:
    end = trial.record.workload.end or {}
    for key, text in end.items():
        if key.endswith(_HDR) and text:
            yield key.removesuffix(_HDR), {float(us): count for us, count in decode(text).items()}
    yield "fio", _fio(run, trial)
    for what in _BLOCK:
        yield what, grown(run, trial, f"{what}_us", lambda entry: entry["us"], "blocklat")


def _fio(run: Run, trial: JudgedTrial) -> dict[float, int]:
    """fio's bins of all jobs together; none without its report."""
    file, bins = trace_path(run.path, trial.record, "fio"), Counter[float]()
    try:
        text = file.read_text() if file else "{}"
        jobs: Sequence[Mapping[str, Any]] = json.loads(text[text.index("{") :]).get("jobs", [])
    except ValueError:
        return {}
    for job in jobs:
        bins.update({int(ns) / 1e3: n for ns, n in job["read"].get("clat_ns", {}).get("bins", {}).items()})
    return dict(bins)


def percentiles(columns: Sequence[str]) -> dict[str, dict[str, float]]:
    """Responses by what they are percentiles of, each with the share that is slower: `x_p999_us` is 0.001."""
    found: dict[str, dict[str, float]] = {}
    for column in columns:
        match = _PERCENTILE.match(column)
        if match:
            share = 1 - float(f"0.{match['digits']}")
            found.setdefault(f"{match['what']}_{match['unit']}", {})[column] = share
    return {what: named for what, named in found.items() if len(named) > 1}


def rarity(counts: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Latencies in rising order, each with the share of all that take at least so long; of many neighbours one."""
    summed = counts.groupby("us")["count"].sum().sort_index()
    values, total = summed.index.to_numpy(dtype=float), summed.sum()
    shares = (total - np.concatenate([[0], summed.cumsum().to_numpy()[:-1]])) / total
    places = np.round(-np.log10(shares) * _A_DECADE)
    kept = np.concatenate([places[1:] != places[:-1], [True]])
    return values[kept], shares[kept]


def latency_figures(
    trial_df: pd.DataFrame, latency_df: pd.DataFrame, look: Mapping[str, TreatmentStyle]
) -> dict[str, Figure]:
    """For each latency a figure of it by what it is of; both axes are logarithmic, the rarest stand at the right."""
    told = {what.rpartition("_")[0]: named for what, named in percentiles(list(trial_df.columns)).items()}
    counted = latency_df[latency_df["is_included"]]
    found = {}
    for what in dict.fromkeys([*told, *counted["what"]]):
        named = told.get(what, {})
        rows = trial_df[trial_df["is_included"]].dropna(subset=list(named), how="all")
        counts = counted[counted["what"] == what]
        if len(counts) or (named and len(rows)):
            found[what] = _figure(rows, named, counts, look)
    return found


def _figure(
    rows: pd.DataFrame, named: Mapping[str, float], counts: pd.DataFrame, look: Mapping[str, TreatmentStyle]
) -> Figure:
    """One panel; where too many lines would cross in it one for each level along which treatments are alike."""
    names = [name for name in look if name in {*rows["treatment"], *counts["treatment"]}]
    levels = list(dict.fromkeys(look[name].along for name in names)) if len(names) > MOST_GROUPS else [""]
    figure = Figure(figsize=(WIDTH, 4.8), layout="constrained")
    panels = figure.subplots(1, len(levels), squeeze=False, sharex=True, sharey=True)[0]
    for axes, level in zip(panels, levels, strict=True):
        for name in names:
            if level in ("", look[name].along):
                said = look[name].group if level else look[name].name
                _line(
                    axes, rows[rows["treatment"] == name], named, counts[counts["treatment"] == name], look[name], said
                )
        axes.set_title(level)
    _finish(panels, next(iter(named), "x_us"))
    return figure


def _line(
    axes: Axes, rows: pd.DataFrame, named: Mapping[str, float], counts: pd.DataFrame, look: TreatmentStyle, said: str
) -> None:
    if len(counts):
        _whole(axes, counts, look, said)
    elif named:
        _points(axes, rows, named, look, said)


def _whole(axes: Axes, counts: pd.DataFrame, look: TreatmentStyle, said: str) -> None:
    """A histogram as steps, ending in a mark at the slowest of all."""
    values, shares = rarity(counts)
    shown = values > 0
    axes.plot(
        shares[shown], values[shown], color=look.colour, ls=look.line, lw=1.5, drawstyle="steps-post", label=said,
        marker=look.marker, ms=5, markevery=[int(shown.sum()) - 1],
    )  # fmt: skip


def _points(axes: Axes, rows: pd.DataFrame, named: Mapping[str, float], look: TreatmentStyle, said: str) -> None:
    """The medians of percentiles over trials."""
    order = sorted(named, key=lambda column: -named[column])
    middle = rows[order].median()
    known = middle[middle > 0].dropna()
    shares = [named[str(column)] for column in known.index]
    axes.plot(shares, known, color=look.colour, ls=look.line, marker=look.marker, ms=4.5, lw=1.5, label=said)


def _finish(panels: Sequence[Axes], response: str) -> None:
    lines = [line for axes in panels for line in axes.lines]
    places = np.concatenate([np.asarray(line.get_xdata(), dtype=float) for line in lines] or [np.array([0.01])])
    least = float(places.min(initial=0.5))
    shares = [share for share in _SHARES if share >= least / 1.3]
    for axes in panels:
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(1.0, least / 1.3)
        axes.xaxis.set_major_locator(FixedLocator(shares if len(panels) == 1 else shares[::2]))
        axes.xaxis.set_minor_locator(FixedLocator([]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * (1 - share):.6g} %"))
        axes.set_xlabel("of all are quicker than this")
    quantities(panels[0], response)
    panels[0].set_ylabel("time")
    _one_legend(panels)


def _one_legend(panels: Sequence[Axes]) -> None:
    """All names once, beside the last panel."""
    last = panels[-1]
    for line in (line for axes in panels[:-1] for line in axes.lines):
        if line.get_label() not in last.get_legend_handles_labels()[1]:
            like = last.plot([], [], label=line.get_label(), color=line.get_color())[0]
            like.set_linestyle(line.get_linestyle())
            like.set_marker(str(line.get_marker()))
    legend(last)
