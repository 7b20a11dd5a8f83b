"""What the notebook shows, one property a cell; each is HTML that stands by itself, or None: then nothing is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.data import frames, raw_frames
from analysis.data.include import include_by_name
from analysis.data.load import Run, load_run
from analysis.figures import alt_text, charts, curves, heat, latencies, sweep, timelines
from analysis.figures.style import TreatmentStyle, looks, numeric_factor, style
from analysis.summaries.diagnoses import fidelity
from analysis.summaries.sweeps import rows, sentences, sweep_of
from analysis.views import cell_tables, evidence_tables
from analysis.views.html import Html, figure_html, folded, headed, once, prose_html, svg_html, table_html
from analysis.views.narrative import answer_html, notices, story_html
from pagecage.checkout import TOP
from pagecage.model.published_figures import PublishedFigure, read_rows
from pagecage.units import PAGE_BYTES

KIB = 1024


class Results:
    """A run, ready to be shown. Frames are made once, when first asked for."""

    def __init__(self, run_dir: str | Path, include: Sequence[str] = ()) -> None:
        """`include` names excluded trials, or verdicts that exclude some, to count after all.

        Raises PagecageError if `run_dir` is not a run folder or has no record, and for a name that selects no
        excluded trial.
        """
        self.run: Run = include_by_name(load_run(Path(run_dir)), include)

    @cached_property
    def trial_df(self) -> pd.DataFrame:
        """One row a trial."""
        return frames.trial_frame(self.run)

    @cached_property
    def sample_df(self) -> pd.DataFrame:
        """One row a timed pass of a workload."""
        return raw_frames.sample_frame(self.run)

    @cached_property
    def counter_df(self) -> pd.DataFrame:
        """One row a counter of a trial."""
        return raw_frames.counter_frame(self.run)

    @cached_property
    def trace_df(self) -> pd.DataFrame:
        """One row a tenth of a second of a trial: rates of the slice's I/O."""
        return frames.trace_frame(self.run)

    @property
    def heading(self) -> Html:
        """Question, story, and what a reader must know before any figure."""
        return Html(story_html(self.run) + notices(self.run))

    @property
    def answer(self) -> Html | None:
        """What the experiment found, in sentences."""
        found = answer_html(self.run)
        return Html(f'<h2>Answer</h2><ul class="answer">{found}</ul>') if found else None

    @property
    def cells(self) -> Html:
        """The experiment's table."""
        constant = self.run.layout.constant
        throughout = "; ".join(f"{name} {level}" for name, level in constant.items())
        told = f'<p class="source">Throughout: {escape(throughout)}.</p>' if throughout else ""
        kind = "cells" if self.run.layout.across else "cells rows"
        table = table_html(once(cell_tables.cell_table(self.run), len(self.run.layout.down) - 1), kind)
        return Html(told + (table.text if table else ""))

    @property
    def tables(self) -> Html | None:
        """Further tables that the definition asks for, each with what is to be known of it."""
        parts = [part for table in self.run.definition.get("tables", []) if (part := self._further(table))]
        return Html("".join(parts)) if parts else None

    def _further(self, table: Mapping[str, Any]) -> str | None:
        made = table_html(cell_tables.response_table(self.run, table), "cells further")
        heading, about = (prose_html(self.run.filled(table.get(key, ""))) for key in ("title", "about"))
        return f"<h3>{heading}</h3>{f'<p>{about}</p>' if about else ''}{made.text}" if made else None

    @cached_property
    def look(self) -> dict[str, TreatmentStyle]:
        """How each treatment is drawn, the same in every figure."""
        return looks(self.run)

    @cached_property
    def latency_df(self) -> pd.DataFrame:
        """One row a bucket of a trial's latency histograms."""
        return latencies.latency_frame(self.run)

    @property
    def heat(self) -> Html | None:
        """The table as a picture, where two or three factors that count nothing span it."""
        heat_df = heat.heat_frame(self.run, self.run.response)
        return figure_html(lambda: heat.heat_figure(heat_df), lambda: alt_text.of_heat(heat_df, self.run.response))

    @property
    def figure(self) -> Html | None:
        """The response over a factor that counts something; one point a trial where none does."""
        response = self.run.response
        curve = lambda: curves.curve_figure(self.run, self.trial_df, response, self.look)  # noqa: E731
        return figure_html(curve, self._curve_says) or self.strips

    def _curve_says(self) -> str:
        factor, levels = numeric_factor(self.run) or ("", {})
        lines = curves.lines_of(self.run, self.trial_df, self.run.response, factor)
        return alt_text.of_curve(lines, factor, list(levels), self.run.response)

    @property
    def latencies(self) -> Html | None:
        """Percentiles, where the workload, fio or a trace told any."""
        with style():
            drawn = latencies.latency_figures(self.trial_df, self.latency_df, self.look)
        parts = [
            svg_html(
                figure, alt_text.of_latency(what, self.trial_df, self.latency_df, self.look), what.replace("_", " ")
            )
            for what, figure in drawn.items()
        ]
        return Html(f"<h2>How late, how often</h2><p>{_ABOUT_LATENCY}</p>" + "".join(parts)) if parts else None

    @property
    def claims(self) -> Html | None:
        """Published and measured; folded below it what no run could test."""
        made = table_html(evidence_tables.claims_table(self.run), "claims")
        silent = folded(
            "published figures that this run says nothing about", evidence_tables.silent_table(self.run), "claims"
        )
        left = folded("published figures that no run here tests", evidence_tables.untestable_table(self.run, _rows()))
        if not made and not silent and not left:
            return None
        about = f"<p>{_ABOUT_CLAIMS}</p>" if made else ""
        parts = "".join(part.text for part in (made, silent, left) if part)
        return Html(f"<h2>Published and measured</h2>{about}{parts}")

    @property
    def sweep(self) -> Html | None:
        """Of a run that varied one limit: measured beside predicted, and the knee."""
        found = sweep_of(self.run)
        made = table_html(pd.DataFrame(rows(found))) if found else None
        if found is None or made is None:
            return None
        told = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences(found))
        factor = self.run.plan["sweep"]["factor"]
        draw = lambda: sweep.sweep_figure(found, factor, self.trial_df, self.look)  # noqa: E731
        drawn = figure_html(draw, lambda: alt_text.of_sweep(found))
        return Html(f"<h2>One limit varied</h2>{made.text}<ul>{told}</ul>{drawn.text if drawn else ''}")

    @property
    def diagnosis(self) -> Html | None:
        """What held each caged treatment back, in sentences that can be forwarded."""
        made = table_html(evidence_tables.diagnosis_table(self.run), "narrow")
        told = "".join(f"<li>{escape(sentence)}.</li>" for sentence in fidelity(self.run))
        cloud = f"<p>How nearly the provider's ways were met:</p><ul>{told}</ul>" if told else ""
        return Html(f"<h2>What held it back</h2>{made.text}{cloud}") if made else None

    @property
    def evidence(self) -> Html:
        """What the verdicts rest on, folded: limits, cache, quiet, exclusions."""
        parts = (
            folded("trials by what became of them", evidence_tables.counts_table(self.run), "narrow", counted=False),
            folded("trials that are not averaged in", evidence_tables.excluded_table(self.run)),
            folded("limits, and the proof that each was in force", evidence_tables.limits_table(self.run)),
            folded("treatments: cache state, quiet, and what held each back", evidence_tables.proof_table(self.run)),
        )
        return Html("".join(part.text for part in parts if part))

    @property
    def strips(self) -> Html | None:
        """One point a trial."""
        return self._strip(self.trial_df, self.run.response)

    def _strip(self, trial_df: pd.DataFrame, response: str, marks: Mapping[str, float] | None = None) -> Html | None:
        draw = lambda: charts.strip_figure(trial_df, response, self.look, marks)  # noqa: E731
        return figure_html(draw, lambda: alt_text.of_strip(trial_df, response, self.look))

    @property
    def amplification(self) -> Html | None:
        """Bytes read for each byte asked for, with the read-ahead window as a mark."""
        if "amplification" not in self.trial_df:
            return None
        read = self.trial_df[self.trial_df["amplification"] > 0]
        return (
            None if read.empty else headed("Read amplification", self._strip(read, "amplification", _marks(self.run)))
        )

    @property
    def timelines(self) -> Html | None:
        """MB/s and I/Os a second over time; folded below it sizes, residency, refaults and stalls."""
        way, names = timelines.busy(self.trial_df, self.trace_df, self.look)
        draw = lambda: timelines.timeline_figure(  # noqa: E731
            self.run, self.trial_df, self.trace_df, frames.iostat_frame(self.run), self.look
        )
        made = figure_html(draw, lambda: alt_text.of_lanes(self.trace_df, names, way.lanes, self.look))
        return headed("The disk over time", Html(made.text + self._states(names)), _ABOUT_TIME) if made else None

    def _states(self, names: Sequence[str]) -> str:
        lanes = timelines.states(self.trace_df, names)
        draw = lambda: timelines.state_figure(self.run, names, lanes, self.trace_df, self.look)  # noqa: E731
        made = figure_html(draw, lambda: alt_text.of_lanes(self.trace_df, names, lanes, self.look))
        about = ", ".join(lane.words for lane in lanes)
        return f"<details><summary>{escape(about)}, over time</summary>{made.text}</details>" if made else ""

    @property
    def residency(self) -> Html | None:
        """What was resident where and when."""
        shown = charts.changing_residency(frames.vmtouch_frame(self.run), self.look)
        made = figure_html(
            lambda: charts.residency_figure(shown, self.look), lambda: alt_text.of_residency(shown, self.look)
        )
        return headed("What was resident", made, _ABOUT_RESIDENCY)

    @property
    def kernel(self) -> Html | None:
        """Sizes of read-ahead requests, and faults by the flags of the mapping."""
        readahead_df = frames.readahead_frame(self.run)
        drawn = figure_html(
            lambda: charts.readahead_figure(readahead_df, self.look),
            lambda: alt_text.of_readahead(readahead_df, self.look),
        )
        faults = folded(
            "kinds of faults, by the flags of the mapping", evidence_tables.fault_table(frames.fault_frame(self.run))
        )
        made = [part.text for part in (drawn, faults) if part]
        return headed("Read-ahead", Html("".join(made)), _ABOUT_KERNEL) if made else None

    @property
    def trials(self) -> Html | None:
        """Every trial, folded away."""
        return folded("trials, in the order they ran", evidence_tables.trial_table(self.run), "long")

    @property
    def facts(self) -> Html | None:
        """What the host is."""
        return folded("facts of the host", evidence_tables.facts_table(self.run), "narrow")

    @property
    def making(self) -> Html | None:
        """How this was made, and how to make it again."""
        return table_html(evidence_tables.making_table(self.run), "narrow")


