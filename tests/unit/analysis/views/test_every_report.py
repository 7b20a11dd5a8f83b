"""The report of every experiment, made of a small real run of it: whole, telling what the records tell, offline."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest

from analysis.data.load import Run, load_run
from analysis.summaries.cells import make_cell, treatments
from analysis.views.notebook import Results
from analysis.views.notebook_file import read_source
from analysis.views.render import PAGE, SOURCE, render
from pagecage.cli.run_options import definitions
from tests.builders.pages import loads_of
from tests.fixtures.small_runs import NAMES, unpacked

COVERING = ("append-saturation", "async-hazard", "constrained-random", "fio-matrix", "random-memory")
"""Between them every kind of figure: histograms of three sources, heat, curve, strips, lanes, residency."""
ALL = [pytest.param(name, marks=[] if name in COVERING else [pytest.mark.long]) for name in NAMES]
TABLE, CELL = re.compile(r"<table.*?</table>", re.DOTALL), re.compile(r"<t[hd][^>]*>(.*?)</t[hd]>", re.DOTALL)


def test_every_experiment_has_a_small_run() -> None:
    assert set(NAMES) >= set(definitions().experiment_names())


@pytest.mark.parametrize("name", ALL)
def test_the_notebook_runs_and_its_tables_are_intact(name: str, tmp_path: Path) -> None:
    folder = unpacked(name, tmp_path / "run")
    render(folder)
    page = (folder / PAGE).read_text()
    outputs = notebook_outputs(folder / "report.ipynb")
    assert not [out for out in outputs if out["output_type"] != "execute_result"]
    told = "".join("".join(out["data"].get("text/html", "")) for out in outputs)
    assert tables_of(told) == tables_of(page) != []
    assert loads_of(page) == []
    assert not lacking(load_run(folder), told)
    assert not [said for said in pictures(page) if not re.search(r"\d", said)], "a figure says what it shows"


DRAWN = ("heat", "figure", "latencies", "sweep", "amplification", "timelines", "residency", "kernel")
"""Parts with pictures: nine tenths of a report's time."""


@pytest.mark.parametrize("name", NAMES)
def test_every_table_of_every_report_can_be_made(name: str, tmp_path: Path) -> None:
    results = Results(unpacked(name, tmp_path / "run"))
    parts = [getattr(results, part) for part in shown_by_the_notebook() if part not in DRAWN]
    told = "".join(part.text for part in parts if part)
    assert not lacking(results.run, told)
    assert not pictures(told), "what draws is left to the long run"


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_every_part_of_every_report_can_be_made(name: str, tmp_path: Path) -> None:
    results = Results(unpacked(name, tmp_path / "run"))
    parts = [getattr(results, part) for part in shown_by_the_notebook()]
    told = "".join(part.text for part in parts if part)
    assert not lacking(results.run, told)
    assert pictures(told)
    assert all(re.search(r"\d", said) for said in pictures(told))


def shown_by_the_notebook() -> list[str]:
    """What its cells show, by name."""
    found = [re.fullmatch(r"results\.(\w+)", cell["source"].splitlines()[-1]) for cell in read_source(SOURCE)]
    names = [match[1] for match in found if match]
    assert len(names) > 15
    return names


def notebook_outputs(notebook: Path) -> list[dict[str, Any]]:
    return [out for cell in json.loads(notebook.read_text())["cells"] for out in cell.get("outputs", [])]


def tables_of(page: str) -> list[list[str]]:
    """The cells of each table; between them the page has other spaces than the notebook."""
    return [[" ".join(html.unescape(cell).split()) for cell in CELL.findall(table)] for table in TABLE.findall(page)]


def pictures(page: str) -> list[str]:
    """What each figure says to those who cannot see it."""
    said = re.findall(r'<svg [^>]*?aria-label="([^"]*)"', page)
    assert len(said) == page.count("<svg ")
    return said


def lacking(run: Run, told: str) -> list[str]:
    """Figures of the run's table that the page does not have."""
    texts = [make_cell(run, treatment, run.response).text for treatment in treatments(run)]
    return [text for text in texts if html.escape(text) not in told]
