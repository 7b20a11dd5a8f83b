"""A run ready for display in a notebook, part by part."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from html import escape

import pandas as pd

from analysis import alt_text, memory, sweep
from analysis.articles import tables
from analysis.articles.tables import ratio_sections, with_anchors
from analysis.cells import fidelity_lines
from analysis.data import frames
from analysis.data.events import fault_event_table
from analysis.figures import charts, latencies, over_limits, traces
from analysis.figures.style import TreatmentStyle, drawing_style, numeric_factor, treatment_styles
from analysis.run_frames import RunFrames
from analysis.views import evidence_tables, run
from analysis.views.custom_collectors import own_section
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
from analysis.views.run import memory_section, minima_section
from pagecage.checkout import TOP
from pagecage.model.published_figures import read_rows
from pagecage.units import KIB


class Results(RunFrames):
    """A run ready for display: each part is HTML, or None to show nothing."""

    @cached_property
    def styles(self) -> dict[str, TreatmentStyle]:
        """The style of each treatment, the same in every figure."""
        return treatment_styles(self.run)

    @property
    def heading(self) -> Html:
        """Question, story and limitations."""
        return Html(story_html(self.run) + notices_html(self.run))

    @property
    def answer(self) -> Html | None:
        """The findings in sentences, ratios over two factors, and a search for memory."""
        tables = [*memory_section(self.run), *ratio_sections(self.run)]
        items, ratios = answer_html(self.run), blocks_html(tables)
        answer = f'<h2>Answer</h2><ul class="answer">{items}</ul>' if items else ""
        return Html(answer + ratios) if answer or ratios else None

    @property
    def cells(self) -> Html:
        """The experiment's table."""
        layout = self.run.layout
        throughout = "; ".join(f"{name} {level}" for name, level in layout.constant.items())
        note = f'<p class="source">Throughout: {escape(throughout)}.</p>' if throughout else ""
        frame = blank_repeats(run.cell_table(self.run), len(layout.down) - 1)
        table = table_html(frame, "cells" if layout.across else "cells rows")
        return Html(note + (table.text if table else ""))

    @property
    def tables(self) -> Html | None:
        """Further tables of the definition, each with its title and description."""
        parts = []
        for table in self.run.definition.get("tables", []):
            if made := table_html(run.response_table(self.run, table), "cells further"):
                heading, about = (
                    definition_text_html(self.run.fill_places(table.get(key, "")))
                    for key in ("title", "about")
                )
                paragraph = f"<p>{about}</p>" if about else ""
                parts.append(f"<h3>{heading}</h3>{paragraph}{made.text}")
        return Html("".join(parts)) if parts else None

    @property
    def heat(self) -> Html | None:
        """The table as shades, if two or three factors vary and none is numeric."""
        heat_df = charts.heat_frame(self.run, self.run.response)
        return figure_html(
            lambda: charts.heat_figure(heat_df),
            lambda: alt_text.heat_alt_text(heat_df, self.run.response),
        )

    @property
    def figure(self) -> Html | None:
        """The response over a numeric factor, or else one point per trial."""
        run, response = self.run, self.run.response

        def curve_alt_text() -> str:
            factor, levels = numeric_factor(run) or ("", {})
            lines = charts.curve_lines(run, self.trial_df, response, factor)
            return alt_text.curve_alt_text(lines, factor, list(levels), response)

        curve = figure_html(
            lambda: charts.curve_figure(run, self.trial_df, response, self.styles), curve_alt_text
        )
        return curve or self.strips

    def _strips(
        self, trial_df: pd.DataFrame, response: str, marks: Mapping[str, float] | None = None
    ) -> Html | None:
        return figure_html(
            lambda: charts.strip_figure(trial_df, response, self.styles, marks),
            lambda: alt_text.strip_alt_text(trial_df, response, self.styles),
        )

    @property
    def strips(self) -> Html | None:
        """One point per trial."""
        return self._strips(self.trial_df, self.run.response)

    @property
    def latencies(self) -> Html | None:
        """Latency percentiles, if the workload, fio or a trace has any."""
        data = self.trial_df, self.latency_df, self.styles
        with drawing_style():
            drawn = latencies.latency_figures(*data)
        parts = [
            svg_html(figure, alt_text.latency_alt_text(what, *data), what.replace("_", " "))
            for what, figure in drawn.items()
        ]
        head = f"<h2>Latency distribution</h2><p>{ABOUT_LATENCY}</p>"
        return Html(head + "".join(parts)) if parts else None

    @property
    def claims(self) -> Html | None:
        """Published and measured figures; those without a figure are collapsed."""
        made = table_html(tables.claims_table(self.run), "claims")
        silent = folded_table(
            "published figures without a figure from this run",
            tables.silent_table(self.run),
            "claims",
        )
        left = folded_table(
            "published figures that cannot be tested here",
            tables.untestable_table(self.run, read_rows(TOP / "experiments")),
        )
        if not made and not silent and not left:
            return None
        about = f"<p>{ABOUT_CLAIMS}</p>" if made else ""
        parts = with_anchors("".join(part.text for part in (made, silent, left) if part))
        minima = blocks_html(minima_section(self.run))
        return Html(f"<h2>Published and measured</h2>{about}{parts}{minima}")

    @property
    def sweep(self) -> Html | None:
        """Measured and predicted times, and the knee, of a sweep; the curve of a memory search."""
        found, search = sweep.sweep_of(self.run), memory.memory_run(self.run)
        table = table_html(pd.DataFrame(sweep.sweep_rows(found))) if found else None
        if found and table:
            sentences = sweep.sweep_sentences(found)
            items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
            factor = self.run.plan["sweep"]["factor"]
            drawn = figure_html(
                lambda: over_limits.sweep_figure(found, factor, self.trial_df, self.styles),
                lambda: alt_text.sweep_alt_text(found),
            )
            text = f"{table.text}<ul>{items}</ul>{drawn.text if drawn else ''}"
            return Html(f"<h2>Sweep of one limit</h2>{text}")
        if search is None:
            return None
        drawn = figure_html(
            lambda: over_limits.memory_figure(search), lambda: memory.memory_alt_text(search)
        )
        return with_heading("Memory, time and refaults", drawn)

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
        counts, excluded, limits, proof = (
            table(self.run)
            for table in (
                evidence_tables.counts_table,
                evidence_tables.excluded_table,
                evidence_tables.limits_table,
                evidence_tables.proof_table,
            )
        )
        parts = (
            folded_table("trials by outcome", counts, "narrow", counted=False),
            folded_table("trials that are not included", excluded),
            folded_table("limits, with evidence that each was enforced", limits),
            folded_table("treatments: cache state, host and binding limit", proof),
        )
        return Html("".join(part.text for part in parts if part))

    @property
    def amplification(self) -> Html | None:
        """Bytes read per byte requested, with the read-ahead window as a mark."""
        if "amplification" not in self.trial_df:
            return None
        read = self.trial_df[self.trial_df["amplification"] > 0]
        if read.empty:
            return None
        settings = (t.record.device.queue_settings or {} for t in self.run.trials)
        sizes = {one.get("read_ahead_kb") for one in settings} - {None}
        marks = {"each byte once": 1.0}
        if len(sizes) == 1:
            window = float(sizes.pop() or 0)
            marks[f"{window:.0f} KiB for each page"] = window * KIB / self.run.page_bytes
        return with_heading("Read amplification", self._strips(read, "amplification", marks))

    @property
    def timelines(self) -> Html | None:
        """Transfer rates over time; sizes, residency, refaults and stalls are collapsed."""
        run, trace_df, styles = self.run, self.trace_df, self.styles
        direction, names = traces.timeline_treatments(self.trial_df, trace_df, styles)
        made = figure_html(
            lambda: traces.timeline_figure(
                run, self.trial_df, trace_df, frames.iostat_frame(run), styles
            ),
            lambda: alt_text.timeline_alt_text(trace_df, names, direction.panels, styles),
        )
        if not made:
            return None
        specs = traces.state_panels(trace_df, names)
        states = figure_html(
            lambda: traces.state_figure(run, names, specs, trace_df, styles),
            lambda: alt_text.timeline_alt_text(trace_df, names, specs, styles),
        )
        about = escape(", ".join(spec.words for spec in specs)) + ", over time"
        folded = f"<details><summary>{about}</summary>{states.text}</details>" if states else ""
        return with_heading("Disk traffic over time", Html(made.text + folded), ABOUT_TIME)

    @property
    def own_collectors(self) -> Html | None:
        """The numbers of the collectors that the definition brings along, over time."""
        return own_section(self.run, self.styles)

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
            lambda: charts.readahead_figure(readahead_df, self.styles, self.run.page_bytes),
            lambda: alt_text.readahead_alt_text(readahead_df, self.styles),
        )
        fault_df = evidence_tables.fault_table(frames.fault_frame(self.run))
        faults = folded_table("faults by flags of the mapping", fault_df)
        events = folded_table("events by treatment", fault_event_table(self.run))
        made = [part.text for part in (drawn, faults, events) if part]
        return with_heading("Read-ahead", Html("".join(made)), ABOUT_KERNEL) if made else None

    @property
    def trials(self) -> Html | None:
        """Every trial, collapsed."""
        frame = evidence_tables.trial_table(self.run)
        return folded_table("trials, in the order they ran", frame, "long")

    @property
    def facts(self) -> Html | None:
        """Facts of the host."""
        return folded_table("facts of the host", evidence_tables.facts_table(self.run), "narrow")

    @property
    def making(self) -> Html | None:
        """Command, versions and hashes for repeating the run."""
        return table_html(evidence_tables.making_table(self.run), "narrow")
