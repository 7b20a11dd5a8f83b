"""Tests of running cells: shown values, streams and failures."""

from __future__ import annotations

from typing import Any

import pytest

from analysis.views.notebook import run_cells


def run_sources(*sources: str) -> tuple[list[dict[str, Any]], Exception | None]:
    """Run cells with these sources; return them, and the exception of the last one."""
    cells: list[dict[str, Any]] = [
        {"cell_type": "code", "source": source, "outputs": []} for source in sources
    ]
    return cells, run_cells(cells, {"__name__": "__main__"})


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("1 + 1", {"text/plain": "2"}),
        ("'a'", {"text/plain": "'a'"}),
        ("None", None),
        ("x = 1", None),
        ("", None),
        ("# nothing", None),
        ("1 + 1\nx = 3", None),
        ("def f(x: 1): pass\nf.__annotations__", {"text/plain": "{'x': 1}"}),
        ("__name__", {"text/plain": "'__main__'"}),
    ],
)
def test_a_cell_shows_the_value_of_its_last_line(source: str, shown: dict[str, str] | None) -> None:
    (cell,), error = run_sources(source)
    assert error is None
    assert [output["data"] for output in cell["outputs"]] == ([shown] if shown else [])
    assert cell["execution_count"] == 1


def test_html_stands_beside_its_text() -> None:
    (_, cell), _ = run_sources("from analysis.views.html import Html", "Html('<b>1</b>')")
    (output,) = cell["outputs"]
    assert output["data"] == {"text/html": "<b>1</b>", "text/plain": "<HTML of 8 characters>"}
    assert (output["execution_count"], cell["execution_count"]) == (2, 2)


def test_output_is_captured_and_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    (cell,), _ = run_sources("import sys\nprint(1)\nprint(2, file=sys.stderr)\n3")
    assert [(out["name"], out["text"]) for out in cell["outputs"][:2]] == [
        ("stdout", "1\n"),
        ("stderr", "2\n"),
    ]
    assert cell["outputs"][2]["data"] == {"text/plain": "3"}
    assert capsys.readouterr() == ("", "")


def test_the_first_failure_ends_the_run_and_its_traceback_begins_in_the_cell() -> None:
    (first, failed, never), error = run_sources(
        "def f():\n    return 1 / 0", "print('before')\nf()", "3"
    )
    assert isinstance(error, ZeroDivisionError)
    assert first["outputs"] == never["outputs"] == []
    stream, error = failed["outputs"]
    assert (stream["text"], error["ename"], error["evalue"]) == (
        "before\n",
        "ZeroDivisionError",
        "division by zero",
    )
    frames = [line.strip() for line in error["traceback"]]
    assert frames[:3] == [
        "Traceback (most recent call last):",
        'File "<cell 2>", line 2, in <module>',
        "f()",
    ]
    assert 'File "<cell 1>", line 2, in f' in frames
    assert "return 1 / 0" in frames


def test_a_syntax_error_is_a_failure_of_its_cell() -> None:
    (cell,), error = run_sources("%matplotlib inline")
    assert isinstance(error, SyntaxError)
    assert "%matplotlib inline" in "\n".join(cell["outputs"][0]["traceback"])


def test_markdown_is_left_alone() -> None:
    cells = [{"cell_type": "markdown", "source": "# 1"}]
    assert run_cells(cells, {}) is None
    assert cells == [{"cell_type": "markdown", "source": "# 1"}]
