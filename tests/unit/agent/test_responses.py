"""A trial's excess over its limits, from the sampler's rows."""

from __future__ import annotations

from typing import Any

import pytest

from pagecage.agent.responses import ahead, responses
from pagecage.agent.trial_run import Measured
from pagecage.model.cage import Cage
from pagecage.model.record_sections import MeasuredInterval
from tests.fake_host.machine import make_trial
from tests.fixtures.records import counters

CAGE = Cage("c", {"IOReadIOPSMax": 100})


def rows(*counts: int) -> list[dict[str, object]]:
    """Return a row per tenth of a second, with these totals of reads."""
    io = ({"rios": count, "rbytes": 4096 * count} for count in counts)
    return [{"t": n / 10, "io": counted} for n, counted in enumerate(io)]


@pytest.mark.parametrize(
    ("counts", "begin", "excess"),
    [
        pytest.param((0, 0, 60, 70, 80), 0.0, 50.0, id="above limit times time"),
        pytest.param((0, 9, 18, 27), 0.0, 0.0, id="within the limit"),
        pytest.param((0, 500, 500, 500, 510), 0.1, 0.0, id="before the measured part"),
        pytest.param((7, 7, 7), 0.0, None, id="no read"),
    ],
)
def test_reads_ahead_of_the_limit(counts: tuple[int], begin: float, excess: float | None) -> None:
    found = ahead(rows(*counts), CAGE, begin, 1.0)
    assert found == {"reads_ahead": excess, "read_bytes_ahead": None}


def measured(before: dict[str, Any], after: dict[str, Any]) -> Measured:
    sides = {"before": {**counters(), **before}, "after": {**counters(), **after}}
    return Measured(MeasuredInterval(0.0, 0.0, 1.0), sides, {"seconds": 1.0}, {})


def lower(before: dict[str, Any], after: dict[str, Any]) -> tuple[float | None, float | None]:
    found = responses(make_trial(), "ok", measured(before, after), "254:16", [])
    return found["lower_device_read_bytes"], found["lower_device_reads"]


def test_the_lower_devices_reads_are_those_of_the_measured_part() -> None:
    first, last = {"reads": 10, "sectors_read": 100}, {"reads": 30, "sectors_read": 140}
    assert lower({"lower_device": first}, {"lower_device": last}) == (40 * 512, 20)


@pytest.mark.parametrize("absent", [{}, {"lower_device": None}])
def test_without_a_lower_device_its_reads_are_unknown(absent: dict[str, Any]) -> None:
    assert lower(absent, absent) == (None, None)
