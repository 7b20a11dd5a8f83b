"""A record whose counters, clocks, samples, reads and figures contradict each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pagecage.model.record import Record, record_from_json
from pagecage.model.record_sections import MachineEvidence
from pagecage.verdicts.cache_state import judge_cache_state
from pagecage.verdicts.consistency import judge_consistency
from pagecage.verdicts.evaluate import evaluate
from pagecage.verdicts.limits import judge_limits
from pagecage.verdicts.quiet import judge_host_quiet
from tests.fixtures.records import DISK, FILE_BYTES, SECONDS, START, plain_record, series

MOVED, READS = 190_000_000, 1500
LAG = 1_048_576


def edited(path: str, value: Any, **changes: Any) -> Record:
    """Return the record with one value changed; a number is added to the value that is there."""
    data = plain_record(**changes)
    *above, last = path.split("/")
    where = data
    for key in above:
        where = where[key]
    where[last] = value
    return record_from_json(data)


def rows() -> list[dict[str, Any]]:
    """Return samples that agree with the counters of `plain_record`."""
    return series(rbytes=MOVED / SECONDS, rios=READS / SECONDS)


def contradiction(record: Record, samples: list[dict[str, Any]] | None = None) -> str:
    found = judge_consistency(record, samples or [])
    return found.reason if found.verdict == "contradictory" else ""


def test_an_honest_record_is_consistent() -> None:
    record = record_from_json(plain_record())
    assert judge_consistency(record, rows()).verdict == "consistent"
    assert evaluate(record, rows()).reasons == ()


def test_a_server_is_ended_by_a_signal() -> None:
    ended = edited("exit", {"status": -15, "ended_by_itself": False})
    assert contradiction(ended) == ""
    assert "ended with status" in contradiction(edited("exit", {"status": -15}))


def test_without_a_measured_part_nothing_is_known() -> None:
    record = edited("measured", None, outcome="failed")
    assert judge_consistency(record, []).verdict == "unknown"


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("counters/after/cgroup/io.stat", {DISK: {"rbytes": -1}}, "rbytes of io.stat went back"),
        ("counters/after/cgroup/cpu.stat/usage_usec", -1, "cpu.stat usage_usec went back"),
        ("counters/after/device/sectors_read", -8, "sectors_read went back"),
        ("counters/after/device/sectors_read", 1000, "more than the"),
        ("counters/after/host/stat/user", 10, "host stat user went back"),
        ("counters/before/cgroup/io.pressure/some/total", 9e9, "io.pressure went back"),
        ("workload/end/seconds", SECONDS / 2, "the workload reports 5.000 s"),
        ("workload/end/seconds", SECONDS * 2, "the workload reports 20.000 s"),
        ("outer_host/after/unix_seconds", 5013, "passed on the outer host"),
        ("measured/start_monotonic_seconds", START + 100, "not within the phase run"),
        ("response/read_seconds", 3.0, "read_seconds is 3, and the counters give 10"),
        ("response/device_read_bytes", 7.0, "device_read_bytes is 7"),
        ("workload/checksum_ok", False, "the checksum was wrong"),
        ("exit/status", 1, "ended with status 1"),
        ("exit/oom_kill", 1, "killed the trial for memory"),
    ],
)
def test_a_contradiction_excludes_the_trial(path: str, value: Any, reason: str) -> None:
    record = edited(path, value)
    assert reason in contradiction(record)
    assert any("contradictory" in one for one in evaluate(record).reasons)


def test_an_emulated_trial_may_leave_more_out() -> None:
    assert not contradiction(edited("workload/end/seconds", 8.9, emulated=True, response={}))


def lasting(seconds: float, **changes: Any) -> dict[str, Any]:
    """Return a record of a trial of this length."""
    measured = {"start_wall_seconds": 0.0, "start_monotonic_seconds": START, "seconds": seconds}
    return plain_record(measured=measured, response={}, phases=[], **changes)


@pytest.mark.parametrize(
    ("seconds", "lost", "emulated", "is_caught"),
    [
        (0.5, 0.4, False, True),
        (0.5, 0.14, False, False),
        (100.0, 1.6, False, True),
        (100.0, 1.4, False, False),
        (1.0, 0.7, True, True),
        (1.0, 0.5, True, False),
        (100.0, 1.6, True, True),
    ],
)
def test_the_bound_of_the_workloads_clock_grows_with_the_trial(
    seconds: float, lost: float, emulated: bool, is_caught: bool
) -> None:
    end = {"type": "end", "seconds": seconds - lost}
    record = lasting(seconds, emulated=emulated, outer_host=None, workload={"end": end})
    files = {**plain_record()["cache"], "file_bytes": 0}
    record["cache"] = files
    assert ("the workload reports" in contradiction(record_from_json(record))) == is_caught


@pytest.mark.parametrize(
    ("own", "checks", "is_caught"),
    [
        (SECONDS, None, False),
        (SECONDS / 2, SECONDS / 2, False),
        (SECONDS / 2, None, True),
        (SECONDS / 2, "long", True),
        (SECONDS, SECONDS, True),
    ],
)
def test_a_workload_states_the_time_of_its_checks(
    own: float, checks: object, is_caught: bool
) -> None:
    end = {"seconds": own, "check_seconds": checks}
    found = contradiction(record_from_json(plain_record(workload={"end": end})))
    assert ("the workload reports" in found) == is_caught


@pytest.mark.parametrize(
    ("seconds", "passed", "is_caught"),
    [(2.0, 2.8, True), (2.0, 2.4, False), (600.0, 630.0, True), (600.0, 602.0, False)],
)
def test_a_pause_of_the_guest_is_caught_in_proportion(
    seconds: float, passed: float, is_caught: bool
) -> None:
    outer = {"before": {"unix_seconds": 50.0}, "after": {"unix_seconds": 50.0 + passed}}
    record = record_from_json(lasting(seconds, workload={"end": {}}, outer_host=outer))
    found = contradiction(record)
    assert ("passed on the outer host" in found) == is_caught


@pytest.mark.parametrize(("missing", "word"), [(0.3, "quiet"), (0.9, "not_quiet")])
def test_a_short_trial_may_pause_less(missing: float, word: str) -> None:
    record = record_from_json(lasting(2.0, outer_host=None))
    samples = [row for row in rows() if not START + 0.5 < row["t"] < START + 0.4 + missing]
    assert judge_host_quiet(record, samples).verdict == word


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda row: {**row, "io": {}}, "rbytes of io.stat"),
        (lambda row: {**row, "disk": {**row["disk"], "sectors_read": 8}}, "sectors_read of the"),
        (lambda row: {**row, "t": START + 5.0}, "not in the order of time"),
        (lambda row: {**row, "wall": row["wall"] + 60}, "the wall clock moved by 60"),
    ],
)
def test_samples_that_lie_from_the_middle_on(change: Any, reason: str) -> None:
    samples = [row if row["t"] < START + 5 else change(row) for row in rows()]
    assert reason in contradiction(record_from_json(plain_record()), samples)


def test_a_read_ahead_may_end_before_the_counters_are_read_but_not_after_the_last_sample() -> None:
    record, samples = record_from_json(plain_record()), rows()
    within, last = [row for row in samples if row["t"] < START + SECONDS], samples[-1]
    late, final = (
        {**row, "t": START + SECONDS + after, "wall": last["wall"] + after}
        for row, after in ((within[-1], 0.03), (last, 0.04))
    )
    assert contradiction(record, [*within, late, final]) == ""
    assert "a sample 10.030 s" in contradiction(record, [*within, late])


def test_a_write_may_end_between_the_counters_and_go_but_not_before_the_first_sample() -> None:
    record = record_from_json(plain_record())
    samples = [row for row in rows() if row["t"] >= START]
    early, first = (
        {**samples[index], "t": START - before, "wall": samples[0]["wall"] - before}
        for index, before in ((1, 0.1), (0, 0.2))
    )
    assert contradiction(record, [first, early, *samples[1:]]) == ""
    assert "a sample -0.100 s" in contradiction(record, [early, *samples[1:]])


def test_samples_that_end_early() -> None:
    samples = [row for row in rows() if row["t"] < START + 5]
    assert "the samples end 5" in contradiction(record_from_json(plain_record()), samples)


def test_a_gap_is_a_machine_that_stood_still() -> None:
    record = record_from_json(plain_record())
    assert judge_host_quiet(record, rows()).verdict == "quiet"
    samples = [row for row in rows() if not START + 4 < row["t"] < START + 6]
    found = judge_host_quiet(record, samples)
    assert found.verdict == "not_quiet"
    assert "nothing was sampled for 2.0 s" in found.reason


def test_a_trace_that_is_lost_is_a_contradiction() -> None:
    record = record_from_json(plain_record())
    lost = ["the trace trials/t1.1/sampler.jsonl is missing"]
    found = evaluate(record, (), lost)
    assert found.consistency.verdict == "contradictory"
    assert found.reasons == (f"contradictory evidence: {lost[0]}.",)


def test_a_queue_setting_that_changes_meanwhile_is_a_contradiction() -> None:
    device = {**plain_record()["device"], "queue_settings": {"read_ahead_kb": "128"}}
    same = {**device, "queue_settings_after": {"read_ahead_kb": "128", "scheduler": "none"}}
    changed = {**device, "queue_settings_after": {"read_ahead_kb": "4096"}}
    assert contradiction(edited("device", same)) == ""
    found = contradiction(edited("device", changed))
    assert "read_ahead_kb of vdb was 128 before the measured part and 4096 at its end" in found
    disks = {"wal": {"device": {**changed, "name": "vdc"}, "cage": {}}}
    assert "of vdc" in contradiction(edited("disks", disks))


def cached(**end: int | None) -> dict[str, Any]:
    """Return a cold cache that a reader of the whole file fills."""
    names = ("resident_bytes", "charged_bytes", "read_bytes")
    none = {"reclaimed_bytes": 0, "host_reclaimed_bytes": 0}
    start, filled = ({**dict.fromkeys(names, n), **none} for n in (0, FILE_BYTES))
    moments = {"start": start, "go": dict(start), "end": {**filled, **end}}
    return {**moments, "came_bytes": FILE_BYTES, "charge_lag_bytes": LAG}


def reader(argv: tuple[str, ...] = (), **end: int | None) -> Record:
    workload = {"argv": list(argv), "end": {"distinct_bytes": FILE_BYTES, "checksum": 7}}
    return record_from_json(plain_record(cache=cached(**end), workload=workload, response={}))


def test_reads_past_the_cache_must_be_planned() -> None:
    assert not contradiction(reader())
    assert "past the page cache" in contradiction(reader(charged_bytes=0, resident_bytes=0))
    direct = reader(("--direct",), charged_bytes=0, resident_bytes=0)
    assert not contradiction(direct)


def reclaimed(own: int | None, by_host: int) -> str:
    """Return the contradiction of a reader whose pages are gone at the end."""
    found = {"reclaimed_bytes": own, "host_reclaimed_bytes": by_host}
    return contradiction(reader((), charged_bytes=0, resident_bytes=0, **found))


def test_reclaimed_pages_were_not_read_past_the_cache() -> None:
    """cgroup v1 counts no reclaim of a cgroup, so what the host reclaimed bounds it."""
    assert not reclaimed(FILE_BYTES, FILE_BYTES)
    assert not reclaimed(None, FILE_BYTES)
    assert "past the page cache" in reclaimed(None, FILE_BYTES // 2)
    assert "past the page cache" in reclaimed(0, FILE_BYTES), "other cgroups lost pages"


def test_damon_is_named_if_it_reclaims_idle_pages() -> None:
    machine = MachineEvidence(before={"idle_pageout_seconds": 60.0})
    found = contradiction(replace(reader(charged_bytes=0, resident_bytes=0), machine=machine))
    assert "again: DAMON reclaims pages that are not accessed for 60 s" in found


def test_pages_of_another_file() -> None:
    assert "does not belong to the trial's files" in contradiction(reader(resident_bytes=0))


def test_files_that_the_trial_read_before_go_were_not_cold() -> None:
    assert judge_cache_state(reader()).verdict == "reached"
    data = plain_record(cache=cached())
    data["cache"]["go"]["resident_bytes"] = FILE_BYTES
    data["cache"]["go"]["read_bytes"] = data["cache"]["go"]["charged_bytes"] = FILE_BYTES
    found = judge_cache_state(record_from_json(data))
    assert found.verdict == "not_reached"
    assert "before `go`" in found.reason
    asked = {**data, "load": {"warm_up": {"seconds": 1.0, "runs": 1}}}
    assert judge_cache_state(record_from_json(asked)).verdict == "reached"
    for argv in (["pcburst", "--page-cache", "clean"], ["pcread", "--advice", "populate-read"]):
        filled = {**data["workload"], "program": argv[0], "argv": argv}
        found = judge_cache_state(record_from_json({**data, "workload": filled}))
        assert found.verdict == "reached", argv


@pytest.mark.parametrize("moment", ["sampled", "at the end"])
def test_a_limit_that_was_raised_meanwhile_is_leaky(moment: str) -> None:
    data = plain_record()
    samples = rows()
    if moment == "sampled":
        samples[50]["limits"] = {"io.max.rbps": "max"}
        samples[60]["limits"] = {"io.max.rbps": "20000000"}
    else:
        data["cage"]["read_back_after"] = {"io.max.rbps": "max"}
    record = record_from_json(data)
    limit = {one.property: one for one in evaluate(record, samples).limits}["IOReadBandwidthMax"]
    assert limit.verdict == "leaky"
    assert "io.max.rbps = max instead of 20000000" in limit.reason
    assert {one.verdict for one in judge_limits(record)} == {"enforced"}


def test_burst_credits_may_rewrite_a_cap() -> None:
    data = plain_record()
    data["cage"]["read_back_after"] = {"io.max.rbps": "max"}
    bucket = {"kind": "bandwidth", "properties": ["IOReadBandwidthMax"], "base": 2e7, "rate": 3e7}
    changes = [{"t": START + 1, "IOReadBandwidthMax": 20_000_000.0}]
    buckets = [{**bucket, "capacity": 1e8, "credits_at_start": 1e8}]
    data["cage"]["credits"] = {"buckets": buckets, "changes": changes}
    assert "leaky" not in {one.verdict for one in evaluate(record_from_json(data)).limits}


def test_an_ancestor_that_got_tighter() -> None:
    data = plain_record()
    data["cage"]["ancestors_after"] = {"pagecage.slice": {"memory.max": "4194304"}}
    leaky = [one for one in evaluate(record_from_json(data)).limits if one.verdict == "leaky"]
    assert [one.property for one in leaky] == ["MemoryMax"]
    assert "the ancestor pagecage.slice got a limit of 4 MiB" in leaky[0].reason


def test_a_cap_that_did_not_hold_for_a_second() -> None:
    samples = rows()
    for row in samples:
        if row["t"] >= START + 5:  # 60 MB at once, and less before and after
            grown = 0.6 * (row["t"] - START) * MOVED / SECONDS
            late = 0 if row["t"] < START + 6 else 60_000_000
            row["io"] = {**row["io"], "rbytes": min(MOVED, grown + late)}
    limits = evaluate(record_from_json(plain_record()), samples).limits
    found = {one.property: one for one in limits}["IOReadBandwidthMax"]
    assert found.verdict == "leaky"
    assert "above the limit of 20 MB/s" in found.reason


@pytest.mark.parametrize(
    ("file", "ahead_kb", "word"),
    [
        ("blkio.throttle.io_service_bytes", "8192", "enforced"),
        ("blkio.throttle.io_service_bytes", "128", "leaky"),
        ("io.stat", "8192", "leaky"),
    ],
)
def test_read_ahead_that_version_1_counts_before_it_is_let_go(
    file: str, ahead_kb: str, word: str
) -> None:
    samples, data = rows(), plain_record()
    for row in samples:  # 25 MB are counted at once
        grown = 0.8 * max(0.0, row["t"] - START) * MOVED / SECONDS
        queued = 25_000_000 * (row["t"] >= START + 5)
        row["io"] = {**row["io"], "rbytes": min(MOVED, grown + queued)}
    data["cage"]["counter_files"] = {"io.stat": [file]}
    data["device"]["queue_settings"] = {"read_ahead_kb": ahead_kb}
    limits = evaluate(record_from_json(data), samples).limits
    assert {one.property: one for one in limits}["IOReadBandwidthMax"].verdict == word


def test_a_server_that_did_nothing_served_no_load() -> None:
    data = plain_record(response={}, workload={"program": "server", "end": {}})
    data["load"] = {"metrics": {"tps": 1000.0}, "user_seconds": 0.0, "system_seconds": 0.0}
    assert not contradiction(record_from_json(data))
    data["counters"]["after"]["cgroup"] = data["counters"]["before"]["cgroup"]
    assert "the server used only 0.0 ms" in contradiction(record_from_json(data))


def test_a_neighbour_on_the_cpus_of_many_threads() -> None:
    data = plain_record()
    after = data["counters"]["after"]
    after["cgroup"]["cpu.stat"]["usage_usec"] = int(1.6 * SECONDS * 1e6)
    data["counters"]["before"]["host"]["stat"] = {"user": 0, "steal": 0, "idle": 0}
    for field in ("nice", "system", "irq", "softirq"):
        data["counters"]["before"]["host"]["stat"][field] = 0
    before = data["counters"]["before"]["host"]["stat"]
    after["host"]["stat"] = {**before, "user": 1700, "idle": 300}
    assert judge_host_quiet(record_from_json(data)).verdict == "quiet"
    after["host"]["stat"] = {**before, "user": 2000, "idle": 0}
    found = judge_host_quiet(record_from_json(data))
    assert found.verdict == "not_quiet"
    assert "other processes kept 0.40 CPUs busy" in found.reason
    data["counters"]["before"]["agent"] = {"cpu_usec": 0}
    after["agent"] = {"cpu_usec": int(0.3 * SECONDS * 1e6)}
    assert judge_host_quiet(record_from_json(data)).verdict == "quiet", "it was pagecage itself"
    after["agent"] = {"cpu_usec": int(0.1 * SECONDS * 1e6)}
    found = judge_host_quiet(record_from_json(data))
    assert found.verdict == "not_quiet"
    assert "other processes kept 0.30 CPUs busy, pagecage 0.10" in found.reason
    data["counters"]["before"]["host"]["kernel_threads_usec"] = 0
    after["host"]["kernel_threads_usec"] = int(0.1 * SECONDS * 1e6)
    found = judge_host_quiet(record_from_json(data))
    assert found.verdict == "quiet", "a loop device and reclaim work for the trial"
    assert "other processes kept 0.20 CPUs busy, pagecage 0.10" in found.reason
