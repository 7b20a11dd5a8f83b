"""Tests of the report of every experiment, rendered from a small recorded run."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest

from analysis.cells import make_cell, treatments
from analysis.data.load import Run, load_run
from analysis.views.notebook import Results
from analysis.views.render import PAGE, SOURCE, read_source, render
from pagecage.model.json_codec import Json
from pagecage.planning.options import definitions
from tests.builders.pages import loads_of
from tests.fixtures.small_runs import NAMES, unpacked

REPRESENTATIVE = (
    *("append-saturation", "async-hazard", "constrained-random", "fio-matrix"),
    "random-memory",
)
"""Together they have every kind of figure.

These are histograms of three sources, heat, curve, strips, timelines and residency.
"""
ALL = [
    pytest.param(name, marks=[] if name in REPRESENTATIVE else [pytest.mark.long]) for name in NAMES
]
TABLE = re.compile(r"<table.*?</table>", re.DOTALL)
CELL = re.compile(r"<t[hd][^>]*>(.*?)</t[hd]>", re.DOTALL)


def test_every_experiment_has_a_small_run() -> None:
    assert set(NAMES) >= set(definitions().experiment_names())


@pytest.mark.parametrize("name", ALL)
def test_the_notebook_runs_and_its_tables_are_intact(name: str, tmp_path: Path) -> None:
    folder = unpacked(name, tmp_path / "run")
    render(folder)
    page = (folder / PAGE).read_text()
    outputs = notebook_outputs(folder / "report.ipynb")
    assert not [out for out in outputs if out["output_type"] != "execute_result"]
    page_text = "".join("".join(out["data"].get("text/html", "")) for out in outputs)
    assert tables_of(page_text) == tables_of(page) != []
    assert loads_of(page) == []
    assert not missing_figures(load_run(folder), page_text)
    said = "a figure says what it shows"
    assert not [text for text in alternative_texts(page) if not re.search(r"\d", text)], said


DRAWN = (
    *("figure", "latencies", "sweep", "amplification", "timelines", "residency", "kernel"),
    "own_collectors",
)
"""Parts with figures, which take nine tenths of a report's time."""


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "drawn", [False, pytest.param(True, marks=pytest.mark.long)], ids=["tables", "figures"]
)
def test_every_part_of_every_report_can_be_made(name: str, drawn: bool, tmp_path: Path) -> None:
    results = Results(unpacked(name, tmp_path / "run"))
    names = [part for part in shown_by_the_notebook() if drawn or part not in DRAWN]
    parts = [getattr(results, part) for part in names]
    page_text = "".join(part.text for part in parts if part)
    assert not missing_figures(results.run, page_text)
    assert bool(alternative_texts(page_text)) == drawn
    assert all(re.search(r"\d", text) for text in alternative_texts(page_text))


def shown_by_the_notebook() -> list[str]:
    """Return the names of the parts in the notebook's cells."""
    last = (cell["source"].splitlines()[-1] for cell in read_source(SOURCE))
    names = [match[1] for line in last if (match := re.fullmatch(r"results\.(\w+)", line))]
    assert len(names) > 15
    return names


def notebook_outputs(notebook: Path) -> list[Json]:
    cells = json.loads(notebook.read_text())["cells"]
    return [output for cell in cells for output in cell.get("outputs", [])]


def tables_of(page: str) -> list[list[str]]:
    """Return the cells of each table; white space differs between page and notebook."""
    return [
        [" ".join(html.unescape(cell).split()) for cell in CELL.findall(table)]
        for table in TABLE.findall(page)
    ]


def alternative_texts(page: str) -> list[str]:
    """Return the alternative text of each figure."""
    alt_texts = re.findall(r'<svg [^>]*?aria-label="([^"]*)"', page)
    assert len(alt_texts) == page.count("<svg ")
    return alt_texts


def missing_figures(run: Run, page_text: str) -> list[str]:
    """Return the figures of the run's table that the page lacks."""
    texts = [make_cell(run, treatment, run.response).text for treatment in treatments(run)]
    return [text for text in texts if html.escape(text) not in page_text]
