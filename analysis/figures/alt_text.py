"""What a figure shows, in a sentence: its alternative text for those who cannot see it. Frame in, text out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.figures.latencies import percentiles, rarity
from analysis.figures.style import TreatmentStyle
from analysis.figures.timelines import TimelinePanel
from analysis.formatting import quantity, title
from analysis.summaries.sweeps import Sweep, sentences

_MOST_NAMED = 6
"""A sentence that names more treatments than this is no sentence."""


def of_strip(trial_df: pd.DataFrame, response: str, look: Mapping[str, TreatmentStyle]) -> str:
    """The treatments with the least and the largest median."""
    counts = bool((trial_df["is_included"] & trial_df[response].notna()).any()) if response in trial_df else False
    what = "one point a trial" if counts else "one point a trial, none of which counts"
    return f"{title(response)}, {what}: {_extremes(_medians(trial_df, response), response, look)}"


def of_heat(heat_df: pd.DataFrame, response: str) -> str:
    """The least and the largest cell, and those without a figure."""
    known = heat_df[heat_df["value"] > 0].sort_values("value")
    ends = [f"{_cell(row)} {row['text']}" for _, row in known.iloc[[0, -1]].iterrows()]
    times = known["value"].iloc[-1] / known["value"].iloc[0]
    without = [f"{_cell(row)} {row['text']}" for _, row in heat_df[heat_df["value"].isna()].iterrows()]
    rest = f"; without a figure: {_some(without)}" if without else ""
    return f"{title(response)} by two factors: least {ends[0]}, most {ends[1]}, {_times(times)}{rest}"


def _cell(row: pd.Series[Any]) -> str:
    return " · ".join(str(level) for level in (row["panel"], row["row"], row["column"]) if level)


def of_curve(lines: Mapping[str, pd.DataFrame], factor: str, levels: Sequence[str], response: str) -> str:
    """Where each line begins and where it ends."""
    told = []
    for name, rows in lines.items():
        medians = rows.groupby(factor)[response].median()
        first, *_, last = [level for level in levels if level in medians.index]
        ends = f"{quantity(response, medians[first])} at {first}, {quantity(response, medians[last])} at {last}"
        told.append(f"{name}: {ends}" if name else ends)
    return f"{title(response)} over {factor.replace('_', ' ')}: {_some(told)}"


def of_latency(what: str, trial_df: pd.DataFrame, latency_df: pd.DataFrame, look: Mapping[str, TreatmentStyle]) -> str:
    """What one in a hundred exceeds, where that is least and where it is most."""
    counted = latency_df[latency_df["is_included"] & (latency_df["what"] == what)]
    found = {str(name): _one_in_a_hundred(rows) for name, rows in counted.groupby("treatment", sort=False)}
    named = [column for some in percentiles(list(trial_df.columns)).values() for column in some]
    column = next((column for column in named if column.startswith(f"{what}_p99_")), None)
    if column:
        found = {**_medians(trial_df, column), **found}
    ends = _extremes(found, column or "x_us", look)
    return f"Percentiles of {what.replace('_', ' ')}; exceeded by one in a hundred: {ends}"


def _one_in_a_hundred(rows: pd.DataFrame) -> float:
    values, shares = rarity(rows)
    return float(values[shares >= 0.01][-1])


def of_lanes(
    fine_df: pd.DataFrame, names: Sequence[str], lanes: Sequence[TimelinePanel], look: Mapping[str, TreatmentStyle]
) -> str:
    """The mean of each lane within the measured part, by treatment."""
    inside = fine_df[(fine_df["seconds"] >= 0) & (fine_df["seconds"] <= fine_df["measured_seconds"])]
    told = []
    for name in names:
        rows = inside[inside["treatment"] == name]
        figures = [
            f"{lane.words} {quantity(lane.response, rows[lane.column].mean())}"
            for lane in lanes
            if rows[lane.column].notna().any()
        ]
        told.append(f"{look[name].name}: {', '.join(figures) or 'nothing told'}")
    return f"Over time, on average: {_some(told)}"


def of_residency(shown: Mapping[str, pd.DataFrame], look: Mapping[str, TreatmentStyle]) -> str:
    """How much of the data was resident at first, at most and at last."""
    told = []
    for name, rows in shown.items():
        shares = rows.sort_values("seconds")["resident_pages"] / rows["total_pages"].max()
        first, most, last = (f"{share:.0%}" for share in (shares.iloc[0], shares.max(), shares.iloc[-1]))
        told.append(f"{look[name].name}: {first} at first, {most} at most, {last} at last")
    return f"Resident share of the data over time. {_some(told)}"


def of_readahead(readahead_df: pd.DataFrame, look: Mapping[str, TreatmentStyle]) -> str:
    """The size that each treatment's requests had most often."""
    told = []
    for name, rows in readahead_df.groupby("treatment", sort=False):
        counts = rows.groupby("pages")["count"].sum()
        told.append(f"{look[str(name)].name}: {counts.idxmax()} pages in {counts.max() / counts.sum():.0%}")
    return f"Most frequent read-ahead request: {_some(told)}"


def of_sweep(sweep: Sweep) -> str:
    """Where the times begin and end, and what the sweep's sentences say."""
    timed = [(point.level, point.measured_seconds) for point in sweep.points if point.measured_seconds is not None]
    ends = ", ".join(f"{quantity('read_seconds', seconds)} at {level}" for level, seconds in (timed[0], timed[-1]))
    return f"Time and throughput over {sweep.property}: {ends}. {' '.join(sentences(sweep))}"


def _medians(trial_df: pd.DataFrame, response: str) -> dict[str, float]:
    """By treatment, over the trials that count; where none does over all of them."""
    if response not in trial_df:
        return {}
    counted = trial_df[trial_df["is_included"] & trial_df[response].notna()]
    rows = trial_df if counted.empty else counted
    return {str(name): float(value) for name, value in rows.groupby("treatment")[response].median().dropna().items()}


def _extremes(found: Mapping[str, float], response: str, look: Mapping[str, TreatmentStyle]) -> str:
    if not found:
        return "no trial counts"
    order = sorted(found, key=lambda name: found[name])
    first, last = order[0], order[-1]
    least = f"{look[first].name} {quantity(response, found[first])}"
    if first == last:
        return least
    times = f", {_times(found[last] / found[first])}" if found[first] > 0 else ""
    return f"least {least}, most {look[last].name} {quantity(response, found[last])}{times}"


def _times(ratio: float) -> str:
    return f"{ratio:,.0f} times as much" if ratio >= 10 else f"{ratio:.2g} times as much"


def _some(told: Sequence[str]) -> str:
    """The first of many, and how many more there are."""
    rest = len(told) - _MOST_NAMED
    return "; ".join([*told[:_MOST_NAMED], *([f"and {rest} more"] if rest > 0 else [])])
