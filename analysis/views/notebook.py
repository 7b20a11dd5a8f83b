"""A run ready for display in a notebook, part by part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from html import escape
from typing import Any

import pandas as pd

from analysis import memory, sweep
from analysis.articles.evaluate import evaluate_claims
from analysis.articles.findings import Finding, evaluate_findings, unmeasured
from analysis.articles.ratios import published_ratios, real_cpu_sentence
from analysis.articles.tables import contradiction_html, ratio_sections, with_anchors
from analysis.cells import (
    BindingCause,
    causes,
    fidelity_lines,
    gap_sentence,
    repeat_differences,
    stopping_rule_status,
    unable_by_reason,
)
from analysis.data import frames
from analysis.data.events import UNTRACED
from analysis.data.load import Run, excluded_trials, included_by_name_sentence
from analysis.figures import charts, latencies, over_limits, traces
from analysis.figures.style import TreatmentStyle, drawing_style, numeric_factor, treatment_styles
from analysis.formatting import sentence_case
from analysis.run_frames import RunFrames
from analysis.strip import run_strip
from analysis.views import evidence_tables, run
from analysis.views.html import (
    Html,
    block_table_html,
    blocks_html,
    definition_text_html,
    figure_html,
    folded,
    folded_table,
    strip_html,
    svg_html,
    table_html,
)
from analysis.views.run import memory_section, minima_section
from pagecage.checkout import TOP
from pagecage.model.published_figures import read_rows
from pagecage.units import KIB

_MOST_REASONS = 3
"""Reasons per collector that a report names at its top."""
_EMULATED = (
    "<strong>Emulated.</strong> The guest's CPU was emulated (TCG). Times that depend on the CPU"
    " are several times too long and not comparable with published ones. Counts of bytes and I/Os"
    " are comparable, and so are ratios of times that the disk or a limit determines."
)
ABOUT_CLAIMS = "Each figure counts as reproduced by a rule in the experiment's definition."
ABOUT_TIME = (
    "Lines: the slice's own I/O, sampled ten times a second from its <code>io.stat</code> and"
    " averaged over 0.5 s (0.2 s in parts shorter than 3 s). Markers: iostat's figures for the"
    " whole disk, one per second. Dashed: the cap. Grey: before <code>go</code> and after the end."
)
ABOUT_LATENCY = (
    "From the median on the left to the rarest on the right. Lines without markers are histograms"
    " of all included trials, up to the slowest operation; lines through markers join recorded"
    " percentiles, as medians over trials."
)
ABOUT_RESIDENCY = (
    "vmtouch's bars below one another, time downwards. Full colour: all pages of that sixtieth of"
    " the data are resident; pale: some are. Lines: <code>go</code> and the end."
)
ABOUT_OWN = (
    "Numbers that programs and scripts of the definition printed, one line per trial. They ran"
    " outside of the cage. Grey: before <code>go</code> and after the end."
)
OWN_COLUMNS = (
    "lines: median per trial; CPU: most CPU time in a trial, as a share of one CPU while the"
    " collector ran; silent: times without a line for more than a second longer than expected"
)
ABOUT_KERNEL = (
    "Pages per read-ahead request of the kernel (<code>page_cache_ra_order</code>), and faults by"
    " the flags of the mapping (<code>filemap_fault</code>)."
)


class ReportPart(property):
    """A property that is a part of a report: HTML; None if its function returns an empty text."""

    def __init__(self, text_of: Callable[[Any], str]) -> None:
        def part(results: Results) -> Html | None:
            return Html(text) if (text := text_of(results)) else None

        super().__init__(part, doc=text_of.__doc__)


class Results(RunFrames):
    """A run ready for display: each part is HTML, or None to show nothing."""

    @cached_property
    def styles(self) -> dict[str, TreatmentStyle]:
        """The style of each treatment, the same in every figure."""
        return treatment_styles(self.run)

    @cached_property
    def causes(self) -> list[BindingCause]:
        return causes(self.run)

    @ReportPart
    def heading(self) -> str:
        title, question = escape(self.run.experiment), self.run.definition["question"]
        asked = f'<p class="question">{definition_text_html(question)}</p>'
        return f"<h1>{title}</h1>{asked}{strip_html(run_strip(self.run, self.causes))}"

    @ReportPart
    def answer(self) -> str:
        items, search = answer_html(self.run), blocks_html(memory_section(self.run))
        answer = f'<ul class="answer">{items}</ul>' if items else ""
        return f"<h2>Findings</h2>{answer}{search}" if answer or search else ""

    @ReportPart
    def cells(self) -> str:
        """The experiment's table; the slowest figure is the darkest."""
        kind = "cells" if self.run.layout.across else "cells rows"
        table = block_table_html(run.main_table(self.run), kind)
        return table + blocks_html(ratio_sections(self.run))

    @ReportPart
    def tables(self) -> str:
        parts = []
        for table in self.run.definition.get("tables", []):
            frame = evidence_tables.response_table(self.run, table)
            title, about = (self.run.fill_places(table.get(key, "")) for key in ("title", "about"))
            if made := table_html(frame, "cells further", title):
                paragraph = f"<p>{definition_text_html(about)}</p>" if about else ""
                parts.append(f"<h3>{definition_text_html(title)}</h3>{paragraph}{made}")
        return "".join(parts)

    @ReportPart
    def figure(self) -> str:
        """The response over a numeric factor, or else one point per trial, collapsed."""
        run, response = self.run, self.run.response
        factor, levels = numeric_factor(run) or ("", {})
        curve = figure_html(
            lambda: charts.curve_figure(run, self.trial_df, response, self.styles),
            lambda: charts.curve_alt_text(
                charts.curve_lines(run, self.trial_df, response, factor),
                factor,
                list(levels),
                response,
            ),
        )
        return curve or folded("every trial as a point", self._strips(self.trial_df, response))

    def _strips(
        self, trial_df: pd.DataFrame, response: str, marks: Mapping[str, float] | None = None
    ) -> str:
        draw = partial(charts.strip_figure, marks=marks)
        return figure_html(draw, charts.strip_alt_text, trial_df, response, self.styles)

    @ReportPart
    def strips(self) -> str:
        return self._strips(self.trial_df, self.run.response)

    @ReportPart
    def latencies(self) -> str:
        data = self.trial_df, self.latency_df, self.styles
        with drawing_style():
            drawn = latencies.latency_figures(*data)
        parts = [
            svg_html(figure, latencies.latency_alt_text(what, *data), what.replace("_", " "))
            for what, figure in drawn.items()
        ]
        head = f"<h2>Latency distribution</h2><p>{ABOUT_LATENCY}</p>"
        return head + "".join(parts) if parts else ""

    @ReportPart
    def claims(self) -> str:
        """Published and measured figures below one line with their verdicts, collapsed."""
        run_, untestable = self.run, "published figures that cannot be tested here"
        made = table_html(evidence_tables.claims_table(run_), "claims", "published and measured")
        silent = folded_table(
            "published figures without a figure from this run",
            evidence_tables.silent_table(run_),
            "claims",
        )
        left = folded_table(
            untestable, evidence_tables.untestable_table(run_, read_rows(TOP / "experiments"))
        )
        if not (parts := with_anchors(made + silent + left)):
            return ""
        about = f"<p>{ABOUT_CLAIMS}</p>" if made else ""
        line = run.claims_tally(evaluate_claims(run_)) or "no figure to compare"
        text = f"{contradiction_html(run_)}{about}{parts}{blocks_html(minima_section(run_))}"
        return folded(f"published figures: {line}", text)

    @ReportPart
    def sweep(self) -> str:
        """Measured and predicted times, and the knee, of a sweep; the curve of a memory search."""
        if search := memory.memory_run(self.run):
            return figure_html(over_limits.memory_figure, memory.memory_alt_text, search)
        if not (found := sweep.sweep_of(self.run)) or not found.points:
            return ""
        table = table_html(pd.DataFrame(sweep.sweep_rows(found)))
        factor = self.run.plan["sweep"]["factor"]
        drawn = figure_html(
            lambda: over_limits.sweep_figure(found, factor, self.trial_df, self.styles),
            lambda: over_limits.sweep_alt_text(found),
        )
        return f"<h2>Sweep of one limit</h2>{table}{_list(sweep.sweep_sentences(found))}{drawn}"

    @ReportPart
    def diagnosis(self) -> str:
        rows = map(run.cause_row, self.causes)
        frame = pd.DataFrame(rows, columns=["limit", "diagnosis"])
        made = table_html(frame, "causes", "what held the treatments back")
        lines = [f"{sentence}." for sentence in fidelity_lines(self.run)]
        head = "<p>Fidelity to the provider's behaviour:</p>" if lines else ""
        return f"<h2>Diagnosis</h2>{made}{head}{_list(lines)}" if made else ""

    @ReportPart
    def story(self) -> str:
        return folded("why this was measured", story_html(self.run))

    @ReportPart
    def limitations(self) -> str:
        return folded("size, host and limitations", notices_html(self.run))

    @ReportPart
    def evidence(self) -> str:
        """The evidence for the verdicts, collapsed: limits, cache, quiet, exclusions."""
        counts = evidence_tables.counts_table(self.run)
        parts = [folded_table("trials by outcome", counts, "narrow", counted=False)]
        parts += [
            folded_table(title, table(self.run))
            for title, table in (
                ("trials that are not included", evidence_tables.excluded_table),
                ("limits, with evidence that each was enforced", evidence_tables.limits_table),
                ("treatments: cache state, host and binding limit", evidence_tables.proof_table),
            )
        ]
        return "".join(parts)

    @ReportPart
    def amplification(self) -> str:
        """Bytes read per byte requested, with the read-ahead window as a mark, collapsed."""
        if "amplification" not in self.trial_df:
            return ""
        read = self.trial_df[self.trial_df["amplification"] > 0]
        if read.empty:
            return ""
        settings = (t.record.device.queue_settings or {} for t in self.run.trials)
        sizes = {one.get("read_ahead_kb") for one in settings} - {None}
        marks = {"each byte once": 1.0}
        if len(sizes) == 1:
            window = float(sizes.pop() or 0)
            marks[f"{window:.0f} KiB for each page"] = window * KIB / self.run.page_bytes
        return folded("read amplification", self._strips(read, "amplification", marks))

    @ReportPart
    def timelines(self) -> str:
        """Transfer rates over time, sizes, residency, refaults and stalls, collapsed."""
        run, trace_df, styles = self.run, self.trace_df, self.styles
        panels, names = traces.timeline_treatments(self.trial_df, trace_df, styles)
        made = figure_html(
            lambda: traces.timeline_figure(
                run, self.trial_df, trace_df, frames.iostat_frame(run), styles
            ),
            lambda: traces.timeline_alt_text(trace_df, names, panels, styles),
        )
        specs = traces.state_panels(trace_df, names)
        states = figure_html(
            lambda: traces.state_figure(run, names, specs, trace_df, styles),
            lambda: traces.timeline_alt_text(trace_df, names, specs, styles),
        )
        about = escape(", ".join(spec.words for spec in specs)) + ", over time"
        made += f"<h3>{about}</h3>{states}" if states else ""
        return folded("disk traffic over time", made, ABOUT_TIME)

    @ReportPart
    def own_collectors(self) -> str:
        names = frames.own_collector_names(self.run)
        if not names:
            return ""
        all_df, figures = frames.own_frame(self.run), ""
        for name in names:
            own_df = all_df[all_df["collector"] == name]
            made = figure_html(traces.own_figure, traces.own_alt_text, own_df, self.styles)
            if not made:
                figures += f'<p class="notice warn">{escape(name)}: no numbers to draw.</p>'
                continue
            figures += f"<h4>{escape(name)}</h4>{made}"
            if (more := own_df["field"].nunique() - traces.MOST_FIELDS) > 0:
                figures += f'<p class="source">{more} further fields are in its trace.</p>'
        table = table_html(evidence_tables.collectors_table(self.run, names), "narrow")
        head = f"<h3>Collectors of this definition</h3><p>{ABOUT_OWN}</p>"
        return f'{head}{table}<p class="source">{escape(OWN_COLUMNS)}</p>{figures}'

    @ReportPart
    def residency(self) -> str:
        shown = charts.changing_residency(frames.vmtouch_frame(self.run), self.styles)
        made = figure_html(charts.residency_figure, charts.residency_alt_text, shown, self.styles)
        return folded("residency", made, ABOUT_RESIDENCY)

    @ReportPart
    def kernel(self) -> str:
        readahead_df = frames.readahead_frame(self.run)
        draw = partial(charts.readahead_figure, page_bytes=self.run.page_bytes)
        drawn = figure_html(draw, charts.readahead_alt_text, readahead_df, self.styles)
        fault_df = evidence_tables.fault_table(frames.fault_frame(self.run))
        faults = folded_table("faults by flags of the mapping", fault_df)
        events = folded_table("events by treatment", evidence_tables.fault_event_table(self.run))
        return folded("read-ahead and faults", drawn + faults + events, ABOUT_KERNEL)

    @ReportPart
    def trials(self) -> str:
        frame = evidence_tables.trial_table(self.run)
        return folded_table("trials, in the order they ran", frame, "long")

    @ReportPart
    def facts(self) -> str:
        return folded_table("facts of the host", evidence_tables.facts_table(self.run), "narrow")

    @ReportPart
    def making(self) -> str:
        made = evidence_tables.making_table(self.run)
        return folded_table("command, versions and hashes", made, "narrow", counted=False)


