"""The campaigns of reliability in the guest: planted lies, witnesses, and stacks of disks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from reliability.disks.campaign import GUESTS, TESTERS
from reliability.disks.campaign import measure as measure_stacks
from reliability.disks.section import COLUMNS, PROVEN, REFUSED, leaks, refusals, word
from reliability.disks.stacks import BY_NAME
from reliability.guest_lies.campaign import LIES, CaughtLie, is_caught
from reliability.guest_lies.campaign import measure as measure_lies
from reliability.witnesses import LOADS, PLANS, plan_of, unexplained
from reliability.witnesses import measure as measure_witnesses

pytestmark = [pytest.mark.vm, pytest.mark.long, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def found() -> Mapping[str, CaughtLie]:
    """Every lie with what caught it."""
    return {one.lie.name: one for one in measure_lies()}


@pytest.mark.parametrize("name", [lie.name for lie in LIES])
def test_each_lie_is_caught(found: Mapping[str, CaughtLie], name: str) -> None:
    one = found[name]
    assert is_caught(one.lie.expected, one.found), one.reason


@pytest.mark.parametrize("plan", PLANS)
def test_the_witnesses_agree(plan: str) -> None:
    trials: list[Mapping[str, Any]] = []
    measure_witnesses(plan_of(plan), trials.append)
    assert len(trials) == len(LOADS) * len(PLANS[plan]), [one["load"] for one in trials]
    assert unexplained(trials) == []
    for trial in trials:
        assert False not in trial["limits_held"].values(), trial


WITHOUT_LIMITS = {"btrfs-two-disks", "overlay", "tmpfs", "nfs"}
WITHOUT_WRITE_LIMITS = {"vfat", "ext4-journal"}


@pytest.fixture(scope="module", params=GUESTS)
def cells(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """The findings of one guest."""
    found: list[dict[str, Any]] = []
    measure_stacks(request.param, TESTERS, BY_NAME, found.append)
    return found


def test_no_limit_reads_back_well_and_does_not_hold(cells: list[dict[str, Any]]) -> None:
    assert leaks(list(cells)) == []


def test_each_limit_is_proven_or_refused(cells: list[dict[str, Any]]) -> None:
    for cell in cells:
        for column in COLUMNS:
            assert word(cell, column) == expected(cell, column), (cell, column)


def expected(cell: dict[str, Any], column: str) -> str:
    """Return the word that a limit on a stack must have."""
    is_write = "Write" in column or column == COLUMNS[-1]
    is_refused = cell["as"] == "undelegated" or cell["stack"] in WITHOUT_LIMITS
    return REFUSED if is_refused or (is_write and cell["stack"] in WITHOUT_WRITE_LIMITS) else PROVEN


def test_a_refusal_has_a_sentence(cells: list[dict[str, Any]]) -> None:
    for cell in cells:
        if REFUSED in {word(cell, column) for column in COLUMNS}:
            assert refusals(cell), cell
