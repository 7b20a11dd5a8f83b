"""Texts of a report: the definition's own, and notices about its limitations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from html import escape

from analysis.articles.findings import Finding, evaluate_findings
from analysis.articles.ratios import published_ratios, real_cpu_sentence
from analysis.articles.tables import contradiction_html
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
ABOUT_KERNEL = (
    "Pages per read-ahead request of the kernel (<code>page_cache_ra_order</code>), and faults by"
    " the flags of the mapping (<code>filemap_fault</code>)."
)


def story_html(run: Run) -> str:
    """Return experiment and question, contradictions of the article, story and source."""
    definition, source = run.definition, run.definition.get("source") or {}
    cited = ", ".join(str(source[key]) for key in ("title", "author", "date") if source.get(key))
    after = f'<p class="source">After: {escape(cited)}</p>' if cited else ""
    paragraphs = str(definition.get("story", "")).strip().split("\n\n")
    story = "".join(map(paragraph_html, filter(None, paragraphs)))
    question = f'<p class="question">{definition_text_html(definition["question"])}</p>'
    title = f"<h1>{escape(run.plan['experiment'])}</h1>"
    return f"{title}{question}{contradiction_html(run)}{story}{after}"


def paragraph_html(text: str) -> str:
    """Return a paragraph of the definition, or a list if each item begins with `- `."""
    if not text.startswith("- "):
        return f"<p>{definition_text_html(text)}</p>"
    items = text.removeprefix("- ").split("\n- ")
    return "<ul>" + "".join(f"<li>{definition_text_html(item)}</li>" for item in items) + "</ul>"


def answer_html(run: Run) -> str:
    """Return the findings as list items, each with its figure or the reason for having none."""
    return "".join(map(_finding_html, evaluate_findings(run), published_ratios(run)))


def _finding_html(finding: Finding, published: str) -> str:
    question = f' <span class="ref">{escape(finding.question)}</span>' if finding.question else ""
    sentence, value = definition_text_html(finding.sentence), escape(finding.value or "")
    if finding.value is None:
        reason = f"<small>Not measured: {escape(finding.note)}.</small>"
        return f'<li class="open">{sentence}{question}{reason}</li>'
    notes = [f"published: {published}"] if published else []
    notes += [finding.note] if finding.note else []
    note = f"<small>{_capitalised('; '.join(notes))}.</small>" if notes else ""
    figure, opened, interval = value.partition(" (")
    strong = f"<strong>{figure}</strong>{opened}{interval}" if finding.is_proven else value
    return f"<li>{sentence.replace(value, strong, 1)}{question}{note}</li>"


def unable_html(run: Run) -> str:
    """Return the treatments that this host cannot run, by missing requirement."""
    treatments_by_reason: dict[str, list[str]] = {}
    for trial in run.trials:
        if trial.record.outcome == "requirement_missed":
            reasons = [missed.reason for missed in trial.record.missed_requirements]
            reason = "; ".join(reasons) or str(trial.record.error or "no reason was recorded")
            treatments_by_reason.setdefault(reason, []).append(
                treatment_label(trial.record.treatment)
            )
    rows = (
        f"<li>{escape(reason)}<small>{escape(', '.join(dict.fromkeys(names)))}</small></li>"
        for reason, names in treatments_by_reason.items()
    )
    return "".join(rows)


def notices_html(run: Run) -> str:
    """Return a box for each limitation of the figures."""
    return "".join(f'<div class="notice {kind}">{text}</div>' for kind, text in _notices(run))


def _failed_collectors(run: Run) -> Counter[tuple[str, str]]:
    """Count the collectors that failed or are incomplete, by reason."""
    return Counter(
        (name, str(collector.get("reason") or collector["status"]).rstrip("."))
        for trial in run.trials
        for name, collector in trial.record.collectors.items()
        if collector["status"] != "ok"
    )


def _incomplete_collectors(run: Run) -> Iterator[str]:
    """Yield a sentence per reason; of a collector with many, only the most frequent ones."""
    failed = _failed_collectors(run)
    shown: Counter[str] = Counter()
    for (name, reason), count in failed.most_common():
        shown[name] += 1
        if shown[name] <= _MOST_REASONS:
            yield (
                f"<strong>{escape(name)} is incomplete</strong> in {count} trials:"
                f" {escape(reason)}."
            )
    for name, count in shown.items():
        if count > _MOST_REASONS:
            yield f"<strong>{escape(name)}</strong> has {count - _MOST_REASONS} further reasons."


def _untraced(run: Run) -> Iterator[str]:
    """Yield a sentence per tracer whose probes could not tell everything."""
    keys: dict[str, dict[str, None]] = {}
    for trial in run.trials:
        for name, collector in trial.record.collectors.items():
            found = map(str, collector.get("unavailable") or ())
            keys.setdefault(name, {}).update(dict.fromkeys(found))
    for name, untraced in keys.items():
        if untraced:
            listed = ", ".join(f"<code>{escape(key)}</code>" for key in untraced)
            verb = "is" if len(untraced) == 1 else "are"
            yield f"<strong>{escape(name)}:</strong> {listed} {verb} {UNTRACED}."


def _notices(run: Run) -> Iterator[tuple[str, str]]:
    if run.is_emulated:
        yield "warn", _EMULATED
    if sentence := real_cpu_sentence(run):
        yield "plain", f"{escape(sentence)}."
    if run.plan.get("until_ci"):
        yield "plain", f"<strong>Stopping rule.</strong> {_capitalised(stopping_rule_status(run))}."
    planned, answered = len(run.plan["trials"]), sum(t.verdicts.is_data_point for t in run.trials)
    unable = sum(t.record.outcome == "requirement_missed" for t in run.trials)
    if unable:
        head = f"<strong>This host could not run {unable} of {planned} trials</strong>"
        yield "warn", f"{head}:<ul>{unable_html(run)}</ul>"
    wrong = sum(t.record.outcome == "wrong_answer" for t in run.trials)
    if wrong:
        yield (
            "warn",
            (
                f"<strong>{wrong} of {planned} trials gave a wrong answer</strong>: shown as such,"
                " not included."
            ),
        )
    if answered + unable + wrong < planned:
        yield "warn", f"<strong>Unfinished.</strong> {answered} of {planned} trials have an answer."
    for sentence in filter(None, (gap_sentence(run), *repeat_differences(run))):
        yield "warn", f"{_capitalised(sentence)}."
    if sentence := included_by_name_sentence(run):
        yield "warn", f"<strong>Included by name.</strong> {_capitalised(sentence)}."
    excluded = sum(t.is_excluded and t.verdicts.is_data_point for t in run.trials)
    if excluded:
        what = f"{excluded} of {planned} trials are excluded"
        yield "warn", f"<strong>{what}</strong> by their verdicts: shown, but not included."
    yield from (("warn", text) for text in _incomplete_collectors(run))
    yield from (("plain", text) for text in _untraced(run))
    size = run.plan["size"]
    reason = run.plan.get("size_reason") or "as requested"
    yield "plain", f"<strong>Size {escape(size)}.</strong> {_capitalised(reason)}."


def _capitalised(text: str) -> str:
    return escape(text[:1].upper() + text[1:])