def _list(texts: Sequence[str], as_html: Callable[[str], str] = escape) -> str:
    items = "".join(f"<li>{as_html(text)}</li>" for text in texts)
    return f"<ul>{items}</ul>" if items else ""


def story_html(run: Run) -> str:
    definition, source = run.definition, run.definition.get("source") or {}
    cited = ", ".join(str(source[key]) for key in ("title", "author", "date") if source.get(key))
    after = f'<p class="source">After: {escape(cited)}</p>' if cited else ""
    paragraphs = str(definition.get("story", "")).strip().split("\n\n")
    return "".join(map(paragraph_html, filter(None, paragraphs))) + after


def paragraph_html(text: str) -> str:
    """Return a paragraph of the definition, or a list if each item begins with `- `."""
    if not text.startswith("- "):
        return f"<p>{definition_text_html(text)}</p>"
    return _list(text.removeprefix("- ").split("\n- "), definition_text_html)


def answer_html(run: Run) -> str:
    items, found = [], evaluate_findings(run)
    for finding, published in zip(found, published_ratios(run), strict=True):
        if finding.value is None:
            continue
        sentence, value = _finding_html(finding), escape(finding.value)
        notes = "; ".join(filter(None, (published and f"published: {published}", finding.note)))
        note = f"<small>{_capitalised(notes)}.</small>" if notes else ""
        figure, opened, interval = value.partition(" (")
        strong = f"<strong>{figure}</strong>{opened}{interval}" if finding.is_proven else value
        items.append(f"<li>{sentence.replace(value, strong, 1)}{note}</li>")
    for reason, missing in unmeasured(found).items():
        text, sentences = f"Not measured: {escape(reason)}.", [*map(_finding_html, missing)]
        if len(sentences) == 1:
            items.append(f'<li class="open">{sentences[0]}<small>{text}</small></li>')
        else:
            listed = "".join(f"<li>{sentence}</li>" for sentence in sentences)
            folded = f"<details><summary>{text} ({len(sentences)} findings)</summary>"
            items.append(f'<li class="open">{folded}<ul>{listed}</ul></details></li>')
    return "".join(items)


