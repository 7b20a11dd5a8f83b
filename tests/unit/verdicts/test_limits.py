"""Every verdict that a limit can get, and the reason that it names."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagecage.verdicts.limits import GRACE, judge_limits
from pagecage.verdicts.verdict import LimitVerdict
from tests.fixtures.records import CAPS, after, caged, held, make_record, plain_record


def verdict(record, name: str) -> LimitVerdict:
    return next(limit for limit in judge_limits(record) if limit.property == name)


def test_a_proven_cage_is_enforced_in_every_property():
    limits = judge_limits(make_record())
    assert {limit.property for limit in limits} == set(CAPS)
    assert {limit.verdict for limit in limits} == {"enforced"}


def test_calibration_proves_a_cap_that_the_trial_never_reached():
    idle = after(read_bytes=1_000_000, reads=10)
    record = make_record(counters=idle, cage=caged(IOReadIOPSMax=held("IOReadIOPSMax", 0.99)))
    found = verdict(record, "IOReadIOPSMax")
    assert found.verdict == "enforced"
    assert "fio" in found.reason


def test_a_cap_that_nothing_reached_is_not_proven_by_idleness():
    record = make_record(counters=after(read_bytes=1_000_000, reads=10), cage=caged())
    assert verdict(record, "IOReadBandwidthMax").verdict == "never_reached"
    assert verdict(record, "IOReadIOPSMax").verdict == "never_reached"


def test_a_calibration_that_stayed_low_proves_nothing():
    record = make_record(
        counters=after(read_bytes=1_000_000, reads=10),
        cage=caged(IOReadBandwidthMax=held("IOReadBandwidthMax", 0.5)),
    )
    assert verdict(record, "IOReadBandwidthMax").verdict == "never_reached"


def test_a_failed_calibration_is_named():
    failed = {"method": "fio", "observed": None, "held": None, "error": "fio is not installed"}
    idle = after(read_bytes=1_000_000, reads=10)
    record = make_record(counters=idle, cage=caged(IOReadBandwidthMax=failed))
    assert "fio is not installed" in verdict(record, "IOReadBandwidthMax").reason


def test_the_trial_itself_can_reach_a_cap():
    record = make_record(counters=after(read_bytes=190_000_000), cage=caged())
    assert verdict(record, "IOReadBandwidthMax").verdict == "enforced"


def test_more_bytes_than_the_cap_allows_is_a_leak_even_when_calibration_held():
    record = make_record(counters=after(read_bytes=220_000_000))
    found = verdict(record, "IOReadBandwidthMax")
    assert found.verdict == "leaky"
    assert "22 MB/s" in found.reason


def test_a_leaking_calibration_is_a_leak():
    leak = held("IOReadIOPSMax", 2.0)
    assert verdict(make_record(cage=caged(IOReadIOPSMax=leak)), "IOReadIOPSMax").verdict == "leaky"


def test_the_first_slice_may_pass_at_full_speed():
    seconds = 0.4
    allowed = CAPS["IOReadBandwidthMax"] * (seconds + 0.1)
    short = {**plain_record()["measured"], "seconds": seconds}
    counts = after(read_bytes=int(allowed), reads=10, seconds=seconds)
    assert (
        verdict(make_record(measured=short, counters=counts), "IOReadBandwidthMax").verdict
        == "enforced"
    )
    counts = after(read_bytes=int(allowed * GRACE * 1.01), reads=10, seconds=seconds)
    assert (
        verdict(make_record(measured=short, counters=counts), "IOReadBandwidthMax").verdict
        == "leaky"
    )


@pytest.mark.parametrize("name", CAPS)
def test_a_read_back_that_differs_is_a_leak(name):
    files = {
        "MemoryMax": "memory.max",
        "MemorySwapMax": "memory.swap.max",
        "IOReadBandwidthMax": "io.max.rbps",
    }
    file = files.get(name, "io.max.riops")
    cage = caged()
    cage["read_back"][file] = "max"
    found = verdict(make_record(cage=cage), name)
    assert found.verdict == "leaky"
    assert file in found.reason


def test_a_missing_read_back_of_a_measured_trial_is_a_leak():
    cage = {**caged(), "read_back": {}}
    assert verdict(make_record(cage=cage), "MemoryMax").verdict == "leaky"


def test_memory_max_is_compared_after_rounding_to_pages():
    cage = caged({"MemoryMax": 6_710_886})
    assert cage["read_back"]["memory.max"] == "6709248"
    record = make_record(cage=cage, counters=after(hits=5, peak=6_709_248))
    assert verdict(record, "MemoryMax").verdict == "enforced"


def test_a_tighter_ancestor_is_what_was_measured():
    cage = {**caged(), "ancestors": {"user.slice": {"memory.max": "4096000"}}}
    found = verdict(make_record(cage=cage), "MemoryMax")
    assert found.verdict == "leaky"
    assert "user.slice" in found.reason


def test_a_wider_ancestor_does_no_harm():
    cage = {**caged(), "ancestors": {"user.slice": {"memory.max": "40960000000"}}}
    assert verdict(make_record(cage=cage), "MemoryMax").verdict == "enforced"


@pytest.mark.parametrize(
    ("limit", "word"), [("14000000", "leaky"), ("900000000", "not_applicable")]
)
def test_an_unrequested_limit_of_an_ancestor_counts_once_the_trial_came_near(limit, word):
    cage = {**caged({}), "ancestors": {"user.slice": {"memory.max": limit, "memory.swap.max": "0"}}}
    found = {v.property: v.verdict for v in judge_limits(make_record(cage=cage))}
    assert found == {"MemoryMax": word, "MemorySwapMax": "not_applicable"}


def test_memory_is_proven_by_reclaim_at_the_limit_or_by_an_oom_kill():
    cage = caged({"MemoryMax": CAPS["MemoryMax"]})
    assert (
        verdict(make_record(cage=cage, counters=after(hits=3)), "MemoryMax").verdict == "enforced"
    )
    assert (
        verdict(make_record(cage=cage, counters=after(oom_kill=1)), "MemoryMax").verdict
        == "enforced"
    )
    idle = after(peak=500_000)
    assert verdict(make_record(cage=cage, counters=idle), "MemoryMax").verdict == "never_reached"


def test_an_oom_kill_without_measured_part_still_proves_the_memory_limit():
    totals = {"totals": {"cgroup": after(oom_kill=1)["after"]["cgroup"]}}
    record = make_record(outcome="oom_killed", measured=None, counters=totals, response={})
    assert verdict(record, "MemoryMax").verdict == "enforced"


def test_a_peak_over_the_limit_is_a_leak():
    record = make_record(counters=after(hits=3, peak=20_000_000))
    assert verdict(record, "MemoryMax").verdict == "leaky"


def test_swap_that_is_used_although_it_is_off_is_a_leak():
    record = make_record(counters=after(swap=4096))
    assert verdict(record, "MemorySwapMax").verdict == "leaky"


@pytest.mark.parametrize(
    ("throttled", "cpu", "word"), [(3, 4.9, "enforced"), (0, 2, "never_reached"), (0, 8, "leaky")]
)
def test_cpu_quota(throttled, cpu, word):
    record = make_record(cage=caged({"CPUQuota": 50}), counters=after(throttled=throttled, cpu=cpu))
    assert verdict(record, "CPUQuota").verdict == word


def test_no_limit_asked_for_is_not_applicable():
    assert (
        verdict(make_record(cage=caged({"MemorySwapMax": "infinity"})), "MemorySwapMax").verdict
        == "not_applicable"
    )


def test_a_trial_without_its_slice_has_no_verdict_on_limits():
    cage = {**caged(), "read_back": {}}
    record = make_record(cage=cage, outcome="not_prepared", measured=None, counters={}, response={})
    assert {limit.verdict for limit in judge_limits(record)} == {"not_applicable"}


@settings(deadline=None)  # a busy machine must not fail the test
@given(rate=st.floats(min_value=0, max_value=60e6), calibrated=st.booleans())
def test_a_cap_that_was_neither_reached_nor_kept_is_never_enforced(rate, calibrated):
    cage = caged(**({"IOReadBandwidthMax": held("IOReadBandwidthMax")} if calibrated else {}))
    found = verdict(
        make_record(cage=cage, counters=after(read_bytes=int(rate * 10))), "IOReadBandwidthMax"
    )
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
