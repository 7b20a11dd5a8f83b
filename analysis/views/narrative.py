"""The words of a report: the definition's own, and the notices that its verdicts demand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from html import escape

from analysis.claims.findings import Finding, find
from analysis.data.include import included_by_name_sentence
from analysis.data.load import Run
from analysis.formatting import label
from analysis.summaries.diagnoses import stopping
from analysis.views.html import prose_html

EMULATED = (
    "<strong>Emulated.</strong> The guest's instructions were translated (TCG), so that every time which the CPU "
    "decides is several times too long. Such times are not comparable with published ones. Counts of bytes and I/Os "
    "are, and so are ratios of times that the disk or a limit decides."
)


def story_html(run: Run) -> str:
    """Experiment, question, source and story, from the definition."""
    definition, source = run.definition, run.definition.get("source") or {}
    cited = ", ".join(str(source[key]) for key in ("title", "author", "date") if source.get(key))
    after = f'<p class="source">After: {escape(cited)}</p>' if cited else ""
    paragraphs = str(definition.get("story", "")).strip().split("\n\n")
    story = "".join(f"<p>{prose_html(part)}</p>" for part in paragraphs if part)
    question = f'<p class="question">{prose_html(definition["question"])}</p>'
    return f"<h1>{escape(run.plan['experiment'])}</h1>{question}{story}{after}"


def answer_html(run: Run) -> str:
    """The experiment's own findings as sentences, each with its figure or with why it has none; empty without any."""
    return "".join(_finding_html(finding) for finding in find(run))


def _finding_html(finding: Finding) -> str:
    question = f' <span class="ref">{escape(finding.question)}</span>' if finding.question else ""
    sentence, value = prose_html(finding.sentence), escape(finding.value or "")
    if finding.value is None:
        why = f"<small>Not measured: {escape(finding.note)}.</small>"
        return f'<li class="open">{sentence}{question}{why}</li>'
    note = f"<small>{escape(finding.note[:1].upper() + finding.note[1:])}.</small>" if finding.note else ""
    figure, opened, interval = value.partition(" (")
    strong = f"<strong>{figure}</strong>{opened}{interval}" if finding.is_proven else value
    return f"<li>{sentence.replace(value, strong, 1)}{question}{note}</li>"


def unable_html(run: Run) -> str:
    """Treatments that this host lacks something for, by what it lacks."""
    lacking: dict[str, list[str]] = {}
    for trial in run.trials:
        if trial.record.outcome == "requirement_missed":
            reasons = [missed.reason for missed in trial.record.missed_requirements]
            told = lacking.setdefault("; ".join(reasons) or str(trial.record.error or "it did not say what"), [])
            told.append(label(dict(trial.record.treatment)))
    rows = (
        f"<li>{escape(why)}<small>{escape(', '.join(dict.fromkeys(names)))}</small></li>"
        for why, names in lacking.items()
    )
    return "".join(rows)


def notices(run: Run) -> str:
    """A box for everything that limits what the figures mean."""
    return "".join(f'<div class="notice {kind}">{text}</div>' for kind, text in _notices(run))


def _failed_collectors(run: Run) -> Counter[tuple[str, str]]:
    """Collectors that did not record all they should, by reason."""
    return Counter(
        (name, str(collector.get("reason") or collector["status"]).rstrip("."))
        for trial in run.trials
        for name, collector in trial.record.collectors.items()
        if collector["status"] != "ok"
    )


def _notices(run: Run) -> Iterator[tuple[str, str]]:
    if run.is_emulated:
        yield "warn", EMULATED
    if run.plan.get("until_ci"):
        told = escape(stopping(run))
        yield "plain", f"<strong>Stopping rule.</strong> {told[:1].upper()}{told[1:]}."
    planned, answered = len(run.plan["trials"]), sum(t.verdicts.is_data_point for t in run.trials)
    unable = sum(t.record.outcome == "requirement_missed" for t in run.trials)
    if unable:
        yield (
            "warn",
            f"<strong>This host could not run {unable} of {planned} trials</strong>:<ul>{unable_html(run)}</ul>",
        )
    wrong = sum(t.record.outcome == "wrong_answer" for t in run.trials)
    if wrong:
        yield (
            "warn",
            f"<strong>{wrong} of {planned} trials gave a wrong answer</strong>: shown as that, not averaged in.",
        )
    if answered + unable + wrong < planned:
        yield "warn", f"<strong>Unfinished.</strong> {answered} of {planned} trials have an answer."
    if said := included_by_name_sentence(run):
        yield "warn", f"<strong>Included by name.</strong> {escape(said[:1].upper() + said[1:])}."
    excluded = sum(t.is_excluded and t.verdicts.is_data_point for t in run.trials)
    if excluded:
        what = f"{excluded} of {planned} trials are excluded"
        yield "warn", f"<strong>{what}</strong> by their verdicts: shown, not averaged in."
    for (name, reason), count in _failed_collectors(run).items():
        yield "warn", f"<strong>{escape(name)} is not whole</strong> in {count} trials: {escape(reason)}."
    size = run.plan["size"]
    why = escape(run.plan.get("size_reason") or "as it was asked for")
    yield "plain", f"<strong>Size {escape(size)}.</strong> {why[:1].upper()}{why[1:]}."
