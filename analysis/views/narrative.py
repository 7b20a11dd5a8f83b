"""Texts of a report: the definition's own, and notices about its limitations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from html import escape

from analysis.articles.findings import evaluate_findings
from analysis.articles.ratios import published_ratios, real_cpu_sentence
from analysis.cells import gap_sentence, repeat_differences, stopping_rule_status
from analysis.data.events import UNTRACED
from analysis.data.load import Run, included_by_name_sentence
from analysis.formatting import treatment_label
from analysis.views.html import definition_text_html

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
    items = text.removeprefix("- ").split("\n- ")
    return "<ul>" + "".join(f"<li>{definition_text_html(item)}</li>" for item in items) + "</ul>"


def answer_html(run: Run) -> str:
    items = []
    for finding, published in zip(evaluate_findings(run), published_ratios(run), strict=True):
        question = (
            f' <span class="ref">{escape(finding.question)}</span>' if finding.question else ""
        )
        sentence, value = definition_text_html(finding.sentence), escape(finding.value or "")
        if finding.value is None:
            reason = f"<small>Not measured: {escape(finding.note)}.</small>"
            items.append(f'<li class="open">{sentence}{question}{reason}</li>')
            continue
        notes = "; ".join(filter(None, (published and f"published: {published}", finding.note)))
        note = f"<small>{_capitalised(notes)}.</small>" if notes else ""
        figure, opened, interval = value.partition(" (")
        strong = f"<strong>{figure}</strong>{opened}{interval}" if finding.is_proven else value
        items.append(f"<li>{sentence.replace(value, strong, 1)}{question}{note}</li>")
    return "".join(items)


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
    excluded = sum(t.is_excluded and t.verdicts.is_data_point for t in run.trials)
    if excluded:
        what = f"{excluded} of {len(run.plan['trials'])} trials are excluded"
        yield "warn", f"<strong>{what}</strong> by their verdicts: shown, but not included."


def _trial_notices(run: Run) -> Iterator[tuple[str, str]]:
    planned, answered = len(run.plan["trials"]), sum(t.verdicts.is_data_point for t in run.trials)
    missed: dict[str, dict[str, None]] = {}
    for trial in run.trials:
        if trial.record.outcome == "requirement_missed":
            reasons = "; ".join(one.reason for one in trial.record.missed_requirements)
            reasons = reasons or str(trial.record.error or "no reason was recorded")
            missed.setdefault(reasons, {})[treatment_label(trial.record.treatment)] = None
    outcomes = Counter(trial.record.outcome for trial in run.trials)
    unable, wrong = outcomes["requirement_missed"], outcomes["wrong_answer"]
    if unable:
        items = "".join(
            f"<li>{escape(reason)}<small>{escape(', '.join(names))}</small></li>"
            for reason, names in missed.items()
        )
        head = f"<strong>This host could not run {unable} of {planned} trials</strong>"
        yield "warn", f"{head}:<ul>{items}</ul>"
    if wrong:
        head = f"<strong>{wrong} of {planned} trials gave a wrong answer</strong>"
        yield "warn", f"{head}: shown as such, not included."
    if answered + unable + wrong < planned:
        yield "warn", f"<strong>Unfinished.</strong> {answered} of {planned} trials have an answer."


def _capitalised(text: str) -> str:
    return escape(text[:1].upper() + text[1:])
