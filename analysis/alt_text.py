"""The text that stands for a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import pandas as pd

from analysis.data import frames
from analysis.data.load import Run
from analysis.figures import latencies
from analysis.figures.latencies import percentile_responses, tail_distribution
from analysis.figures.style import TreatmentStyle, treatment_styles
from analysis.figures.traces import TimelinePanel
from analysis.formatting import format_quantity, response_title
from analysis.sweep import Sweep, sweep_sentences


class RunFrames:
    """A run whose data frames are made once, on first use."""

    def __init__(self, run: Run) -> None:
        self.run = run

    @cached_property
    def trial_df(self) -> pd.DataFrame:
        """One row per trial."""
        return frames.trial_frame(self.run)

    @cached_property
    def sample_df(self) -> pd.DataFrame:
        """One row per timed pass of a workload."""
        return frames.sample_frame(self.run)

    @cached_property
    def counter_df(self) -> pd.DataFrame:
        """One row per kernel counter of a trial."""
        return frames.counter_frame(self.run)

    @cached_property
    def trace_df(self) -> pd.DataFrame:
        """One row per 0.1 s of a trial: rates of the slice's I/O."""
        return frames.trace_frame(self.run)

    @cached_property
    def latency_df(self) -> pd.DataFrame:
        """One row per bucket of a trial's latency histograms."""
        return latencies.latency_frame(self.run)

    @cached_property
    def styles(self) -> dict[str, TreatmentStyle]:
        """The style of each treatment, the same in every figure."""
        return treatment_styles(self.run)


_MOST_NAMED = 6
"""Number of treatments that a text names; further ones are only counted."""


def strip_alt_text(
    trial_df: pd.DataFrame, response: str, styles: Mapping[str, TreatmentStyle]
) -> str:
    """Describe the treatments with the lowest and the highest median."""
    counts = (
        bool((trial_df["is_included"] & trial_df[response].notna()).any())
        if response in trial_df
        else False
    )
    points = "one point per trial" if counts else "one point per trial, none of them included"
    return (
        f"{response_title(response)}, {points}:"
        f" {_extremes(_medians(trial_df, response), response, styles)}"
    )


def heat_alt_text(heat_df: pd.DataFrame, response: str) -> str:
    """Describe the lowest and the highest cell, and the cells without a figure."""
    known = heat_df[heat_df["value"] > 0].sort_values("value")
    ends = [f"{_cell(row)} {row['text']}" for _, row in known.iloc[[0, -1]].iterrows()]
    times = known["value"].iloc[-1] / known["value"].iloc[0]
    without = [
        f"{_cell(row)} {row['text']}" for _, row in heat_df[heat_df["value"].isna()].iterrows()
    ]
    rest = f"; without a figure: {_first_of(without)}" if without else ""
    return (
        f"{response_title(response)} by two factors: least {ends[0]}, most {ends[1]},"
        f" {_as_multiple(times)}{rest}"
    )


def _cell(row: pd.Series[Any]) -> str:
    return " · ".join(str(level) for level in (row["panel"], row["row"], row["column"]) if level)


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
    found = {
        str(name): _one_in_a_hundred(rows)
        for name, rows in counted.groupby("treatment", sort=False)
    }
    named = [
        column for some in percentile_responses(list(trial_df.columns)).values() for column in some
    ]
    column = next((column for column in named if column.startswith(f"{metric}_p99_")), None)
    if column:
        found = {**_medians(trial_df, column), **found}
    ends = _extremes(found, column or "x_us", styles)
    return f"Percentiles of {metric.replace('_', ' ')}; exceeded by one in a hundred: {ends}"


def _one_in_a_hundred(rows: pd.DataFrame) -> float:
    values, shares = tail_distribution(rows)
    return float(values[shares >= 0.01][-1])


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
        first, most, last = (
            f"{share:.0%}" for share in (shares.iloc[0], shares.max(), shares.iloc[-1])
        )
        parts.append(f"{styles[name].name}: {first} at first, {most} at most, {last} at last")
    return f"Resident share of the data over time. {_first_of(parts)}"


def readahead_alt_text(readahead_df: pd.DataFrame, styles: Mapping[str, TreatmentStyle]) -> str:
    """Describe the most frequent request size of each treatment."""
    parts = []
    for name, rows in readahead_df.groupby("treatment", sort=False):
        counts = rows.groupby("pages")["count"].sum()
        parts.append(
            f"{styles[str(name)].name}: {counts.idxmax()} pages in"
            f" {counts.max() / counts.sum():.0%}"
        )
    return f"Most frequent read-ahead request: {_first_of(parts)}"


def sweep_alt_text(sweep: Sweep) -> str:
    """Describe the first and the last figure, and the sweep's conclusions."""
    timed = [(point.level, point.measured) for point in sweep.points if point.measured is not None]
    ends = ", ".join(
        f"{format_quantity(sweep.response or 'read_seconds', figure)} at {level}"
        for level, figure in (timed[0], timed[-1])
    )
    figure = response_title(sweep.response) if sweep.response else "Time"
    return (
        f"{figure} and throughput over {sweep.property}: {ends}. {' '.join(sweep_sentences(sweep))}"
    )


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
    least = f"{styles[first].name} {format_quantity(response, found[first])}"
    if first == last:
        return least
    times = f", {_as_multiple(found[last] / found[first])}" if found[first] > 0 else ""
    return (
        f"least {least}, most {styles[last].name} {format_quantity(response, found[last])}{times}"
    )


def _as_multiple(ratio: float) -> str:
    return f"{ratio:,.0f} times as much" if ratio >= 10 else f"{ratio:.2g} times as much"


def _first_of(parts: Sequence[str]) -> str:
    """Join the first sentences; further ones are only counted."""
    rest = len(parts) - _MOST_NAMED
    return "; ".join([*parts[:_MOST_NAMED], *([f"and {rest} more"] if rest > 0 else [])])