_ABOUT_CLAIMS = "The rule by which each figure counts as reproduced was fixed before the first run."
_ABOUT_TIME = (
    "Lines: the slice's own I/O, from its <code>io.stat</code> ten times a second, averaged over half a second (0.2 s "
    "where a part is shorter than three). Marks: iostat's seconds for the whole disk, in the middle of each. "
    "Dashed: the cap. Grey: before <code>go</code>, and after the end."
)
_ABOUT_LATENCY = (
    "Left half of all, right the rarest. Lines without marks are whole histograms of all trials that count, up to the "
    "slowest of all; lines through marks join the percentiles that were told, medians over trials."
)
_ABOUT_RESIDENCY = (
    "vmtouch's bars below one another, time downwards. Full colour: all pages of that sixtieth of the data; pale: "
    "some. Lines: <code>go</code>, and the end."
)
_ABOUT_KERNEL = (
    "How many pages the kernel asked for at once (<code>page_cache_ra_order</code>), and with which flags the mapping "
    "faulted (<code>filemap_fault</code>)."
)


def _rows() -> list[PublishedFigure]:
    return read_rows(TOP / "experiments")


def _marks(run: Run) -> dict[str, float]:
    """Amplification 1, and that of reading a whole window for one page."""
    sizes = {(t.record.device.queue_settings or {}).get("read_ahead_kb") for t in run.trials} - {None}
    marks = {"each byte once": 1.0}
    if len(sizes) == 1:
        window = float(sizes.pop() or 0)
        marks[f"{window:.0f} KiB for each page"] = window * KIB / PAGE_BYTES
    return marks
