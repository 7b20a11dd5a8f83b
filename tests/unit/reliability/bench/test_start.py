"""Times that the benchmark reads of a command: from its output and from phases of its records."""

from __future__ import annotations

import pytest

from pagecage.errors import PagecageError
from pagecage.model.record import Record
from reliability.bench.start import Timed, figures
from tests.fixtures.records import make_record


def record(number: int, start: float, measured: float, **phases: float) -> Record:
    """A trial whose phases follow each other."""
    rows, now = [], start
    for name, seconds in phases.items():
        rows.append(
            {
                "name": name,
                "start_wall_seconds": now,
                "start_monotonic_seconds": now,
                "seconds": seconds,
            }
        )
        now += seconds
    times = {"start_wall_seconds": start, "start_monotonic_seconds": start, "seconds": measured}
    return make_record(trial_id=f"t{number}", phases=rows, measured=times)


def command(began: float) -> Timed:
    first = record(1, began + 4.0, 0.2, calibrate=3.0, slice=0.3, run=0.5, stop=0.4)
    second = record(2, began + 9.0, 1.0, calibrate=0.0, slice=0.1, run=1.2, stop=0.6)
    lines = ((began + 0.5, "4 trials to run"), (began + 1.0, "starting the host ..."))
    return Timed(began, lines, began + 20.0, (first, second))


def test_the_times_from_the_key_press() -> None:
    first, report, _ = figures([command(100.0), command(500.0)])
    assert (first.name, first.ratio, first.met) == ("seconds to the first trial", 4.0, True)
    assert "1.0 s until the host is started" in first.says
    assert (report.ratio, report.met, report.samples) == (20.0, True, 2)
    assert "9.1 s after the last trial" in report.says


def test_the_pause_is_what_neither_the_workload_nor_what_is_done_once_takes() -> None:
    *_, pause = figures([command(100.0)])
    assert pause.ratio == pytest.approx(9.0 - 4.0 - 0.2 - 3.0)
    assert pause.met is False
    assert pause.says == "beyond the workload; stop 0.50 s, run 0.25 s, slice 0.20 s"


def test_a_command_that_says_nothing_of_a_host_is_no_figure() -> None:
    silent = Timed(0.0, (), 1.0, command(0.0).records)
    with pytest.raises(PagecageError, match="never said 'starting the host'"):
        list(figures([silent]))
