"""Lies in simulated trials and in run folders: a sample of them is planted again, all by `make
trust`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reliability.mutants.campaign import (
    as_row,
    edits_of_records,
    evidence_lies,
    mutants_section,
    try_all,
)
from reliability.mutants.files import HONEST, results
from reliability.mutants.lies import EQUIVALENT, INVISIBLE, LIES, SURVIVED, Mutant, mutants
from reliability.mutants.simulation import Simulated, caught_by, simulate
from tests.tree import ROOT

STORED = json.loads((ROOT / "docs/trust/mutants.json").read_text())["mutants"]
ONE_IN = 7
"""A whole campaign takes two minutes."""


@pytest.fixture(scope="module")
def honest() -> Simulated:
    return simulate(HONEST)


def test_without_a_lie_everything_is_proven(honest: Simulated) -> None:
    assert caught_by(honest) == SURVIVED, honest.verdicts


@pytest.mark.slow
def test_a_sample_of_the_lies_is_caught_as_the_table_says() -> None:
    planted: list[Mutant] = mutants()[::ONE_IN]
    for row in try_all(planted):
        expected = SURVIVED if row["expected"] in (EQUIVALENT, INVISIBLE) else row["expected"]
        assert row["found"] == expected, row


def test_edits_of_a_run_are_caught_or_named(honest: Simulated, tmp_path: Path) -> None:
    edits = (*edits_of_records(honest), *results(honest, tmp_path / "runs"))
    rows = [as_row(*one) for one in edits]
    assert len(rows) > 50
    for row in rows:
        assert (row["found"] == SURVIVED) == (row["expected"] == INVISIBLE), row


def test_repeats_without_a_lie_survive(honest: Simulated) -> None:
    assert next(evidence_lies(honest)) == ("evidence", "none", "", SURVIVED)


def test_the_stored_results_are_those_of_the_table() -> None:
    planted = {(one.lie.group, one.lie.name, one.moment) for one in mutants()}
    assert planted <= {(row["group"], row["lie"], row["moment"]) for row in STORED}


def test_nothing_survives_that_the_page_does_not_name() -> None:
    page = (ROOT / "docs/TRUST.md").read_text()
    survivors = [row for row in STORED if row["found"] == SURVIVED]
    assert all(row["expected"] in (EQUIVALENT, INVISIBLE) and row["why"] for row in survivors)
    unseen = [row for row in survivors if row["expected"] == INVISIBLE]
    assert unseen
    assert all(f"{row['group']}: {row['lie']}" in page for row in unseen)


def test_a_survivor_is_named_on_the_page(tmp_path: Path) -> None:
    row = {**STORED[0], "found": SURVIVED, "lie": "a new lie"}
    (tmp_path / "mutants.json").write_text(json.dumps({"mutants": [*STORED, row]}))
    assert "Lies that survived:" in (text := "\n".join(mutants_section(tmp_path)))
    assert "a new lie" in text


def test_a_lie_that_should_be_caught_names_its_verdict() -> None:
    assert all(lie.expected for lie in LIES)
    assert all(lie.why for lie in LIES if lie.expected in (EQUIVALENT, INVISIBLE))
