"""Tests of reports: the same blocks on a terminal, in Markdown and as HTML."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from analysis.views.html import to_html
from pagecage.report.model import (
    BarChart,
    Cell,
    Folded,
    Heading,
    Image,
    Paragraph,
    Report,
    Strip,
    make_table,
    markdown_table,
    markdown_text,
    mermaid,
    to_markdown,
)
from pagecage.report.terminal import MOST_LINES, print_report, terminal_text
from tests.builders.pages import loads_of

TABLE = make_table(
    ["run", "time"],
    [["A", Cell("31 s", "n 8\n95 % 30 – 33 s", "good")], ["B", "9 s\nn 3"]],
    "caption",
)
BLOCKS = (
    Paragraph("A question with `code` & [brackets]?", tone="strong"),
    Paragraph("first", "detail", marker="•"),
    Paragraph("second", tone="warning", marker="•"),
    Heading("Figures"),
    Image(lambda: "<svg>drawn</svg>"),
    Image(lambda: None),
    TABLE,
    make_table(["empty"], []),
    Folded("more", (Paragraph("folded"),)),
)
REPORT = Report("A title <1>", BLOCKS)


def printed(report: Report, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, record=True)
    print_report(report, console)
    return console.export_text()


def test_the_terminal_shows_texts_tables_and_details() -> None:
    lines = [line.rstrip() for line in printed(REPORT).splitlines()]
    assert lines == [
        *("A title <1>", "A question with `code` & [brackets]?", "  • first (detail)"),
        *("  • second", "", "Figures", "run  time"),
        *("A    31 s", "     n 8", "     95 % 30 – 33 s", "B    9 s", "     n 3", "caption"),
    ]


def test_a_narrow_terminal_loses_nothing() -> None:
    assert all(word in printed(REPORT, width=12).split() for word in ("31", "33", "9", "8"))


def test_markdown_has_one_list_and_one_table() -> None:
    assert (
        to_markdown(REPORT)
        == "# A title &lt;1>\n\nA question with `code` & \\[brackets]?\n\n* first (detail)\n*"
        " second\n\n## Figures\n\n| run | time |\n| --- | --- |\n| A | 31 s<br>n 8<br>95 % 30 –"
        " 33 s |\n| B | 9 s<br>n 3 |\n\ncaption\n"
    )


def test_html_draws_figures_and_collapses_details() -> None:
    page = to_html(REPORT, "page <title>")
    assert loads_of(page) == []
    assert "<title>page &lt;title&gt;</title>" in page
    assert "<h1>A title &lt;1&gt;</h1>" in page
    assert '<p class="question">A question with <code>code</code> &amp; [brackets]?</p>' in page
    assert page.count("<ul>") == 1
    assert page.count("<svg>") == page.count("<figure>") == 1
    details = "<small>n 8</small><small>95 % 30 – 33 s</small>"
    assert f'<td><span class="good">31 s</span>{details}</td>' in page
    assert "<details><summary>more</summary><p>folded</p>\n</details>" in page


def test_text_reports_draw_nothing() -> None:
    def draw() -> str:
        raise AssertionError("a figure was drawn")

    report = Report("title", (Image(draw),))
    assert printed(report).strip() == "title"
    assert to_markdown(report) == "# title\n"


def test_markdown_draws_bars() -> None:
    """The text was accepted by `mermaid.parse` of Mermaid 11."""
    bars = BarChart('a "title"\nof `it`', ("x · 1", "y"), (-2.5e-5, 1e9))
    report = Report("title", (Strip("It is 1", trust="3 trials", chart=bars),))
    assert to_markdown(report).partition("\n\n")[2] == (
        "**It is 1**\n\n* valid: 3 trials\n\n"
        "```mermaid\nxychart-beta horizontal\n    title \"a 'title' of 'it'\"\n"
        '    x-axis ["x · 1", "y"]\n    bar [-0.000025, 1000000000]\n```\n'
    )


BARS = BarChart("time", ("slow one", "fast"), (8.0, 0.1), ("8 s", "0.1 s"))
STRIP = Strip("It takes 80×", "memory", "6 of 6 trials", BARS)


def test_bars_are_logarithmic_if_the_least_would_be_too_short() -> None:
    assert BARS.is_logarithmic
    longest, shortest = BARS.lengths()
    assert longest == 1
    assert 0.1 < shortest < 0.2
    linear = BarChart("x", ("a", "b", "c"), (4.0, 1.0, 0.0))
    assert not linear.is_logarithmic
    assert linear.lengths() == [1.0, 0.25, 0.0]


def test_a_strip_on_a_terminal() -> None:
    lines = [line.rstrip() for line in printed(Report("title", (STRIP,))).splitlines()]
    assert lines[:5] == ["title", "It takes 80×", "limit memory", "valid 6 of 6 trials", ""]
    assert lines[5:8] == [
        "time (log scale)",
        f"slow one {30 * '█'} 8 s",
        f"fast     {4 * '█'}{26 * ' '} 0.1 s",
    ]


@pytest.mark.parametrize("columns", ["80", "120"])
def test_a_terminal_gets_one_screen_unless_all_is_asked_for(
    columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    rows = [[f"row {number}", f"{number} s\nn 3"] for number in range(40)]
    table = make_table(["treatment", "time"], rows, "caption")
    report = Report("title", (STRIP, table), (Heading("Rest"), Paragraph("evidence")))
    text = terminal_text(report)
    assert MOST_LINES - 4 < len(text.splitlines()) <= MOST_LINES
    assert "It takes 80×" in text
    assert "█" not in text, "bars give way before rows"
    shown = text.count("row ")
    assert f"… and {40 - shown} more rows" in text
    assert "-v prints the rest" in text
    assert "evidence" not in text
    whole = terminal_text(report, whole=True)
    assert all(word in whole for word in ("row 39", "█", "evidence"))
    assert "-v prints" not in whole
    short = terminal_text(Report("title", (STRIP, make_table(["x"], rows[:3]))))
    assert "█" in short
    assert "more rows" not in short
    assert "-v prints" not in short


def test_of_many_bars_markdown_draws_the_first_and_says_so() -> None:
    names = tuple(f"n{number}" for number in range(20))
    text = mermaid(BarChart("many", names, tuple(map(float, range(20)))))
    assert 'title "many (without 4 more)"' in text
    assert '"n15"]' in text
    assert "14, 15]" in text


@pytest.mark.parametrize(
    ("text", "written"),
    [("a|b", "a\\|b"), ("a\\b", "a\\\\b"), ("<b>", "&lt;b>"), ("a\nb", "a<br>b")],
)
def test_markdown_cells_are_escaped(text: str, written: str) -> None:
    assert markdown_table(["x"], [[text]]) == f"| x |\n| --- |\n| {written} |\n"


@pytest.mark.parametrize(
    "text",
    [
        "x\n```{include} secret.txt\n```",
        "```{include} secret.txt",
        "~~~{include} secret.txt",
        ":::{include} secret.txt",
        "{download}`secret.txt`",
        "![](secret.txt) [x](secret.txt)",
        "<script>alert(1)</script>",
    ],
)
def test_markdown_of_a_text_is_one_line_without_links_tags_and_directives(text: str) -> None:
    line = markdown_text(text)
    assert "\n" not in line
    assert not re.search(r"(?<!\\)[\[{<]", re.sub(r"`[^`]+`", "", line)), line
    assert not line.startswith(("```", "~~~", ":::"))
