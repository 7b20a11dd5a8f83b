"""Findings of a run, and answers to the articles' open questions."""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analysis.articles.evaluate import (
    DECODED,
    EXTRAPOLATED,
    different_hosts,
    evaluate_claims,
    incomparable_reason,
    reason_without_figure,
    traced_words,
)
from analysis.articles.sides import Sides, responses_of, sides_of, summarise_sides
from analysis.cells import MARK, claim_trials, has_gap, is_extrapolated, wrong_answer_reason
from analysis.data.load import Claim, JudgedTrial, Run
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
    tables = run.definition.get("findings", [])
    is_needed = any(table.get("claim") for table in tables)
    results = {result.id: result for result in evaluate_claims(run)} if is_needed else {}
    found = []
    for table in tables:
        finding = _find(run, table)
        if claim := results.get(table.get("claim")):
            note = f"{claim.id} {_VERDICTS[claim.verdict]}"
            finding = replace(finding, note="; ".join(filter(None, (finding.note, note))))
        found.append(finding)
    return found


def unmeasured(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    """Return the findings without a figure, by the reason."""
    found = dict[str, list[Finding]]()
    for finding in findings:
        if finding.value is None:
            found.setdefault(finding.note, []).append(finding)
    return found


def _find(run: Run, table: Claim) -> Finding:
    response, responses = table["response"], responses_of(table)
    sides = sides_of(run, table)
    is_same = table.get("over") == table.get("where") and responses[0] == responses[1]
    if table.get("over") and is_same:  # possible in older definitions
        return _finding(table, None, None, "it divides a figure by itself")
    if several := different_hosts(sides):
        return _finding(table, None, None, several)
    eligible = [claim_trials(side, table) for side in sides]
    if response == "outcome" or response in DECODED:
        value, note = _words(run, response, sides[0])
        if not value and not note:
            note = reason_without_figure(run, table, sides[:1], eligible[:1])
        return _finding(table, value, None, note)
    if summary := summarise_sides(run, table, eligible):
        value = format_summary(response, summary, is_ratio=len(sides) > 1)
        return _finding(table, value, summary, _note(run, response, eligible))
    has_wrong = bool(table.get("with_wrong_answers"))

    def has_figure(trial: JudgedTrial) -> bool:
        is_wrong = trial.record.outcome == "wrong_answer"
        return trial.verdicts.is_data_point or (has_wrong and is_wrong)

    unproven = summarise_sides(run, table, [list(filter(has_figure, side)) for side in sides])
    if unproven is None:
        return _finding(table, None, None, reason_without_figure(run, table, sides, eligible))
    value = f"({format_summary(response, unproven, is_ratio=len(sides) > 1)}) †"
    return _finding(table, value, unproven, _UNPROVEN, is_proven=False)


def _words(run: Run, response: str, side: Sequence[JudgedTrial]) -> tuple[str | None, str]:
    """Return the outcomes or most frequent traced words, or None and the reason if known."""
    if response == "outcome":
        ends = claim_trials(side, {"with_wrong_answers": True})
        outcomes = ("killed" if t.is_killed else t.record.outcome.replace("_", " ") for t in ends)
        counts = Counter(outcomes).most_common()
        return ", ".join(f"{word} {n} of {len(ends)} times" for word, n in counts) or None, ""
    whole = [trial for trial in side if trial.is_valid_apart_from_noise]
    if not whole:
        return None, ""
    traced = traced_words(run, whole, response)
    if isinstance(traced, str):
        return None, traced
    words, names = traced
    most = [" ".join(names.get(w) or [f"{w:,}"]) for w, _ in words.most_common(3)]
    return ", ".join(most) or "none", ""


def _note(run: Run, response: str, eligible: Sides) -> str:
    incomparable = incomparable_reason(run, {"needs": "any_size", "response": response}, eligible)
    trials = [trial for side in eligible for trial in side]
    partial = any(is_extrapolated(trial, response) for trial in trials)
    parts = [_EMULATED if incomparable else "", EXTRAPOLATED if partial else ""]
    parts += [wrong_answer_reason(trials), GAP if has_gap(trials) else ""]
    return "; ".join(filter(None, parts))


def _finding(
    table: Claim,
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
class OpenQuestion:
    """A question, what is known without measuring, and the findings that answer it, by run."""

    id: str
    question: str
    known: str
    findings: tuple[tuple[Run, Finding], ...]

    @property
    def is_open(self) -> bool:
        return not any(finding.is_proven for _, finding in self.findings)


@dataclass(frozen=True)
class OpenQuestions:
    """All questions in order, and the runs by experiment."""

    questions: tuple[OpenQuestion, ...]
    runs: Mapping[str, Run]


def open_questions(experiments: Path, newest: Mapping[str, Run]) -> OpenQuestions:
    """Return every question of experiments/questions.csv with the findings of the newest runs."""
    findings: dict[str, list[tuple[Run, Finding]]] = defaultdict(list)
    for run in newest.values():
        for one in evaluate_findings(run):
            if one.value is not None:
                findings[one.question].append((run, one))
    rows = csv.DictReader((experiments / "questions.csv").read_text(encoding="utf-8").splitlines())
    questions = (OpenQuestion(**row, findings=tuple(findings[row["id"]])) for row in rows)
    return OpenQuestions(tuple(questions), newest)


def as_json(found: OpenQuestions) -> list[dict[str, Any]]:
    return [
        {
            "id": question.id,
            "question": question.question,
            "known": question.known,
            "said": [
                {
                    "experiment": run.experiment,
                    "run": run.run_id,
                    "sentence": one.sentence,
                    "note": one.note,
                    "is_proven": one.is_proven,
                }
                for run, one in question.findings
            ],
            "is_open": question.is_open,
        }
        for question in found.questions
    ]
