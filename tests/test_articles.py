"""docs/ARTICLES.md: every experiment and treatment that it names is one that a plan can hold."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pagecage.model.published_figures import read_definitions, read_titles
from tests.tree import ROOT

PAGE = ROOT / "docs/ARTICLES.md"
DEFINITIONS = read_definitions(ROOT / "experiments")
TREATMENT = re.compile(r"`([a-z][a-z0-9-]*)`(?:: `((?:\w+=[\w.-]+ ?)+)`)?")
COMMAND = re.compile(r"`make experiment NAME=([\w-]+)(?: SIZE=(\w+))?`")


def cells(page: Path = PAGE) -> list[list[str]]:
    """Return the cells of the rows whose last column has a command for an experiment."""
    rows = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))]
        for line in page.read_text().splitlines()
        if line.startswith("| ")
    ]
    return [row for row in rows if len(row) == 3 and COMMAND.fullmatch(row[2])]


ROWS = cells()


def complaint(treatment: str, command: str) -> str | None:
    """Return what is wrong with a treatment or its command, or None."""
    named, run = TREATMENT.match(treatment), COMMAND.fullmatch(command)
    if not named or not run:
        return f"no experiment in {treatment!r}"
    definition = DEFINITIONS.get(named[1])
    if definition is None:
        return f"there is no experiment {named[1]}"
    if run[1] != named[1]:
        return f"{run[1]} does not run {named[1]}"
    if run[2] and run[2] not in definition["sizes"]:
        return f"{named[1]} has no size {run[2]}"
    levels = dict(pair.split("=") for pair in (named[2] or "").split())
    unknown = [f"{k}={v}" for k, v in levels.items() if v not in definition["factors"].get(k, ())]
    if unknown:
        return f"{named[1]} has no {unknown[0]}"
    return None if _is_planned(definition, levels) else f"{named[1]} leaves {named[2]} out"


def _is_planned(definition: Mapping[str, Any], levels: Mapping[str, str]) -> bool:
    factors = definition["factors"] | {name: [level] for name, level in levels.items()}
    left_out = definition.get("exclude", [])
    for one in itertools.product(*factors.values()):
        treatment = dict(zip(factors, one, strict=True)).items()
        if not any(excluded.items() <= treatment for excluded in left_out):
            return True
    return False


@pytest.mark.parametrize(("treatment", "command"), [row[1:] for row in ROWS])
def test_every_treatment_exists_and_is_run_by_its_command(treatment: str, command: str) -> None:
    assert complaint(treatment, command) is None


def test_every_article_has_its_table() -> None:
    headings = re.findall(r"^## (.*):", PAGE.read_text(), re.MULTILINE)
    numbers = re.findall(r"\d{3}", " ".join(headings))
    assert sorted(numbers) == sorted(read_titles(ROOT / "experiments"))
    assert len(ROWS) > 70


EVICTING = "`residency-map`: `cage=tenth task=evict-tool`"


@pytest.mark.parametrize(
    ("treatment", "command", "reason"),
    [
        ("`smok`: `cage=x`", "`make experiment NAME=smok`", "there is no experiment"),
        ("`prefault`: `method=peek`", "`make experiment NAME=prefault`", "has no method=peek"),
        ("`prefault`: `way=read`", "`make experiment NAME=prefault`", "has no way=read"),
        ("`prefault`: `method=read`", "`make experiment NAME=smoke`", "does not run prefault"),
        ("`prefault`: `method=read`", "`make experiment NAME=prefault SIZE=big`", "no size big"),
        (EVICTING, "`make experiment NAME=residency-map`", "leaves cage=tenth task=evict-tool out"),
        ("nothing", "`make experiment NAME=prefault`", "no experiment in"),
    ],
)
def test_a_wrong_row_is_seen(treatment: str, command: str, reason: str) -> None:
    assert reason in str(complaint(treatment, command))
