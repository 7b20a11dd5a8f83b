"""Lies planted in trials of the real guest: each is caught by a named verdict."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from reliability.guest_lies.campaign import LIES, CaughtLie, is_caught, measure

pytestmark = [pytest.mark.vm, pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def found() -> Mapping[str, CaughtLie]:
    """Every lie with what caught it."""
    return {one.lie.name: one for one in measure()}


@pytest.mark.parametrize("name", [lie.name for lie in LIES])
def test_each_lie_is_caught(found: Mapping[str, CaughtLie], name: str) -> None:
    one = found[name]
    assert is_caught(one.lie.expected, one.found), one.reason
