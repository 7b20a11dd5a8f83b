"""The figures of the report's notebook as HTML, each with its heading; None to show nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import pandas as pd

from analysis import alt_text, memory, sweep
from analysis.alt_text import RunFrames
from analysis.data import frames
from analysis.data.events import fault_event_table
from analysis.data.load import Run
from analysis.figures import charts, latencies, traces
from analysis.figures.style import drawing_style, numeric_factor
from analysis.memory import memory_run
from analysis.sweep import sweep_of, sweep_rows, sweep_sentences
from analysis.views import evidence_tables
from analysis.views.html import Html, figure_html, folded_table, svg_html, table_html, with_heading
from analysis.views.narrative import ABOUT_KERNEL, ABOUT_LATENCY, ABOUT_RESIDENCY, ABOUT_TIME

KIB = 1024


def heat_section(run: Run) -> Html | None:
    """Return the table as shades, if two or three factors vary and none is numeric."""
    heat_df = charts.heat_frame(run, run.response)
    return figure_html(
        lambda: charts.heat_figure(heat_df),
        lambda: alt_text.heat_alt_text(heat_df, run.response),
    )


def response_section(data: RunFrames) -> Html | None:
    """Return the response over a numeric factor; None without one."""
    run, response = data.run, data.run.response

    def curve_alt_text() -> str:
        factor, levels = numeric_factor(run) or ("", {})
        lines = charts.curve_lines(run, data.trial_df, response, factor)
        return alt_text.curve_alt_text(lines, factor, list(levels), response)

    return figure_html(
        lambda: charts.curve_figure(run, data.trial_df, response, data.styles), curve_alt_text
    )


def strip_section(
    data: RunFrames,
    trial_df: pd.DataFrame,
    response: str,
    marks: Mapping[str, float] | None = None,
) -> Html | None:
    """Return one point per trial of `trial_df`, with `marks` as lines."""
    return figure_html(
        lambda: charts.strip_figure(trial_df, response, data.styles, marks),
        lambda: alt_text.strip_alt_text(trial_df, response, data.styles),
    )


def latency_section(data: RunFrames) -> Html | None:
    """Return latency percentiles, if the workload, fio or a trace has any."""
    with drawing_style():
        drawn = latencies.latency_figures(data.trial_df, data.latency_df, data.styles)
    parts = [
        svg_html(
            figure,
            alt_text.latency_alt_text(what, data.trial_df, data.latency_df, data.styles),
            what.replace("_", " "),
        )
        for what, figure in drawn.items()
    ]
    return (
        Html(f"<h2>Latency distribution</h2><p>{ABOUT_LATENCY}</p>" + "".join(parts))
        if parts
        else None
    )


def sweep_section(data: RunFrames) -> Html | None:
    """Return measured and predicted times, and the knee, of a sweep."""
    found_sweep = sweep_of(data.run)
    table = table_html(pd.DataFrame(sweep_rows(found_sweep))) if found_sweep else None
    if found_sweep is None or table is None:
        return None
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sweep_sentences(found_sweep))
    factor = data.run.plan["sweep"]["factor"]
    drawn = figure_html(
        lambda: sweep.sweep_figure(found_sweep, factor, data.trial_df, data.styles),
        lambda: alt_text.sweep_alt_text(found_sweep),
    )
    return Html(
        f"<h2>Sweep of one limit</h2>{table.text}<ul>{items}</ul>{drawn.text if drawn else ''}"
    )


def memory_section(data: RunFrames) -> Html | None:
    """Return time and refaults over MemoryMax, of a search for memory."""
    found = memory_run(data.run)
    if found is None:
        return None
    drawn = figure_html(lambda: memory.memory_figure(found), lambda: memory.memory_alt_text(found))
    return with_heading("Memory, time and refaults", drawn)


def amplification_section(data: RunFrames) -> Html | None:
    """Return bytes read per byte requested, with the read-ahead window as a mark."""
    if "amplification" not in data.trial_df:
        return None
    read = data.trial_df[data.trial_df["amplification"] > 0]
    if read.empty:
        return None
    drawn = strip_section(data, read, "amplification", _marks(data.run))
    return with_heading("Read amplification", drawn)


def _marks(run: Run) -> dict[str, float]:
    """Return an amplification of 1, and that of reading a whole window per page."""
    sizes = {(t.record.device.queue_settings or {}).get("read_ahead_kb") for t in run.trials} - {
        None
    }
    marks = {"each byte once": 1.0}
    if len(sizes) == 1:
        window = float(sizes.pop() or 0)
        marks[f"{window:.0f} KiB for each page"] = window * KIB / run.page_bytes
    return marks


def timeline_section(data: RunFrames) -> Html | None:
    """Return transfer rates over time; sizes, residency, refaults and stalls are collapsed."""
    direction, names = traces.timeline_treatments(data.trial_df, data.trace_df, data.styles)
    made = figure_html(
        lambda: traces.timeline_figure(
            data.run, data.trial_df, data.trace_df, frames.iostat_frame(data.run), data.styles
        ),
        lambda: alt_text.timeline_alt_text(data.trace_df, names, direction.panels, data.styles),
    )
    if not made:
        return None
    return with_heading(
        "Disk traffic over time", Html(made.text + _states(data, names)), ABOUT_TIME
    )


def _states(data: RunFrames, names: Sequence[str]) -> str:
    specs = traces.state_panels(data.trace_df, names)
    made = figure_html(
        lambda: traces.state_figure(data.run, names, specs, data.trace_df, data.styles),
        lambda: alt_text.timeline_alt_text(data.trace_df, names, specs, data.styles),
    )
    about = ", ".join(spec.words for spec in specs)
    return (
        f"<details><summary>{escape(about)}, over time</summary>{made.text}</details>"
        if made
        else ""
    )


def residency_section(data: RunFrames) -> Html | None:
    """Return the resident parts of the data over time."""
    shown = charts.changing_residency(frames.vmtouch_frame(data.run), data.styles)
    made = figure_html(
        lambda: charts.residency_figure(shown, data.styles),
        lambda: alt_text.residency_alt_text(shown, data.styles),
    )
    return with_heading("Residency", made, ABOUT_RESIDENCY)


def kernel_section(data: RunFrames) -> Html | None:
    """Return sizes of read-ahead requests, and faults by the flags of the mapping."""
    readahead_df = frames.readahead_frame(data.run)
    drawn = figure_html(
        lambda: charts.readahead_figure(readahead_df, data.styles, data.run.page_bytes),
        lambda: alt_text.readahead_alt_text(readahead_df, data.styles),
    )
    faults = folded_table(
        "faults by flags of the mapping",
        evidence_tables.fault_table(frames.fault_frame(data.run)),
    )
    events = folded_table("events by treatment", fault_event_table(data.run))
    made = [part.text for part in (drawn, faults, events) if part]
    return with_heading("Read-ahead", Html("".join(made)), ABOUT_KERNEL) if made else None
