"""Waiting for the machine to come to rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from pagecage.agent import rest
from pagecage.agent.rest import wait_for_rest

WINDOW = 0.25
TICKS = 100


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time as rest.py sees it, which passes while it sleeps."""
    now = [0.0]
    monkeypatch.setattr(rest.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(rest.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    return now


def cpu(now: list[float], busy: Callable[[float], float]) -> Callable[[], dict[str, int]]:
    """The ticks of a machine that has as many CPUs busy as `busy` says, looked at every quarter of a second."""
    worked = {"ticks": 0.0, "at": 0.0}

    def read() -> dict[str, int]:
        worked["ticks"] += TICKS * busy(worked["at"]) * (now[0] - worked["at"])
        worked["at"] = now[0]
        spent = round(worked["ticks"])
        return {"user": spent // 2, "system": spent - spent // 2, "idle": round(200 * now[0]) - spent,
                "iowait": 7, "guest": spent, "ticks_per_second": TICKS}  # fmt: skip

    return read


def waited(monkeypatch: pytest.MonkeyPatch, clock: list[float], busy: Callable[[float], float]) -> float:
    monkeypatch.setattr(rest, "read_cpu", cpu(clock, busy))
    return wait_for_rest()


@pytest.mark.parametrize(("busy", "seconds"), [
    (lambda t: 0.1, WINDOW),
    (lambda t: 0.45, WINDOW),
    (lambda t: 1.5 if t < 2 else 0.1, 2 + WINDOW),
    (lambda t: 0.6, rest.MOST_SECONDS),
])  # fmt: skip
def test_it_waits_as_long_as_somebody_works(
    monkeypatch: pytest.MonkeyPatch, clock: list[float], busy: Callable[[float], float], seconds: float
) -> None:
    assert waited(monkeypatch, clock, busy) == pytest.approx(seconds)


def test_a_kernel_that_does_not_count_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    counts: Iterator[None] = iter([None, None])
    monkeypatch.setattr(rest, "read_cpu", lambda: next(counts))
    assert wait_for_rest() == pytest.approx(WINDOW)
