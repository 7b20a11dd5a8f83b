"""Contents of the report's notebook: one property per cell, as HTML, or None to show nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.data import frames, raw_frames
from analysis.data.fault_events import fault_event_table
from analysis.data.include import include_by_name
from analysis.data.load import Run, load_run
from analysis.figures import alt_text, charts, curves, heat, latencies, sweep, timelines
from analysis.figures.style import TreatmentStyle, drawing_style, numeric_factor, treatment_styles
from analysis.summaries.diagnoses import fidelity_lines
from analysis.summaries.sweeps import sweep_of, sweep_rows, sweep_sentences
from analysis.views import cell_tables, evidence_tables
from analysis.views.contradictions import with_anchors
from analysis.views.html import (
    Html,
    blank_repeats,
    blocks_html,
    definition_text_html,
    figure_html,
    folded_table,
    svg_html,
    table_html,
    with_heading,
)
from analysis.views.minima import minima_section
from analysis.views.narrative import (
    ABOUT_CLAIMS,
    ABOUT_KERNEL,
    ABOUT_LATENCY,
    ABOUT_RESIDENCY,
    ABOUT_TIME,
    answer_html,
    notices_html,
    story_html,
)
from pagecage.checkout import TOP
from pagecage.model.published_figures import PublishedFigure, read_rows
from pagecage.units import PAGE_BYTES

KIB = 1024


class Results:
    """A run ready for display. Data frames are made once, on first use."""

    def __init__(self, run_dir: str | Path, include: Sequence[str] = ()) -> None:
        """Load a run; `include` names excluded trials, or verdicts, to include.

        Raises PagecageError if `run_dir` is not a run folder or has no record, and for a name that
        selects no excluded trial.
        """
        self.run: Run = include_by_name(load_run(Path(run_dir)), include)

    @cached_property
    def trial_df(self) -> pd.DataFrame:
        """One row per trial."""
        return frames.trial_frame(self.run)

    @cached_property
    def sample_df(self) -> pd.DataFrame:
        """One row per timed pass of a workload."""
        return raw_frames.sample_frame(self.run)

    @cached_property
    def counter_df(self) -> pd.DataFrame:
        """One row per kernel counter of a trial."""
        return raw_frames.counter_frame(self.run)

    @cached_property
    def trace_df(self) -> pd.DataFrame:
        """One row per 0.1 s of a trial: rates of the slice's I/O."""
        return frames.trace_frame(self.run)

    @property
    def heading(self) -> Html:
        """Question, story and limitations."""
        return Html(story_html(self.run) + notices_html(self.run))

    @property
    def answer(self) -> Html | None:
        """The findings, in sentences."""
        items = answer_html(self.run)
        return Html(f'<h2>Answer</h2><ul class="answer">{items}</ul>') if items else None

    @property
    def cells(self) -> Html:
        """The experiment's table."""
        constant = self.run.layout.constant
        throughout = "; ".join(f"{name} {level}" for name, level in constant.items())
        note = f'<p class="source">Throughout: {escape(throughout)}.</p>' if throughout else ""
        kind = "cells" if self.run.layout.across else "cells rows"
        table = table_html(
            blank_repeats(cell_tables.cell_table(self.run), len(self.run.layout.down) - 1), kind
        )
        return Html(note + (table.text if table else ""))

    @property
    def tables(self) -> Html | None:
        """Further tables of the definition, each with its title and description."""
        parts = [
            part
            for table in self.run.definition.get("tables", [])
            if (part := self._further_table(table))
        ]
        return Html("".join(parts)) if parts else None

    def _further_table(self, table: Mapping[str, Any]) -> str | None:
        made = table_html(cell_tables.response_table(self.run, table), "cells further")
        heading, about = (
            definition_text_html(self.run.fill_places(table.get(key, "")))
            for key in ("title", "about")
        )
        return (
            f"<h3>{heading}</h3>{f'<p>{about}</p>' if about else ''}{made.text}" if made else None
        )

    @cached_property
    def styles(self) -> dict[str, TreatmentStyle]:
        """The style of each treatment, the same in every figure."""
        return treatment_styles(self.run)

    @cached_property
    def latency_df(self) -> pd.DataFrame:
        """One row per bucket of a trial's latency histograms."""
        return latencies.latency_frame(self.run)

    @property
    def heat(self) -> Html | None:
        """The table as shades, if two or three factors vary and none is numeric."""
        heat_df = heat.heat_frame(self.run, self.run.response)
        return figure_html(
            lambda: heat.heat_figure(heat_df),
            lambda: alt_text.heat_alt_text(heat_df, self.run.response),
        )

    @property
    def figure(self) -> Html | None:
        """The response over a numeric factor, or else one point per trial."""
        response = self.run.response
        curve = lambda: curves.curve_figure(self.run, self.trial_df, response, self.styles)  # noqa: E731
        return figure_html(curve, self._curve_alt_text) or self.strips

    def _curve_alt_text(self) -> str:
        factor, levels = numeric_factor(self.run) or ("", {})
        lines = curves.curve_lines(self.run, self.trial_df, self.run.response, factor)
        return alt_text.curve_alt_text(lines, factor, list(levels), self.run.response)

    @property
    def latencies(self) -> Html | None:
        """Latency percentiles, if the workload, fio or a trace has any."""
        with drawing_style():
            drawn = latencies.latency_figures(self.trial_df, self.latency_df, self.styles)
        parts = [
            svg_html(
                figure,
                alt_text.latency_alt_text(what, self.trial_df, self.latency_df, self.styles),
                what.replace("_", " "),
            )
            for what, figure in drawn.items()
        ]
        return (
            Html(f"<h2>Latency distribution</h2><p>{ABOUT_LATENCY}</p>" + "".join(parts))
            if parts
            else None
        )

    @property
    def claims(self) -> Html | None:
        """Published and measured figures; those without a figure are collapsed."""
        made = table_html(evidence_tables.claims_table(self.run), "claims")
        silent = folded_table(
            "published figures without a figure from this run",
            evidence_tables.silent_table(self.run),
            "claims",
        )
        left = folded_table(
            "published figures that cannot be tested here",
            evidence_tables.untestable_table(self.run, _published_figures()),
        )
        if not made and not silent and not left:
            return None
        about = f"<p>{ABOUT_CLAIMS}</p>" if made else ""
        parts = with_anchors("".join(part.text for part in (made, silent, left) if part))
        minima = blocks_html(minima_section(self.run))
        return Html(f"<h2>Published and measured</h2>{about}{parts}{minima}")

    @property
    def sweep(self) -> Html | None:
        """Measured and predicted times, and the knee, of a sweep."""
        found_sweep = sweep_of(self.run)
        table = table_html(pd.DataFrame(sweep_rows(found_sweep))) if found_sweep else None
        if found_sweep is None or table is None:
            return None
        items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sweep_sentences(found_sweep))
        factor = self.run.plan["sweep"]["factor"]
        draw = lambda: sweep.sweep_figure(found_sweep, factor, self.trial_df, self.styles)  # noqa: E731
        drawn = figure_html(draw, lambda: alt_text.sweep_alt_text(found_sweep))
        return Html(
            f"<h2>Sweep of one limit</h2>{table.text}<ul>{items}</ul>{drawn.text if drawn else ''}"
        )

    @property
    def diagnosis(self) -> Html | None:
        """The diagnosis of each caged treatment."""
        made = table_html(evidence_tables.diagnosis_table(self.run), "narrow")
        items = "".join(f"<li>{escape(sentence)}.</li>" for sentence in fidelity_lines(self.run))
        cloud = f"<p>Fidelity to the provider's behaviour:</p><ul>{items}</ul>" if items else ""
        return Html(f"<h2>Diagnosis</h2>{made.text}{cloud}") if made else None

    @property
    def evidence(self) -> Html:
        """The evidence for the verdicts, collapsed: limits, cache, quiet, exclusions."""
        parts = (
            folded_table(
                "trials by outcome", evidence_tables.counts_table(self.run), "narrow", counted=False
            ),
            folded_table("trials that are not included", evidence_tables.excluded_table(self.run)),
            folded_table(
                "limits, with evidence that each was enforced",
                evidence_tables.limits_table(self.run),
            ),
            folded_table(
                "treatments: cache state, host and binding limit",
                evidence_tables.proof_table(self.run),
            ),
        )
        return Html("".join(part.text for part in parts if part))

    @property
    def strips(self) -> Html | None:
        """One point per trial."""
        return self._strip(self.trial_df, self.run.response)

    def _strip(
        self, trial_df: pd.DataFrame, response: str, marks: Mapping[str, float] | None = None
    ) -> Html | None:
        draw = lambda: charts.strip_figure(trial_df, response, self.styles, marks)  # noqa: E731
        return figure_html(draw, lambda: alt_text.strip_alt_text(trial_df, response, self.styles))

    @property
    def amplification(self) -> Html | None:
        """Bytes read per byte requested, with the read-ahead window as a mark."""
        if "amplification" not in self.trial_df:
            return None
        read = self.trial_df[self.trial_df["amplification"] > 0]
        return (
            None
            if read.empty
            else with_heading(
                "Read amplification", self._strip(read, "amplification", _marks(self.run))
            )
        )

    @property
    def timelines(self) -> Html | None:
        """Transfer rates over time; sizes, residency, refaults and stalls are collapsed."""
        direction, names = timelines.timeline_treatments(self.trial_df, self.trace_df, self.styles)
        draw = lambda: timelines.timeline_figure(  # noqa: E731
            self.run, self.trial_df, self.trace_df, frames.iostat_frame(self.run), self.styles
        )
        made = figure_html(
            draw,
            lambda: alt_text.timeline_alt_text(self.trace_df, names, direction.panels, self.styles),
        )
        return (
            with_heading(
                "Disk traffic over time", Html(made.text + self._states(names)), ABOUT_TIME
            )
            if made
            else None
        )

    def _states(self, names: Sequence[str]) -> str:
        specs = timelines.state_panels(self.trace_df, names)
        draw = lambda: timelines.state_figure(self.run, names, specs, self.trace_df, self.styles)  # noqa: E731
        made = figure_html(
            draw, lambda: alt_text.timeline_alt_text(self.trace_df, names, specs, self.styles)
        )
        about = ", ".join(spec.words for spec in specs)
        return (
            f"<details><summary>{escape(about)}, over time</summary>{made.text}</details>"
            if made
            else ""
        )

    @property
    def residency(self) -> Html | None:
        """Resident parts of the data over time."""
        shown = charts.changing_residency(frames.vmtouch_frame(self.run), self.styles)
        made = figure_html(
            lambda: charts.residency_figure(shown, self.styles),
            lambda: alt_text.residency_alt_text(shown, self.styles),
        )
        return with_heading("Residency", made, ABOUT_RESIDENCY)

    @property
    def kernel(self) -> Html | None:
        """Sizes of read-ahead requests, and faults by the flags of the mapping."""
        readahead_df = frames.readahead_frame(self.run)
        drawn = figure_html(
            lambda: charts.readahead_figure(readahead_df, self.styles),
            lambda: alt_text.readahead_alt_text(readahead_df, self.styles),
        )
        faults = folded_table(
            "faults by flags of the mapping",
            evidence_tables.fault_table(frames.fault_frame(self.run)),
        )
        events = folded_table("events by treatment", fault_event_table(self.run))
        made = [part.text for part in (drawn, faults, events) if part]
        return with_heading("Read-ahead", Html("".join(made)), ABOUT_KERNEL) if made else None

    @property
    def trials(self) -> Html | None:
        """Every trial, collapsed."""
        return folded_table(
            "trials, in the order they ran", evidence_tables.trial_table(self.run), "long"
        )

    @property
    def facts(self) -> Html | None:
        """Facts of the host."""
        return folded_table("facts of the host", evidence_tables.facts_table(self.run), "narrow")

    @property
    def making(self) -> Html | None:
        """Command, versions and hashes for repeating the run."""
        return table_html(evidence_tables.making_table(self.run), "narrow")


def _published_figures() -> list[PublishedFigure]:
    return read_rows(TOP / "experiments")


def _marks(run: Run) -> dict[str, float]:
    """Return an amplification of 1, and that of reading a whole window per page."""
    sizes = {(t.record.device.queue_settings or {}).get("read_ahead_kb") for t in run.trials} - {
        None
    }
    marks = {"each byte once": 1.0}
    if len(sizes) == 1:
        window = float(sizes.pop() or 0)
        marks[f"{window:.0f} KiB for each page"] = window * KIB / PAGE_BYTES
    return marks
