"""Every verdict word on cache state, quiet host, emulation and amplification, and exclusion."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagecage.model.record import OUTCOMES
from pagecage.verdicts.cache_state import judge_cache_state
from pagecage.verdicts.evaluate import evaluate, verdicts_to_json
from pagecage.verdicts.io_demand import amplification, time_floor
from pagecage.verdicts.quiet import judge_host_quiet
from tests.fixtures.records import (
    FILE_BYTES,
    SECONDS,
    after,
    caged,
    make_record,
    outer,
    plain_record,
)


@pytest.mark.parametrize(
    ("requested", "resident", "word"),
    [
        ("cold", 0, "reached"),
        ("cold", 4096, "not_reached"),
        ("cold", None, "not_reached"),
        ("resident", FILE_BYTES, "reached"),
        ("resident", FILE_BYTES - 4096, "not_reached"),
        ("resident", 0, "not_reached"),
        ("any", 4096, "not_applicable"),
    ],
)
def test_cache_state(requested, resident, word):
    record = make_record(cache={"requested": requested, "resident_bytes_before": resident})
    assert judge_cache_state(record).verdict == word


def test_a_resident_file_counts_whole_pages():
    cache = {
        "requested": "resident",
        "file_bytes": 4097,
        "resident_bytes_before": 8192,
        "charged_to": "/init",
    }
    found = judge_cache_state(make_record(cache=cache))
    assert found.verdict == "reached"
    assert "/init" in found.reason


@pytest.mark.parametrize("changes", [{}, {"outer_host": None}])
def test_a_quiet_host(changes):
    assert judge_host_quiet(make_record(**changes)).verdict == "quiet"


@pytest.mark.parametrize(
    ("figures", "what"),
    [
        ({"foreign": 20_000_000}, "other processes moved"),
        ({"steal": 0.9}, "hypervisor took"),
        ({"cpu_wait": 3.0}, "for a CPU"),
        ({"throttled": 1.0}, "CPU limit that the cage does not request"),
    ],
)
def test_each_kind_of_noise_is_found_and_named(figures, what):
    found = judge_host_quiet(make_record(counters=after(**figures)))
    assert found.verdict == "not_quiet"
    assert what in found.reason
    assert "another cgroup wrote" not in found.reason, "these are reads"


@pytest.mark.parametrize(("foreign", "word"), [(900_000, "quiet"), (1_100_000, "not_quiet")])
def test_foreign_traffic_on_a_disk_that_the_trial_hardly_uses(foreign, word):
    counters = after(read_bytes=0, reads=0, foreign=foreign)
    assert judge_host_quiet(make_record(counters=counters)).verdict == word


@pytest.mark.parametrize(("flushes", "word"), [(0, "not_quiet"), (80, "not_quiet"), (800, "quiet")])
def test_writes_of_the_file_system_for_a_sync_are_not_foreign(flushes, word):
    counts = after()
    counts["before"]["device"]["flushes"] = 7
    counts["after"]["device"] |= {"flushes": 7 + flushes, "sectors_written": 12_000_000 // 512}
    assert judge_host_quiet(make_record(counters=counts)).verdict == word


def test_syncs_do_not_excuse_foreign_reads():
    counts = after(foreign=20_000_000)
    counts["before"]["device"]["flushes"] = 0
    counts["after"]["device"]["flushes"] = 10_000
    assert judge_host_quiet(make_record(counters=counts)).verdict == "not_quiet"


def test_a_busy_outer_host():
    around = {"before": outer(0.0), "after": outer(SECONDS, others=0.7)}
    found = judge_host_quiet(make_record(outer_host=around))
    assert found.verdict == "not_quiet"
    assert "0.70 CPUs" in found.reason


@pytest.mark.parametrize(
    "changes",
    [
        {"counters": {**after(), "before": None}},
        {"counters": {**after(), "after": None}},
        {"outer_host": {"before": None, "after": None}},
        {"measured": None},
    ],
)
def test_what_was_not_counted_is_unknown(changes):
    assert judge_host_quiet(make_record(**changes)).verdict == "unknown"


@settings(deadline=None)  # a busy machine is no failure
@given(
    ticks=st.integers(min_value=0, max_value=4), seconds=st.floats(min_value=0.001, max_value=0.19)
)
def test_a_few_ticks_in_a_short_part_are_never_called_noise(ticks, seconds):
    measured = {**plain_record()["measured"], "seconds": seconds}
    counts = after(read_bytes=0, reads=0, seconds=seconds, steal=ticks / 100)
    for moment in ("before", "after"):
        counts[moment]["host"]["stat"]["steal"] += 7  # of earlier hours
    assert judge_host_quiet(make_record(measured=measured, counters=counts)).verdict == "unknown"


@pytest.mark.parametrize(
    ("cage", "figures"),
    [
        (caged(), {"cpu_wait": 8, "cpu": 18}),
        (caged({"CPUQuota": 20}), {"cpu_wait": 8, "throttled": 7}),
    ],
)
def test_own_threads_and_a_quota_are_not_noise(cage, figures):
    record = make_record(cage=cage, counters=after(**figures))
    assert judge_host_quiet(record).verdict == "quiet"


def test_amplification_is_per_byte_asked_for_and_per_distinct_byte():
    workload = {"end": {"bytes": 2_000_000, "distinct_bytes": 500_000}}
    found = amplification(make_record(counters=after(read_bytes=4_000_000), workload=workload))
    assert (found.per_requested_byte, found.per_distinct_byte) == (2.0, 8.0)


@pytest.mark.parametrize("changes", [{"workload": {"end": {}}}, {"counters": {}}])
def test_amplification_is_unknown_without_a_closing_line(changes):
    assert amplification(make_record(**changes)).verdict == "unknown"


@pytest.mark.parametrize(
    ("reads", "seconds", "cap"), [(1500, 5.0, "IOReadBandwidthMax"), (4000, 8.0, "IOReadIOPSMax")]
)
def test_the_time_floor_is_that_of_the_slower_cap(reads, seconds, cap):
    found = time_floor(make_record(counters=after(read_bytes=100_000_000, reads=reads)))
    assert found.floor_seconds == pytest.approx(seconds)
    assert found.closeness == pytest.approx(seconds / SECONDS)
    assert cap in found.reason


def test_there_is_no_time_floor_without_caps():
    assert time_floor(make_record(cage=caged({}))).verdict == "unknown"


@pytest.mark.parametrize(("emulated", "word"), [(True, "yes"), (False, "no"), (None, "unknown")])
def test_emulated(emulated, word):
    assert evaluate(make_record(emulated=emulated)).emulated.verdict == word


def test_a_proven_trial_is_kept():
    verdicts = evaluate(make_record())
    assert (verdicts.excluded, verdicts.reasons, verdicts.is_data_point) == (False, (), True)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"counters": after(read_bytes=300_000_000)}, "IOReadBandwidthMax leaky"),
        ({"cache": {"resident_bytes_before": 4096}}, "cache state not reached"),
        ({"counters": after(foreign=90_000_000)}, "host not quiet"),
    ],
)
def test_only_these_three_exclude(change, reason):
    verdicts = evaluate(make_record(**change))
    assert verdicts.excluded
    assert [r.startswith(reason) for r in verdicts.reasons] == [True]


@pytest.mark.parametrize(
    "change",
    [
        {"emulated": True},
        {"cage": caged(), "counters": after(read_bytes=1000)},
        {"outer_host": {"before": {}}},
    ],
)
def test_doubt_alone_does_not_exclude(change):
    assert not evaluate(make_record(**change)).excluded


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_which_outcomes_are_data_points(outcome):
    expected = outcome in ("ok", "oom_killed", "timed_out")
    assert evaluate(make_record(outcome=outcome)).is_data_point == expected


def test_an_empty_record_is_evaluated_without_an_error():
    bare = {
        "cage": {},
        "cache": {},
        "device": {},
        "workload": {},
        "counters": {},
        "measured": None,
        "phases": [],
    }
    for outcome in OUTCOMES:
        record = make_record(outcome=outcome, outer_host=None, response={}, **bare)
        json.dumps(verdicts_to_json(evaluate(record, [])))
