"""Verdicts on a server under load: a quiet host beside its load, and a load that is the limit."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from pagecage.model.record import Record
from pagecage.verdicts.evaluate import evaluate
from tests.fixtures.records import SECONDS, after, make_record, series

SERVER_SECONDS = 0.4 * SECONDS


def record(load_seconds: float | None, busy_seconds: float, **load: Any) -> Record:
    """Return a trial whose server waited for CPUs nearly all the time."""
    counters = after(cpu_wait=0.9 * SECONDS)
    for moment, seconds in (("before", 0.0), ("after", busy_seconds)):
        counters[moment]["host"]["stat"]["user"] = round(100 * seconds)
        counters[moment]["host"]["stat"] |= {"nice": 0, "irq": 0, "softirq": 0}
    used = {"user_seconds": load_seconds, "system_seconds": None if load_seconds is None else 0.0}
    section = {"during": "load", "status": 0, "cpus": [3], **used, **load}
    return make_record(counters=counters, load=section)


@pytest.mark.parametrize(
    ("busy_seconds", "verdict"),
    [(SERVER_SECONDS + 3.0, "quiet"), (SERVER_SECONDS + 3.0 + 0.3 * SECONDS, "not_quiet")],
)
def test_only_what_neither_server_nor_load_used_is_noise(busy_seconds: float, verdict: str) -> None:
    """The pressure of the server's own processes on its CPUs is not the host's noise."""
    quiet = evaluate(record(3.0, busy_seconds)).host_quiet
    assert quiet.verdict == verdict, quiet
    assert "other processes kept" in quiet.reason


def test_a_load_whose_time_was_not_counted_leaves_the_question_open() -> None:
    quiet = evaluate(record(None, SERVER_SECONDS)).host_quiet
    assert quiet.verdict == "unknown"
    assert "the CPU time of the load was not counted" in quiet.reason


def test_without_a_load_its_waits_count() -> None:
    found = record(3.0, SERVER_SECONDS + 3.0)
    alone = make_record(counters=after(cpu_wait=0.9 * SECONDS))
    assert evaluate(found).host_quiet.verdict == "quiet"
    assert "waited for a CPU for 90.0 %" in evaluate(alone).host_quiet.reason


@pytest.mark.parametrize(
    ("others_seconds", "verdict"), [(0.14 * SECONDS, "quiet"), (0.16 * SECONDS, "not_quiet")]
)
def test_a_trial_waits_for_its_own_threads_if_no_other_process_ran(
    others_seconds: float, verdict: str
) -> None:
    """A virtual machine whose compiler shares one CPU with the program waits for itself."""
    counters = record(None, SERVER_SECONDS + others_seconds).counters
    quiet = evaluate(make_record(counters=asdict(counters))).host_quiet
    assert quiet.verdict == verdict, quiet
    assert "waited for a CPU for 90.0 %" in quiet.reason
    assert ("for its own threads" in quiet.reason) is (verdict == "quiet")


SAYS = "so that the load itself may have held the server's figures down"


@pytest.mark.parametrize(
    ("load_seconds", "cpus", "says"),
    [(9.5, [3], True), (8.0, [3], False), (9.5, [2, 3], False), (None, [3], False)],
)
def test_a_load_that_used_its_cpu_may_be_the_limit(
    load_seconds: float | None, cpus: list[int], says: bool
) -> None:
    found = record(load_seconds, SERVER_SECONDS + (load_seconds or 0), cpus=cpus)
    rows = series(rbytes=19_000_000, rios=150, io=1.0, busy=0.5)
    assert (SAYS in evaluate(found, rows).diagnosis.sentence) is says