def _finding_html(finding: Finding) -> str:
    question = escape(finding.question)
    ref = f' <span class="ref">{question}</span>' if question else ""
    return definition_text_html(finding.sentence) + ref


def notices_html(run: Run) -> str:
    notices = [*_notices(run), *_collector_notices(run)]
    size, reason = run.size, run.plan.get("size_reason") or "as requested"
    notices.append(("plain", f"<strong>Size {escape(size)}.</strong> {_capitalised(reason)}."))
    return "".join(f'<div class="notice {kind}">{text}</div>' for kind, text in notices)


def _collector_notices(run: Run) -> Iterator[tuple[str, str]]:
    failed, keys = Counter[tuple[str, str]](), dict[str, dict[str, None]]()
    for trial in run.trials:
        for name, collector in trial.record.collectors.items():
            if collector["status"] != "ok":
                reason = str(collector.get("reason") or collector["status"]).rstrip(".")
                failed[name, reason] += 1
            found = map(str, collector.get("unavailable") or ())
            keys.setdefault(name, {}).update(dict.fromkeys(found))
    shown: Counter[str] = Counter()
    for (name, reason), count in failed.most_common():
        shown[name] += 1
        if shown[name] <= _MOST_REASONS:
            head = f"<strong>{escape(name)} is incomplete</strong>"
            yield "warn", f"{head} in {count} trials: {escape(reason)}."
    for name, count in shown.items():
        if count > _MOST_REASONS:
            more = f"has {count - _MOST_REASONS} further reasons"
            yield "warn", f"<strong>{escape(name)}</strong> {more}."
    for name, untraced in keys.items():
        if untraced:
            listed = ", ".join(f"<code>{escape(key)}</code>" for key in untraced)
            verb = "is" if len(untraced) == 1 else "are"
            yield "plain", f"<strong>{escape(name)}:</strong> {listed} {verb} {UNTRACED}."


