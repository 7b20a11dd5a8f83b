"""The part of a report about the collectors that the definition brings along."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from statistics import median
from typing import Any

import pandas as pd

from analysis.data.own_series import own_collector_names, own_frame
from analysis.figures.own_collectors import MOST_FIELDS, own_alt_text, own_figure
from analysis.figures.run_frames import RunFrames
from analysis.views.html import Html, figure_html, table_html

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
