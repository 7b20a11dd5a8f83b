"""Tests of the open questions and their page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from analysis.articles.findings import open_questions
from analysis.articles.pages import answers_report
from analysis.articles.scorecard import newest_runs
from pagecage.model.published_figures import read_definitions
from pagecage.report.model import to_markdown
from tests.builders.command_line import called
from tests.fixtures.runs import DEFINITION, Change, build_run
from tests.tree import ROOT

EXPERIMENTS = ROOT / "experiments"
NAME = "20261121T100000Z-constrained-random-vm"
FINDING = {
    "question": "Q24",
    "says": "At random {value} is read for each byte",
    "response": "amplification",
    "where": {"cage": "tenth", "source": "unloaded", "pattern": "random"},
}


def build_runs(folder: Path, change: Change | None = None) -> Path:
    """Build a folder with one run, whose definition has one finding."""
    build_run(folder / NAME, change, definition={**DEFINITION, "findings": [FINDING]})
    (folder / "latest-constrained-random").symlink_to(NAME)
    return folder


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return build_runs(tmp_path)


def test_every_question_of_a_definition_is_asked_and_every_asked_one_has_a_number() -> None:
    asked = [
        answer.id for answer in open_questions(EXPERIMENTS, newest_runs(Path("nowhere"))).questions
    ]
    assert asked == [f"Q{number:02}" for number in range(1, 39)]
    definitions = read_definitions(EXPERIMENTS).values()
    used = {
        found["question"]
        for table in definitions
        for found in table.get("findings", [])
        if found.get("question")
    }
    assert used <= set(asked)


def test_without_runs_every_question_is_open() -> None:
    found = open_questions(EXPERIMENTS, newest_runs(Path("nowhere")))
    assert all(answer.is_open for answer in found.questions)
    assert to_markdown(answers_report(found)).count("Open: no run here has answered it.") == 38


def test_a_proven_figure_answers(runs: Path) -> None:
    found = open_questions(EXPERIMENTS, newest_runs(runs))
    [answer] = [answer for answer in found.questions if not answer.is_open]
    assert answer.id == "Q24"
    page = to_markdown(answers_report(found))
    assert re.search(r"^\* At random \d[\d.]*× .*is read for each byte", page, re.MULTILINE)
    assert f"| constrained-random | {NAME} |" in page


def test_an_excluded_figure_answers_nothing(tmp_path: Path) -> None:
    def spoil(record: dict[str, Any]) -> None:
        if record["cache"]["requested"] == "cold":
            record["cache"]["resident_bytes_before"] = 4096

    found = open_questions(EXPERIMENTS, newest_runs(build_runs(tmp_path, spoil)))
    assert all(answer.is_open for answer in found.questions)
    assert "At random" not in to_markdown(answers_report(found))


def test_a_smoke_run_hides_no_larger_one(runs: Path) -> None:
    smoke = build_run(runs / "20261121T110000Z-constrained-random-vm", size="smoke")
    (runs / "latest-constrained-random").unlink()
    (runs / "latest-constrained-random").symlink_to(smoke.name)
    assert newest_runs(runs)["constrained-random"].path.name == NAME


def test_json_is_printed_alone(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called(["answers", "--json", "--runs", str(runs)]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 38
    assert [row["id"] for row in rows if not row["is_open"]] == ["Q24"]


def test_the_page_of_the_documents_asks_every_question() -> None:
    page = (ROOT / "docs/answers.md").read_text()
    for answer in open_questions(EXPERIMENTS, newest_runs(Path("nowhere"))).questions:
        assert f"## {answer.id}: {answer.question}" in page
