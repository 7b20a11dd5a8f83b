"""Verdicts on limits, caps that burst credits change, and MemoryHigh."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagecage.agent.drivers.container import limit_options
from pagecage.agent.drivers.docker import cage_for_slice
from pagecage.model.cage import Cage, expected_read_back, property_arguments
from pagecage.model.json_codec import Json
from pagecage.model.record import Record
from pagecage.units import LEAST_PAGE_BYTES
from pagecage.verdicts.counters import Rows
from pagecage.verdicts.evaluate import evaluate
from pagecage.verdicts.limits import (
    GRACE,
    cap_change_count,
    caps_between,
    drained_after_seconds,
    judge_limits,
    measured_caps,
)
from pagecage.verdicts.verdict import LimitVerdict
from tests.builders.known import known
from tests.fixtures.records import (
    CAPS,
    SECONDS,
    START,
    after,
    caged,
    held,
    make_record,
    plain_record,
    series,
)


def verdict(record: Record, name: str) -> LimitVerdict:
    return next(limit for limit in judge_limits(record) if limit.property == name)


def test_a_proven_cage_is_enforced_in_every_property() -> None:
    limits = judge_limits(make_record())
    assert {limit.property for limit in limits} == set(CAPS)
    assert {limit.verdict for limit in limits} == {"enforced"}


IDLE = after(read_bytes=1_000_000, reads=10)
NO_FIO = {"method": "fio", "observed": None, "held": None, "error": "fio is not installed"}


@pytest.mark.parametrize(
    ("counters", "calibrations", "name", "word", "says"),
    [
        (IDLE, {"IOReadIOPSMax": 0.99}, "IOReadIOPSMax", "enforced", "fio"),
        (IDLE, {}, "IOReadBandwidthMax", "never_reached", ""),
        (IDLE, {}, "IOReadIOPSMax", "never_reached", ""),
        (IDLE, {"IOReadBandwidthMax": 0.5}, "IOReadBandwidthMax", "never_reached", ""),
        (
            IDLE,
            {"IOReadBandwidthMax": NO_FIO},
            "IOReadBandwidthMax",
            "never_reached",
            NO_FIO["error"],
        ),
        (after(read_bytes=190_000_000), {}, "IOReadBandwidthMax", "enforced", ""),
        (after(), {"IOReadIOPSMax": 2.0}, "IOReadIOPSMax", "leaky", ""),
    ],
)
def test_a_cap_is_proven_by_the_trial_or_by_its_calibration(
    counters: Json, calibrations: Json, name: str, word: str, says: str
) -> None:
    results = {
        prop: held(prop, result) if isinstance(result, float) else result
        for prop, result in calibrations.items()
    }
    found = verdict(make_record(counters=counters, cage=caged(**results)), name)
    assert found.verdict == word
    assert says in found.reason


def test_more_bytes_than_the_cap_allows_is_a_leak_even_when_calibration_held() -> None:
    record = make_record(counters=after(read_bytes=220_000_000))
    found = verdict(record, "IOReadBandwidthMax")
    assert found.verdict == "leaky"
    assert "22 MB/s" in found.reason


@pytest.mark.parametrize(("factor", "word"), [(1.0, "enforced"), (GRACE * 1.01, "leaky")])
def test_the_first_slice_may_pass_at_full_speed(factor: float, word: str) -> None:
    seconds = 0.4
    moved = int(CAPS["IOReadBandwidthMax"] * (seconds + 0.1) * factor)
    counts = after(read_bytes=moved, reads=10, seconds=seconds)
    measured = {**plain_record()["measured"], "seconds": seconds}
    record = make_record(measured=measured, counters=counts)
    assert verdict(record, "IOReadBandwidthMax").verdict == word


@pytest.mark.parametrize("name", CAPS)
def test_a_read_back_that_differs_is_a_leak(name: str) -> None:
    names = ("memory.max", "memory.swap.max", "io.max.rbps", "io.max.riops")
    file = dict(zip(CAPS, names, strict=True))[name]
    cage = caged()
    cage["read_back"][file] = "max"
    found = verdict(make_record(cage=cage), name)
    assert found.verdict == "leaky"
    assert file in found.reason


def test_a_missing_read_back_of_a_measured_trial_is_a_leak() -> None:
    cage = {**caged(), "read_back": {}}
    assert verdict(make_record(cage=cage), "MemoryMax").verdict == "leaky"


def test_memory_max_is_compared_after_rounding_to_pages() -> None:
    cage = caged({"MemoryMax": 6_710_886})
    assert cage["read_back"]["memory.max"] == "6709248"
    record = make_record(cage=cage, counters=after(hits=5, peak=6_709_248))
    assert verdict(record, "MemoryMax").verdict == "enforced"


@pytest.mark.parametrize(("limit", "word"), [("4096000", "leaky"), ("40960000000", "enforced")])
def test_a_tighter_ancestor_is_what_was_measured(limit: str, word: str) -> None:
    cage = {**caged(), "ancestors": {"user.slice": {"memory.max": limit}}}
    found = verdict(make_record(cage=cage), "MemoryMax")
    assert found.verdict == word
    assert ("user.slice" in found.reason) is (word == "leaky")


@pytest.mark.parametrize(
    ("limit", "word"), [("14000000", "leaky"), ("900000000", "not_applicable")]
)
def test_an_unrequested_limit_of_an_ancestor_counts_once_the_trial_came_near(
    limit: str, word: str
) -> None:
    cage = {**caged({}), "ancestors": {"user.slice": {"memory.max": limit, "memory.swap.max": "0"}}}
    found = {v.property: v.verdict for v in judge_limits(make_record(cage=cage))}
    assert found == {"MemoryMax": word, "MemorySwapMax": "not_applicable"}


@pytest.mark.parametrize(
    ("figures", "name", "word"),
    [
        ({"hits": 3}, "MemoryMax", "enforced"),
        ({"oom_kill": 1}, "MemoryMax", "enforced"),
        ({"peak": 500_000}, "MemoryMax", "never_reached"),
        ({"hits": 3, "peak": 20_000_000}, "MemoryMax", "leaky"),
        ({"swap": 4096}, "MemorySwapMax", "leaky"),
    ],
)
def test_memory_is_proven_by_reclaim_at_the_limit_or_by_an_oom_kill(
    figures: Json, name: str, word: str
) -> None:
    limits = {"MemoryMax": CAPS["MemoryMax"], "MemorySwapMax": 0}
    record = make_record(cage=caged(limits), counters=after(**figures))
    assert verdict(record, name).verdict == word


def test_an_oom_kill_without_measured_part_still_proves_the_memory_limit() -> None:
    totals = {"totals": {"cgroup": after(oom_kill=1)["after"]["cgroup"]}}
    record = make_record(outcome="oom_killed", measured=None, counters=totals, response={})
    assert verdict(record, "MemoryMax").verdict == "enforced"


@pytest.mark.parametrize(
    ("throttled", "cpu", "word"), [(3, 4.9, "enforced"), (0, 2, "never_reached"), (0, 8, "leaky")]
)
def test_cpu_quota(throttled: int, cpu: float, word: str) -> None:
    record = make_record(cage=caged({"CPUQuota": 50}), counters=after(throttled=throttled, cpu=cpu))
    assert verdict(record, "CPUQuota").verdict == word


def test_no_limit_asked_for_is_not_applicable() -> None:
    record = make_record(cage=caged({"MemorySwapMax": "infinity"}))
    assert verdict(record, "MemorySwapMax").verdict == "not_applicable"


def test_a_trial_without_its_slice_has_no_verdict_on_limits() -> None:
    cage = {**caged(), "read_back": {}}
    record = make_record(cage=cage, outcome="not_prepared", measured=None, counters={}, response={})
    assert {limit.verdict for limit in judge_limits(record)} == {"not_applicable"}


@settings(deadline=None)  # a busy machine must not fail the test
@given(rate=st.floats(min_value=0, max_value=60e6), calibrated=st.booleans())
def test_a_cap_that_was_neither_reached_nor_kept_is_never_enforced(
    rate: float, calibrated: bool
) -> None:
    cage = caged(**({"IOReadBandwidthMax": held("IOReadBandwidthMax")} if calibrated else {}))
    record = make_record(cage=cage, counters=after(read_bytes=int(rate * 10)))
    found = verdict(record, "IOReadBandwidthMax")
    cap = CAPS["IOReadBandwidthMax"]
    if found.verdict == "enforced":
        assert rate <= cap * 1.05
        assert calibrated or rate >= 0.89 * cap
    if rate > cap * 1.05:
        assert found.verdict == "leaky"


@pytest.mark.parametrize(
    ("file", "dirty", "word"),
    [
        ("/b/blkio.throttle.io_service_bytes_recursive", 64 << 20, "leaky"),
        ("/b/blkio.throttle.io_service_bytes_recursive", 4096, "enforced"),
        ("/u/io.stat", 64 << 20, "enforced"),
    ],
)
def test_buffered_writes_escape_a_limit_of_version_1(file: str, dirty: int, word: str) -> None:
    counters = after()
    for moment, waiting in (("before", 0), ("after", dirty)):
        memory = counters[moment]["cgroup"].setdefault("memory.stat", {})
        memory |= {"file_dirty": waiting, "file_writeback": 0}
    limit = {"IOWriteBandwidthMax": 20_000_000}
    cage = caged(limit, IOWriteBandwidthMax=held("IOReadBandwidthMax", 0.99))
    record = make_record(counters=counters, cage={**cage, "counter_files": {"io.stat": [file]}})
    assert verdict(record, "IOWriteBandwidthMax").verdict == word


BURST_CAGE = {"IOReadIOPSMax": 100}
BUCKET = {
    "kind": "iops",
    "properties": ["IOReadIOPSMax"],
    "base": 100,
    "rate": 1000,
    "capacity": 18_000,
    "credits_at_start": 3600,
}
FOUR_SECONDS = [{"t": START - 1, "IOReadIOPSMax": 1000}, {"t": START + 4, "IOReadIOPSMax": 100}]


def bursting(changes: Rows = FOUR_SECONDS, reads: int = 4600, error: str | None = None) -> Record:
    """Return a record with 1,000 reads per second for four seconds, then 100 for six."""
    credits_section = {"buckets": [BUCKET], "changes": changes, "overwritten": 0, "error": error}
    cage = {**caged(BURST_CAGE), "credits": credits_section}
    return make_record(cage=cage, counters=after(read_bytes=reads * 4096, reads=reads))


def read_limit(record: Record) -> LimitVerdict:
    [limit] = evaluate(record).limits
    return limit


def test_the_cap_is_the_average_of_those_in_force() -> None:
    assert measured_caps(bursting()) == {"IOReadIOPSMax": pytest.approx(460)}
    assert caps_between(bursting(), START, START + 4) == {"IOReadIOPSMax": 1000}
    assert caps_between(bursting(), START + 5, START + 6) == {"IOReadIOPSMax": 100}
    assert cap_change_count(bursting(), "IOReadIOPSMax") == 1


def test_without_credits_the_cap_is_the_requested_one() -> None:
    for changes in ({}, {"measured": None}):
        record = make_record(cage=caged(BURST_CAGE), **changes)
        assert measured_caps(record) == {"IOReadIOPSMax": 100}


def test_a_burst_is_no_leak() -> None:
    limit = read_limit(bursting())
    assert (limit.verdict, limit.cap) == ("enforced", 100)
    says = "460 I/Os per second of 100 I/Os per second"
    assert f"{says} (on average 460 I/Os per second with burst credits)" in limit.reason


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"changes": []}, ""),
        ({"reads": 5500}, "on average 460 I/Os per second with burst credits"),
        (
            {"error": "burst credits ended early: no such file"},
            "did not follow its credits: burst credits ended early",
        ),
    ],
)
def test_reads_beyond_the_credits_are_a_leak(changes: Json, says: str) -> None:
    limit = read_limit(bursting(**changes))
    assert limit.verdict == "leaky"
    assert says in limit.reason


def test_the_floor_spends_the_credits_first() -> None:
    floor = evaluate(bursting()).floor
    assert floor.floor_seconds == pytest.approx((4600 - 3600) / 100)
    assert floor.closeness == pytest.approx(10 / SECONDS)


def test_each_second_is_judged_by_its_own_cap() -> None:
    rows = series(rios=1000, rbytes=4_096_000, io_wait=0.5)
    later = [row for row in rows if row["t"] > START + 4]
    for number, row in enumerate(later, start=1):
        row["io"] = {**row["io"], "rios": 4000 + 10 * number, "rbytes": (4000 + 10 * number) * 4096}
    found = evaluate(bursting(), rows)
    assert {second.bound_by for second in found.diagnosis.seconds} == {"iops"}
    assert "Burst credits ran out after 4 s" in found.diagnosis.sentence
    assert round(known(found.diagnosis.seconds[0].read.iops_cap)) == 1000


def test_when_credits_ran_out() -> None:
    assert drained_after_seconds(bursting()) == pytest.approx(4)
    assert drained_after_seconds(bursting(changes=FOUR_SECONDS[:1])) is None
    assert drained_after_seconds(bursting(changes=[{"t": START - 1, "IOReadIOPSMax": 100}])) is None
    assert drained_after_seconds(make_record(measured=None)) is None


@given(
    st.lists(st.tuples(st.floats(START - 2, START + 12), st.integers(100, 1000)), max_size=8),
    st.floats(0, 8),
)
def test_averages_lie_between_the_least_and_the_most(
    pairs: list[tuple[float, int]], since: float
) -> None:
    changes = [{"t": t, "IOReadIOPSMax": cap} for t, cap in sorted(pairs)]
    [average] = caps_between(bursting(changes=changes), START + since, START + 10).values()
    caps = [100, *(cap for _, cap in pairs)]
    assert min(caps) - 1e-6 <= average <= max(caps) + 1e-6


HIGH = 13_418_496
HIGH_CAGE = Cage("high", {"MemoryHigh": HIGH, "MemorySwapMax": 0})


def judged_high(**figures: Any) -> tuple[str, str]:
    record = make_record(cage=caged({"MemoryHigh": HIGH}), counters=after(**figures))
    [found] = judge_limits(record)
    return found.verdict, found.reason


def test_systemd_sets_it_and_the_kernel_must_hold_it() -> None:
    assert f"MemoryHigh={HIGH}" in property_arguments(HIGH_CAGE, "/dev/vdb")
    assert expected_read_back(HIGH_CAGE, LEAST_PAGE_BYTES)["memory.high"] == str(HIGH)


def test_docker_cannot_set_it_so_that_it_stays_on_the_slice() -> None:
    cage = Cage("both", {"MemoryMax": 2 * HIGH, "MemoryHigh": HIGH, "MemorySwapMax": 0})
    assert not any(str(HIGH) == option.partition("=")[2] for option in limit_options(cage, "/d"))
    assert cage_for_slice(cage).properties == {"MemoryHigh": HIGH}
    assert cage_for_slice(HIGH_CAGE).properties == HIGH_CAGE.properties


def test_throttling_proves_it_and_memory_beyond_it_is_no_leak() -> None:
    word, reason = judged_high(high=7, peak=2 * HIGH)
    assert word == "enforced"
    assert "throttled 7 times" in reason


def test_without_throttling_it_is_not_proven() -> None:
    assert judged_high(peak=HIGH // 2)[0] == "never_reached"


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
