"""MemoryHigh: proven by the throttling that the kernel counts, and named by the diagnosis."""

from __future__ import annotations

import pytest

from pagecage.agent.drivers.container import limit_options
from pagecage.agent.drivers.docker import cage_for_slice
from pagecage.model.cage import Cage, expected_read_back, property_arguments
from pagecage.units import LEAST_PAGE_BYTES
from pagecage.verdicts.evaluate import evaluate
from pagecage.verdicts.limits import judge_limits
from tests.fixtures.records import after, caged, make_record, series

HIGH = 13_418_496
CAGE = Cage("high", {"MemoryHigh": HIGH, "MemorySwapMax": 0})


def judged(**figures: float) -> tuple[str, str]:
    record = make_record(cage=caged({"MemoryHigh": HIGH}), counters=after(**figures))
    [found] = judge_limits(record)
    return found.verdict, found.reason


def test_systemd_sets_it_and_the_kernel_must_hold_it() -> None:
    assert f"MemoryHigh={HIGH}" in property_arguments(CAGE, "/dev/vdb")
    assert expected_read_back(CAGE, LEAST_PAGE_BYTES)["memory.high"] == str(HIGH)


def test_docker_cannot_set_it_so_that_it_stays_on_the_slice() -> None:
    cage = Cage("both", {"MemoryMax": 2 * HIGH, "MemoryHigh": HIGH, "MemorySwapMax": 0})
    assert not any(str(HIGH) == option.partition("=")[2] for option in limit_options(cage, "/d"))
    assert cage_for_slice(cage).properties == {"MemoryHigh": HIGH}
    assert cage_for_slice(CAGE).properties == CAGE.properties


def test_throttling_proves_it_and_memory_beyond_it_is_no_leak() -> None:
    word, reason = judged(high=7, peak=2 * HIGH)
    assert word == "enforced"
    assert "throttled 7 times" in reason


def test_without_throttling_it_is_not_proven() -> None:
    assert judged(peak=HIGH // 2)[0] == "never_reached"


def test_another_value_in_the_kernel_is_a_leak() -> None:
    cage = caged({"MemoryHigh": HIGH})
    cage["read_back"]["memory.high"] = "max"
    [found] = judge_limits(make_record(cage=cage, counters=after(high=7)))
    assert found.verdict == "leaky"
    assert "memory.high" in found.reason


def test_one_that_only_an_ancestor_imposes_is_a_leak_near_it() -> None:
    cage = {**caged({}), "ancestors": {"user.slice": {"memory.high": str(HIGH)}}}
    [found] = judge_limits(make_record(cage=cage))
    assert (found.property, found.verdict) == ("MemoryHigh", "leaky")


@pytest.mark.parametrize("counted", [{"high": 2}, {}])
def test_a_throttled_program_is_told_so(counted: dict[str, float]) -> None:
    """A sleep lasts longer than a window, and only its begin is counted."""
    record = make_record(
        cage=caged({"MemoryHigh": HIGH}), counters=after(high=20, read_bytes=0, memory_wait=9.5)
    )
    found = evaluate(record, series(memory_wait=0.95, cpu=0.04, **counted))
    assert found.binding_limit.verdict == "memory"
    assert found.diagnosis.sentence == (
        "The MemoryHigh of 12.8 MiB held the program back for 100 % of the time. Above it the"
        " kernel throttles the program, but does not kill it. Throttling and reclaim took 95 % of"
        " that time. More memory helps."
    )


def test_in_a_cage_with_both_the_limit_that_was_met_more_often_is_named() -> None:
    limits = {"MemoryMax": 2 * HIGH, "MemoryHigh": HIGH}
    for figures, name in (({"high": 20, "hits": 1}, "MemoryHigh"), ({"hits": 20}, "MemoryMax")):
        record = make_record(cage=caged(limits), counters=after(read_bytes=0, **figures))
        rows = series(memory_wait=0.95, cpu=0.04, **figures)
        assert evaluate(record, rows).diagnosis.sentence.startswith(f"The {name} of ")


def test_throttling_beside_another_limit_is_a_remark() -> None:
    limits = {"MemoryHigh": HIGH, "IOReadIOPSMax": 500}
    record = make_record(cage=caged(limits), counters=after(high=20, reads=4900, memory_wait=3.0))
    rows = series(rbytes=2e6, rios=490, io_wait=0.9, memory_wait=0.3, high=2)
    found = evaluate(record, rows)
    assert found.binding_limit.verdict == "iops"
    told = "The MemoryHigh of 12.8 MiB throttled the program: it waited for memory 30 % of"
    assert f"{told} the time." in found.diagnosis.sentence


def test_an_older_record_without_the_count_says_nothing_of_it() -> None:
    record = make_record(cage=caged({"MemoryMax": HIGH}))
    rows = series(rbytes=1e6, hits=900, memory_wait=0.6, cpu=0.3)
    for row in rows:
        del row["memory_events"]["high"]
    assert evaluate(record, rows).binding_limit.verdict == "memory"
