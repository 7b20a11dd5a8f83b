"""Contents of the report's notebook: one property per cell, as HTML, or None to show nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from analysis.data.include import include_by_name
from analysis.data.load import load_run
from analysis.figures.run_frames import RunFrames
from analysis.summaries.diagnoses import fidelity_lines
from analysis.views import cell_tables, claim_tables, evidence_tables, figure_sections
from analysis.views.contradictions import with_anchors
from analysis.views.html import (
    Html,
    blank_repeats,
    blocks_html,
    definition_text_html,
    folded_table,
    table_html,
)
from analysis.views.narrative import ABOUT_CLAIMS, answer_html, notices_html, story_html
from analysis.views.own.collectors import own_section
from analysis.views.rare_sections import memory_section, minima_section
from analysis.views.ratio_tables import ratio_sections
from pagecage.checkout import TOP
from pagecage.model.published_figures import PublishedFigure, read_rows


class Results(RunFrames):
    """A run ready for display. Data frames are made once, on first use."""

    def __init__(self, run_dir: str | Path, include: Sequence[str] = ()) -> None:
        """Load a run; `include` names excluded trials, or verdicts, to include.

        Raises PagecageError if `run_dir` is not a run folder or has no record, and for a name that
        selects no excluded trial.
        """
        super().__init__(include_by_name(load_run(Path(run_dir)), include))

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

    @property
    def heat(self) -> Html | None:
        """The table as shades, if two or three factors vary and none is numeric."""
        return figure_sections.heat_section(self.run)

    @property
    def figure(self) -> Html | None:
        """The response over a numeric factor, or else one point per trial."""
        return figure_sections.response_section(self) or self.strips

    @property
    def latencies(self) -> Html | None:
        """Latency percentiles, if the workload, fio or a trace has any."""
        return figure_sections.latency_section(self)

    @property
    def claims(self) -> Html | None:
        """Published and measured figures; those without a figure are collapsed."""
        made = table_html(claim_tables.claims_table(self.run), "claims")
        silent = folded_table(
            "published figures without a figure from this run",
            claim_tables.silent_table(self.run),
            "claims",
        )
        left = folded_table(
            "published figures that cannot be tested here",
            claim_tables.untestable_table(self.run, _published_figures()),
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
        return figure_sections.sweep_section(self) or figure_sections.memory_section(self)

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
        return figure_sections.strip_section(self, self.trial_df, self.run.response)

    @property
    def amplification(self) -> Html | None:
        """Bytes read per byte requested, with the read-ahead window as a mark."""
        return figure_sections.amplification_section(self)

    @property
    def timelines(self) -> Html | None:
        """Transfer rates over time; sizes, residency, refaults and stalls are collapsed."""
        return figure_sections.timeline_section(self)

    @property
    def own_collectors(self) -> Html | None:
        """The numbers of the collectors that the definition brings along, over time."""
        return own_section(self)

    @property
    def residency(self) -> Html | None:
        """Resident parts of the data over time."""
        return figure_sections.residency_section(self)

    @property
    def kernel(self) -> Html | None:
        """Sizes of read-ahead requests, and faults by the flags of the mapping."""
        return figure_sections.kernel_section(self)

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
