"""A trial's excess over its limits, from the sampler's rows."""

from __future__ import annotations

from pagecage.agent.responses import ahead
from pagecage.model.cage import Cage

CAGE = Cage("c", {"IOReadIOPSMax": 100})


def rows(*counts: int) -> list[dict[str, object]]:
    """Return a row per tenth of a second, with these totals of reads."""
    return [
        {"t": n / 10, "io": {"rios": count, "rbytes": 4096 * count}}
        for n, count in enumerate(counts)
    ]


def test_reads_above_limit_times_time_are_ahead() -> None:
    assert ahead(rows(0, 0, 60, 70, 80), CAGE, 0.0, 1.0) == {
        "reads_ahead": 50.0,
        "read_bytes_ahead": None,
    }


def test_reads_within_the_limit_are_not_ahead() -> None:
    assert ahead(rows(0, 9, 18, 27), CAGE, 0.0, 1.0)["reads_ahead"] == 0.0


def test_reads_before_the_measured_part_do_not_count() -> None:
    assert ahead(rows(0, 500, 500, 500, 510), CAGE, 0.1, 1.0)["reads_ahead"] == 0.0


def test_without_a_read_the_excess_is_unknown() -> None:
    assert ahead(rows(7, 7, 7), CAGE, 0.0, 1.0)["reads_ahead"] is None
