"""Findings of a run, and answers to the articles' open questions."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from analysis.articles.evaluate import (
    EXTRAPOLATED,
    ClaimResult,
    different_hosts,
    evaluate_claims,
    incomparable_reason,
    reason_without_figure,
)
from analysis.articles.rules import DECODED, traced_words
from analysis.articles.sides import responses_of, sides_of, summarise_sides
from analysis.cells import MARK, claim_trials, has_gap, is_extrapolated, wrong_answer_reason
from analysis.data.load import JudgedTrial, Run
from analysis.formatting import format_summary
from analysis.stats import MedianSummary

_NO_VALUE = "…"
_EMULATED = "mostly the emulated CPU's time"
_VERDICTS = {
    "held": "holds in this run",
    "not_held": "does not hold in this run",
    "undecided": "is undecided in this run",
    "not_comparable": "cannot be compared in this run",
    "requirement_missed": "needs a requirement that this host lacks",
    "no_data": "has no figure in this run",
}
GAP = f"{MARK} includes trials without proof"
_UNPROVEN = "† rests on excluded trials alone and proves nothing"


@dataclass(frozen=True)
class Finding:
    """One sentence of the answer.

    `value` is the figure as text, None if it was not measured; `note` states its limitations. A
    figure that rests on excluded trials alone is in brackets, and `is_proven` is False. `middle`,
    `low` and `high` are in the response's own unit, or a ratio.
    """

    question: str
    sentence: str
    value: str | None
    middle: float | None
    low: float | None
    high: float | None
    n: int
    note: str
    is_proven: bool


def evaluate_findings(run: Run) -> list[Finding]:
    """Evaluate every finding of the definition, in its order."""
    tables = run.definition.get("findings", [])
    is_needed = any(table.get("claim") for table in tables)
    results = {result.id: result for result in evaluate_claims(run)} if is_needed else {}
    return [_with_verdict(_find(run, table), results.get(table.get("claim"))) for table in tables]


def _with_verdict(finding: Finding, claim: ClaimResult | None) -> Finding:
    """Return the finding with a note that states whether its claim holds."""
    if claim is None:
        return finding
    note = f"{claim.id} {_VERDICTS[claim.verdict]}"
    return replace(finding, note="; ".join(part for part in (finding.note, note) if part))


def _find(run: Run, table: Mapping[str, Any]) -> Finding:
    if refused := _refused(run, table):
        return _finding(table, None, None, refused)
    sides = sides_of(run, table)
    eligible = [claim_trials(side, table) for side in sides]
    response = table["response"]
    if response == "outcome" or response in DECODED:
        whole = [trial for trial in sides[0] if trial.is_valid_apart_from_noise]
        ends = claim_trials(sides[0], {"with_wrong_answers": True})
        if response in DECODED and whole:
            value, note = _decoded(run, whole, response)
            return _finding(table, value, None, note)
        value = _outcomes(ends) if response == "outcome" else None
        note = "" if value else reason_without_figure(run, table, sides[:1], eligible[:1])
        return _finding(table, value, None, note)
    summary = summarise_sides(run, table, eligible)
    if summary:
        return _finding(
            table,
            format_summary(response, summary, is_ratio=len(sides) > 1),
            summary,
            _note(run, response, eligible),
        )
    points = [[trial for trial in side if _is_point(trial, table)] for side in sides]
    unproven = summarise_sides(run, table, points)
    if unproven is None:
        return _finding(table, None, None, reason_without_figure(run, table, sides, eligible))
    value = f"({format_summary(response, unproven, is_ratio=len(sides) > 1)}) †"
    return _finding(table, value, unproven, _UNPROVEN, is_proven=False)


def _is_point(trial: JudgedTrial, table: Mapping[str, Any]) -> bool:
    """Return whether the trial has a figure, whether or not it is excluded."""
    is_taken = bool(table.get("with_wrong_answers")) and trial.record.outcome == "wrong_answer"
    return trial.verdicts.is_data_point or is_taken


def _refused(run: Run, table: Mapping[str, Any]) -> str | None:
    """Return why a figure means nothing: equal sides (of older definitions), or several hosts."""
    responses = responses_of(table)
    if table.get("over") and table["over"] == table.get("where") and responses[0] == responses[1]:
        return "it divides a figure by itself"
    return different_hosts(sides_of(run, table))


def _note(run: Run, response: str, eligible: Sequence[Sequence[JudgedTrial]]) -> str:
    incomparable = incomparable_reason(run, {"needs": "any_size", "response": response}, eligible)
    partial = any(is_extrapolated(trial, response) for side in eligible for trial in side)
    wrong = wrong_answer_reason([trial for side in eligible for trial in side])
    gap = GAP if has_gap(trial for side in eligible for trial in side) else ""
    parts = [_EMULATED if incomparable else "", EXTRAPOLATED if partial else "", wrong, gap]
    return "; ".join(part for part in parts if part)


def _outcomes(eligible: Sequence[JudgedTrial]) -> str | None:
    if not eligible:
        return None
    words = Counter(
        "killed" if trial.is_killed else trial.record.outcome.replace("_", " ")
        for trial in eligible
    )
    return ", ".join(f"{word} {n} of {len(eligible)} times" for word, n in words.most_common())


def _decoded(run: Run, eligible: Sequence[JudgedTrial], response: str) -> tuple[str | None, str]:
    """Return the most frequent words, or None and the reason."""
    traced = traced_words(run, eligible, response)
    if isinstance(traced, str):
        return None, traced
    words, names = traced
    names_by_word = [" ".join(names.get(word) or [f"{word:,}"]) for word, _ in words.most_common(3)]
    return ", ".join(names_by_word) or "none", ""


def _finding(
    table: Mapping[str, Any],
    value: str | None,
    summary: MedianSummary | None,
    note: str,
    *,
    is_proven: bool = True,
) -> Finding:
    if value and "{value} times" in table["says"]:
        value = value.replace("×", "")
    return Finding(
        question=table.get("question", ""),
        sentence=table["says"].replace("{value}", value or _NO_VALUE),
        value=value,
        middle=summary.middle if summary else None,
        low=summary.low if summary else None,
        high=summary.high if summary else None,
        n=summary.n if summary else 0,
        note=note,
        is_proven=is_proven and value is not None,
    )


@dataclass(frozen=True)
class QuestionFinding:
    """A finding of one run; `sentence` contains its figure, `note` its limitations."""

    experiment: str
    run: str
    sentence: str
    note: str
    is_proven: bool


@dataclass(frozen=True)
class OpenQuestion:
    """A question, what is known without measuring, and the findings that answer it."""

    id: str
    question: str
    known: str
    findings: tuple[QuestionFinding, ...]

    @property
    def is_open(self) -> bool:
        """True if no proven figure answers it."""
        return not any(finding.is_proven for finding in self.findings)


@dataclass(frozen=True)
class OpenQuestions:
    """All questions in order, and the runs by experiment."""

    questions: tuple[OpenQuestion, ...]
    runs: Mapping[str, Run]


def open_questions(experiments: Path, newest: Mapping[str, Run]) -> OpenQuestions:
    """Return every question of experiments/questions.csv with the findings of the newest runs."""
    findings = [pair for run in newest.values() for pair in _findings(run)]
    rows = csv.DictReader((experiments / "questions.csv").read_text(encoding="utf-8").splitlines())
    questions = (
        OpenQuestion(
            **row,
            findings=tuple(finding for question, finding in findings if question == row["id"]),
        )
        for row in rows
    )
    return OpenQuestions(tuple(questions), newest)


def _findings(run: Run) -> Iterator[tuple[str, QuestionFinding]]:
    """Yield the run's findings that have a figure, each with the id of its question."""
    for finding in evaluate_findings(run):
        if finding.value is not None:
            yield finding.question, _question_finding(run, finding)


def _question_finding(run: Run, finding: Finding) -> QuestionFinding:
    plan = run.plan
    return QuestionFinding(
        str(plan["experiment"]),
        str(plan["run_id"]),
        finding.sentence,
        finding.note,
        finding.is_proven,
    )


def as_json(found: OpenQuestions) -> list[dict[str, Any]]:
    """Return the questions as JSON data."""
    return [
        {
            "id": question.id,
            "question": question.question,
            "known": question.known,
            "said": [asdict(finding) for finding in question.findings],
            "is_open": question.is_open,
        }
        for question in found.questions
    ]
