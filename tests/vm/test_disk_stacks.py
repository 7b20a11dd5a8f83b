"""Every limit on every stack of devices, in three guests: proven, or refused with a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from reliability.disks.campaign import GUESTS, TESTERS, measure
from reliability.disks.section import COLUMNS, PROVEN, REFUSED, leaks, refusals, word
from reliability.disks.stacks import BY_NAME

pytestmark = [pytest.mark.vm, pytest.mark.long, pytest.mark.timeout(3600)]
WITHOUT_LIMITS = {"btrfs-two-disks", "overlay", "tmpfs", "nfs"}
WITHOUT_WRITE_LIMITS = {"vfat", "ext4-journal"}


@pytest.fixture(scope="module", params=GUESTS)
def cells(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """The findings of one guest."""
    found: list[dict[str, Any]] = []
    measure(request.param, TESTERS, BY_NAME, found.append)
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
