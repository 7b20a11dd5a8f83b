"""HTML of reports: texts of definitions, and contradictions."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.articles.evaluate import evaluate_claims
from analysis.articles.tables import contradiction_html, contradiction_sentence, with_anchors
from analysis.cells import make_cell, treatments
from analysis.data.load import Run, load_run
from analysis.views.html import block_table_html, definition_text_html
from analysis.views.notebook import Results, paragraph_html
from analysis.views.run import main_table, run_report
from pagecage.report.model import SHADES, to_markdown
from tests.builders.pages import contrast, luminance
from tests.builders.record_changes import responding, updated
from tests.fixtures.runs import build_run
from tests.fixtures.small_runs import unpacked
from tests.tree import ROOT


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


def test_the_first_screen_counts_the_contradictions_and_the_rest_names_them(
    contradicting: Run,
) -> None:
    report = run_report(contradicting)
    first, whole = (to_markdown(one) for one in (replace(report, rest=()), report))
    assert "published figures: 22 held, 2 not: pagecage show " in first
    sentence = "This run contradicts its article in 2 of 24 mechanisms: 003-289, 003-292."
    assert sentence in whole
    assert sentence not in first


def test_the_notice_in_html_comes_before_the_claims_and_links_to_rows(contradicting: Run) -> None:
    notice = contradiction_html(contradicting)
    claims = Results(contradicting.path).claims
    assert claims is not None
    assert claims.text.index(notice) < claims.text.index("<table")
    assert claims.text.startswith("<details><summary>published figures: 22 held, 2 not")
    for name in ("003-289", "003-292"):
        assert f'<a href="#claim-{name}">{name}</a>' in notice
        assert claims.text.count(f'id="claim-{name}"') == 1


def test_a_run_that_contradicts_nothing_says_nothing(tmp_path: Path) -> None:
    def ended(name: str, outcome: str) -> Run:
        return load_run(build_run(tmp_path / name, updated(outcome=outcome)))

    run = ended("20260101T000000Z-constrained-random-vm", "timed_out")
    assert [claim for claim in run.definition["claims"] if claim["rule"] == "outcome"]
    assert "contradicts its article in 2 of" in contradiction_sentence(evaluate_claims(run))
    run = ended("20260102T000000Z-constrained-random-vm", "not_prepared")
    assert (contradiction_sentence(evaluate_claims(run)), contradiction_html(run)) == ("", "")


def test_only_cells_that_are_an_id_get_an_anchor() -> None:
    cells = "<td>003-1</td><td>3-1</td>"
    assert with_anchors(cells) == '<td id="claim-003-1">003-1</td><td>3-1</td>'


def test_the_slowest_figure_is_the_darkest_and_of_a_rate_the_least(tmp_path: Path) -> None:
    times = main_table(load_run(build_run(tmp_path / "run")))
    assert (times.rows[5][-1].shade, times.rows[3][-1].shade) == (SHADES - 1, None)
    assert times.rows[3][-1].text.startswith("killed")
    assert "; dark is slow</caption>" in block_table_html(times)
    text = times.rows[5][-1].text
    assert f'<span class="heat h{SHADES - 1}">{text}</span>' in block_table_html(times)
    rates = load_run(unpacked("parallel-disjoint", tmp_path / "rates"))
    cells = (make_cell(rates, one, rates.response) for one in treatments(rates))
    least = min((cell.summary.middle, cell.text) for cell in cells if cell.summary)[1]
    shades = {cell.text: cell.shade for row in main_table(rates).rows for cell in row}
    assert next(shades[text] for text in shades if text.startswith(least)) == SHADES - 1
    assert min(shade for shade in shades.values() if shade is not None) == 0


def test_figures_that_are_much_the_same_have_no_shades(tmp_path: Path) -> None:
    run = load_run(build_run(tmp_path / "run", responding(full_pass_seconds=2.0)))
    table = main_table(run)
    assert {cell.shade for row in table.rows for cell in row} == {None}
    assert "dark" not in block_table_html(table)


def test_shades_darken_in_order_and_their_text_has_contrast() -> None:
    sheet = (ROOT / "analysis/templates/offline/parts.css").read_text()
    found = re.findall(r"\.h\d \{ background: #(\w{6});( color: #fff;)? \}", sheet)
    assert len(found) == SHADES
    papers = [bytes.fromhex(paper) for paper, _ in found]
    assert papers == sorted(papers, key=luminance, reverse=True)
    for paper, (_, is_white) in zip(papers, found, strict=True):
        assert contrast(paper, bytes.fromhex("ffffff" if is_white else "111111")) > 4.5


def test_styles_of_a_notebooks_frames_leave_the_tables_of_a_report_alone() -> None:
    sheet = (ROOT / "analysis/templates/offline/page.css").read_text()
    assert sheet.count("table.dataframe") == sheet.count("table.dataframe:not(.pagecage)") > 0
