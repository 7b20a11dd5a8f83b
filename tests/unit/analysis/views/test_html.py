"""HTML of reports: texts of definitions, and contradictions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analysis.articles.evaluate import evaluate_claims
from analysis.articles.tables import contradiction_html, contradiction_sentence, with_anchors
from analysis.data.load import Run, load_run
from analysis.views.html import definition_text_html
from analysis.views.narrative import paragraph_html, story_html
from analysis.views.notebook import Results
from analysis.views.run import run_report
from pagecage.report.model import to_markdown
from tests.fixtures.runs import build_run
from tests.fixtures.small_runs import unpacked


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("In `aws-gp3` it takes 2", "In <code>aws-gp3</code> it takes 2"),
        (
            "`grep -c '<a>' b` and `wc`",
            "<code>grep -c &#x27;&lt;a&gt;&#x27; b</code> and <code>wc</code>",
        ),
        ("<b>one ` alone", "&lt;b&gt;one ` alone"),
    ],
)
def test_code_stands_between_backticks_and_all_is_escaped(text: str, html: str) -> None:
    assert definition_text_html(text) == html


def test_a_paragraph() -> None:
    assert paragraph_html("`a` - b < c") == "<p><code>a</code> - b &lt; c</p>"


def test_a_list_with_items_of_several_lines() -> None:
    items = "<li><code>a</code> is\n  one - the first</li><li>b</li>"
    assert paragraph_html("- `a` is\n  one - the first\n- b") == f"<ul>{items}</ul>"


@pytest.fixture(scope="module")
def contradicting(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run in which two of the traced flags differ from the published ones."""
    return load_run(unpacked("fault-trace", tmp_path_factory.mktemp("runs") / "fault-trace"))


def test_the_first_lines_state_how_many_figures_are_contradicted(contradicting: Run) -> None:
    lines = to_markdown(run_report(contradicting)).split("\n\n")
    assert lines[2].startswith(
        "This run contradicts its article in 2 of 24 mechanisms: 003-289, 003-292."
    )


def test_the_notice_in_html_comes_before_the_story_and_links_to_rows(contradicting: Run) -> None:
    story, notice = story_html(contradicting), contradiction_html(contradicting)
    assert story.index(notice) < story.index("<p>", story.index(notice))
    claims = Results(contradicting.path).claims
    assert claims is not None
    for name in ("003-289", "003-292"):
        assert f'<a href="#claim-{name}">{name}</a>' in notice
        assert claims.text.count(f'id="claim-{name}"') == 1


def test_a_run_that_contradicts_nothing_says_nothing(tmp_path: Path) -> None:
    def as_published(record: dict[str, Any]) -> None:
        record["outcome"] = "timed_out"

    run = load_run(build_run(tmp_path / "20260101T000000Z-constrained-random-vm", as_published))
    assert [claim for claim in run.definition["claims"] if claim["rule"] == "outcome"]
    assert "contradicts its article in 2 of" in contradiction_sentence(evaluate_claims(run))
    run = load_run(build_run(tmp_path / "20260102T000000Z-constrained-random-vm", _without_any))
    assert (contradiction_sentence(evaluate_claims(run)), contradiction_html(run)) == ("", "")


def _without_any(record: dict[str, Any]) -> None:
    record["outcome"] = "not_prepared"


def test_only_cells_that_are_an_id_get_an_anchor() -> None:
    assert (
        with_anchors("<td>003-1</td><td>3-1</td>") == '<td id="claim-003-1">003-1</td><td>3-1</td>'
    )
