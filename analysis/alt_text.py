"""The text that stands for a figure."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import pandas as pd

from analysis.figures.latencies import percentile_responses, tail_distribution
from analysis.figures.style import TreatmentStyle
from analysis.figures.traces import TimelinePanel
from analysis.formatting import format_quantity, response_title
from analysis.sweep import Sweep, sweep_sentences

_MOST_NAMED = 6
"""Number of treatments that a text names; further ones are only counted."""


def strip_alt_text(
    trial_df: pd.DataFrame, response: str, styles: Mapping[str, TreatmentStyle]
) -> str:
    """Describe the treatments with the lowest and the highest median."""
    title, points = response_title(response), "one point per trial"
    counted = trial_df[trial_df["is_included"]].get(response, pd.Series(dtype=float))
    points += "" if counted.notna().any() else ", none of them included"
    return f"{title}, {points}: {_extremes(_medians(trial_df, response), response, styles)}"


def curve_alt_text(
    lines: Mapping[str, pd.DataFrame], factor: str, levels: Sequence[str], response: str
) -> str:
    """Describe the first and the last point of each line."""
    parts = []
    for name, rows in lines.items():
        medians = rows.groupby(factor)[response].median()
        first, *_, last = [level for level in levels if level in medians.index]
        ends = ", ".join(
            f"{format_quantity(response, medians[level])} at {level}" for level in (first, last)
        )
        parts.append(f"{name}: {ends}" if name else ends)
    return f"{response_title(response)} over {factor.replace('_', ' ')}: {_first_of(parts)}"


def latency_alt_text(
    metric: str,
    trial_df: pd.DataFrame,
    latency_df: pd.DataFrame,
    styles: Mapping[str, TreatmentStyle],
) -> str:
    """Describe the latency that one in a hundred exceeds: its lowest and its highest value."""
    counted = latency_df[latency_df["is_included"] & (latency_df["what"] == metric)]
    found = {}
    for name, rows in counted.groupby("treatment", sort=False):
        values, shares = tail_distribution(rows)
        found[str(name)] = float(values[shares >= 0.01][-1])
    named = itertools.chain.from_iterable(percentile_responses(list(trial_df.columns)).values())
    column = next((column for column in named if column.startswith(f"{metric}_p99_")), None)
    if column:
        found = {**_medians(trial_df, column), **found}
    ends = _extremes(found, column or "x_us", styles)
    return f"Percentiles of {metric.replace('_', ' ')}; exceeded by one in a hundred: {ends}"


def timeline_alt_text(
    trace_df: pd.DataFrame,
    names: Sequence[str],
    specs: Sequence[TimelinePanel],
    styles: Mapping[str, TreatmentStyle],
) -> str:
    """Describe the mean of each panel in the measured part, by treatment."""
    inside = trace_df[
        (trace_df["seconds"] >= 0) & (trace_df["seconds"] <= trace_df["measured_seconds"])
    ]
    parts = []
    for name in names:
        rows = inside[inside["treatment"] == name]
        figures = [
            f"{spec.words} {format_quantity(spec.response, rows[spec.column].mean())}"
            for spec in specs
            if rows[spec.column].notna().any()
        ]
        parts.append(f"{styles[name].name}: {', '.join(figures) or 'no data'}")
    return f"Over time, on average: {_first_of(parts)}"


def residency_alt_text(
    shown: Mapping[str, pd.DataFrame], styles: Mapping[str, TreatmentStyle]
) -> str:
    """Describe the resident share of the data at first, at most and at last."""
    parts = []
    for name, rows in shown.items():
        shares = rows.sort_values("seconds")["resident_pages"] / rows["total_pages"].max()
        first, most, last = shares.iloc[0], shares.max(), shares.iloc[-1]
        described = f"{first:.0%} at first, {most:.0%} at most, {last:.0%} at last"
        parts.append(f"{styles[name].name}: {described}")
    return f"Resident share of the data over time. {_first_of(parts)}"


def readahead_alt_text(readahead_df: pd.DataFrame, styles: Mapping[str, TreatmentStyle]) -> str:
    """Describe the most frequent request size of each treatment."""
    parts = []
    for name, rows in readahead_df.groupby("treatment", sort=False):
        counts = rows.groupby("pages")["count"].sum()
        share = f"{counts.max() / counts.sum():.0%}"
        parts.append(f"{styles[str(name)].name}: {counts.idxmax()} pages in {share}")
    return f"Most frequent read-ahead request: {_first_of(parts)}"


def sweep_alt_text(sweep: Sweep) -> str:
    """Describe the first and the last figure, and the sweep's conclusions."""
    timed = [(point.level, point.measured) for point in sweep.points if point.measured is not None]
    response = sweep.response or "read_seconds"
    first, last = (
        f"{format_quantity(response, figure)} at {level}" for level, figure in (timed[0], timed[-1])
    )
    figure = response_title(sweep.response) if sweep.response else "Time"
    conclusions = " ".join(sweep_sentences(sweep))
    return f"{figure} and throughput over {sweep.property}: {first}, {last}. {conclusions}"


def _medians(trial_df: pd.DataFrame, response: str) -> dict[str, float]:
    """Return medians by treatment, over included trials, or over all if none is included."""
    if response not in trial_df:
        return {}
    counted = trial_df[trial_df["is_included"] & trial_df[response].notna()]
    rows = trial_df if counted.empty else counted
    return {
        str(name): float(value)
        for name, value in rows.groupby("treatment")[response].median().dropna().items()
    }


def _extremes(
    found: Mapping[str, float], response: str, styles: Mapping[str, TreatmentStyle]
) -> str:
    if not found:
        return "no trial is included"
    order = sorted(found, key=lambda name: found[name])
    first, last = order[0], order[-1]
    least, most = (
        f"{styles[one].name} {format_quantity(response, found[one])}" for one in (first, last)
    )
    if first == last:
        return least
    times = f", {_multiple(found[last] / found[first])}" if found[first] > 0 else ""
    return f"least {least}, most {most}{times}"


def _multiple(ratio: float) -> str:
    return f"{ratio:,.0f} times as much" if ratio >= 10 else f"{ratio:.2g} times as much"


def _first_of(parts: Sequence[str]) -> str:
    """Join the first sentences; further ones are only counted."""
    rest = len(parts) - _MOST_NAMED
    return "; ".join([*parts[:_MOST_NAMED], *([f"and {rest} more"] if rest > 0 else [])])
