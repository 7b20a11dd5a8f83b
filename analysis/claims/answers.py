"""What the articles left open, and what this machine's runs say to it: the findings, gathered by question."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from analysis.claims.findings import Finding, find
from analysis.data.load import Run


@dataclass(frozen=True)
class QuestionFinding:
    """One finding of one run; `sentence` has its figure in it, `note` what limits it."""

    experiment: str
    run: str
    sentence: str
    note: str
    is_proven: bool


@dataclass(frozen=True)
class OpenQuestion:
    """A question, what is known of it without measuring, and what was measured."""

    id: str
    question: str
    known: str
    said: tuple[QuestionFinding, ...]

    @property
    def is_open(self) -> bool:
        """Whether no proven figure answers it."""
        return not any(said.is_proven for said in self.said)


@dataclass(frozen=True)
class OpenQuestions:
    """All questions in order, and the runs that answer."""

    questions: tuple[OpenQuestion, ...]
    runs: Mapping[str, Run]


def answers(experiments: Path, newest: Mapping[str, Run]) -> OpenQuestions:
    """Every question of experiments/questions.csv with the findings of the newest runs, by experiment."""
    said = [(finding.question, told) for run in newest.values() for finding, told in _findings(run)]
    rows = csv.DictReader((experiments / "questions.csv").read_text(encoding="utf-8").splitlines())
    asked = (OpenQuestion(**row, said=tuple(told for question, told in said if question == row["id"])) for row in rows)
    return OpenQuestions(tuple(asked), newest)


def _findings(run: Run) -> Iterator[tuple[Finding, QuestionFinding]]:
    """Those that have a figure; one without says nothing to a question."""
    for finding in find(run):
        if finding.value is not None:
            told = QuestionFinding(
                str(run.plan["experiment"]), str(run.plan["run_id"]), finding.sentence, finding.note, finding.is_proven
            )
            yield finding, told


def as_json(found: OpenQuestions) -> list[dict[str, Any]]:
    """The questions as data."""
    return [{**asdict(answer), "is_open": answer.is_open} for answer in found.questions]
