"""Open questions of the articles, with the findings of the newest runs."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from analysis.claims.findings import Finding, evaluate_findings
from analysis.data.load import Run


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
