"""Tests of the tables of claims and findings: what a definition may not say."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from pagecage.definitions.claim_tables import ClaimTable, FindingTable
from tests.builders.definitions import EXPERIMENT, refusal

CLAIM = {"id": "003-1", "rule": "ratio", "response": "read_seconds"}
A, B = {"cage": "a"}, {"cage": "b"}


def message(table: type[ClaimTable] | type[FindingTable], **keys: object) -> str:
    with pytest.raises(ValidationError) as error:
        table.model_validate(keys)
    return error.value.errors()[0]["msg"]


def test_a_claim_or_a_finding_with_equal_sides_is_refused() -> None:
    assert "select the same figure" in message(ClaimTable, **CLAIM, where=A, over=A)
    finding = {"says": "{value}", "response": "read_seconds"}
    assert "select the same figure" in message(FindingTable, **finding, where=A, over=A)
    same = {"where": A, "over": A, "over_response": "read_seconds"}
    assert "select the same figure" in message(FindingTable, **finding, **same)


def test_one_treatment_may_be_compared_by_two_responses() -> None:
    sides = {"where": A, "over": A, "over_response": "total_seconds"}
    claim = ClaimTable.model_validate({**CLAIM, **sides})
    assert claim.over_response == "total_seconds"


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"rule": "ratio"}, "needs `over`"),
        ({"rule": "difference"}, "needs `over`"),
        ({"rule": "absolute", "over": B}, "compares nothing"),
        ({"rule": "knee"}, "needs `along`"),
        ({"rule": "absolute", "along": "block"}, "needs `along`"),
        ({"rule": "source_lines", "key": "a path"}, "needs `key`"),
    ],
)
def test_a_rule_has_the_keys_that_it_needs_and_no_others(
    keys: dict[str, object], expected: str
) -> None:
    assert expected in message(ClaimTable, **{**CLAIM, "where": A, **keys})


@pytest.mark.parametrize("rule", ["at_most", "at_least"])
def test_a_bound_may_be_one_of_a_ratio(rule: str) -> None:
    assert ClaimTable.model_validate({**CLAIM, "rule": rule, "where": A, "over": B}).over == B


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("pattern = ['random', 'other']", "pattern = 'other' is not a level"),
        ("pattern = ['random']", "at least two levels"),
    ],
)
def test_identical_levels_are_several_levels_of_one_factor(
    top: Path, table: str, expected: str
) -> None:
    assert expected in refusal(top, f"{EXPERIMENT}\n[[identical]]\n{table}\n").message
