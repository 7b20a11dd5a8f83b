"""`pagecage demo`: what stands in for the slow disk where this machine holds no limits."""

from __future__ import annotations

import pytest

from pagecage.cli import demo
from pagecage.errors import HostError
from tests.builders.facts import FIT, NO_MANAGER


def refuse() -> None:
    raise HostError("no device can be attached", "load a module")


def test_a_machine_that_holds_limits_limits_its_own_disk() -> None:
    told: list[str] = []
    (cage,) = demo.slow_disk(FIT, told.append).values()
    assert (cage.name, cage.is_volume, told) == ("slow-disk", False, [])
    assert cage.limits_io


def test_without_limits_a_simulated_volume_is_the_slow_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []
    monkeypatch.setattr(demo, "choose_path", lambda: {"kind": "fuse"})
    (cage,) = demo.slow_disk(NO_MANAGER, told.append).values()
    assert cage.is_volume
    assert told[0].startswith("slow disk: a simulated volume, because ")


def test_without_either_it_says_so_and_measures_without_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []
    monkeypatch.setattr(demo, "choose_path", refuse)
    assert demo.slow_disk(NO_MANAGER, told.append) == {}
    assert "no device can be attached" in told[0]
    assert "pagecage doctor" in told[1]