def _notices(run: Run) -> Iterator[tuple[str, str]]:
    if run.is_emulated:
        yield "warn", _EMULATED
    if sentence := real_cpu_sentence(run):
        yield "plain", f"{escape(sentence)}."
    if run.plan.get("until_ci"):
        yield "plain", f"<strong>Stopping rule.</strong> {_capitalised(stopping_rule_status(run))}."
    yield from _trial_notices(run)
    for sentence in filter(None, (gap_sentence(run), *repeat_differences(run))):
        yield "warn", f"{_capitalised(sentence)}."
    if sentence := included_by_name_sentence(run):
        yield "warn", f"<strong>Included by name.</strong> {_capitalised(sentence)}."
    if excluded := len(excluded_trials(run)):
        what = f"{excluded} of {len(run.plan['trials'])} trials are excluded"
        yield "warn", f"<strong>{what}</strong> by their verdicts: shown, but not included."


def _trial_notices(run: Run) -> Iterator[tuple[str, str]]:
    planned, answered = len(run.plan["trials"]), sum(t.verdicts.is_data_point for t in run.trials)
    outcomes = Counter(trial.record.outcome for trial in run.trials)
    unable, wrong = outcomes["requirement_missed"], outcomes["wrong_answer"]
    if unable:
        items = "".join(
            f"<li>{escape(reason)}<small>{escape(', '.join(names))}</small></li>"
            for reason, names in unable_by_reason(run).items()
        )
        head = f"<strong>This host could not run {unable} of {planned} trials</strong>"
        yield "warn", f"{head}:<ul>{items}</ul>"
    if wrong:
        head = f"<strong>{wrong} of {planned} trials gave a wrong answer</strong>"
        yield "warn", f"{head}: shown as such, not included."
    if answered + unable + wrong < planned:
        yield "warn", f"<strong>Unfinished.</strong> {answered} of {planned} trials have an answer."


def _capitalised(text: str) -> str:
    return escape(sentence_case(text))
