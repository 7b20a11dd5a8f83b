"""Every verdict word, exclusion, cages with two disks, and servers under load."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagecage.model.json_codec import Json
from pagecage.model.record import OUTCOMES, Record
from pagecage.verdicts.cache_state import judge_cache_state
from pagecage.verdicts.evaluate import Verdicts, evaluate, verdicts_to_json
from pagecage.verdicts.io_demand import amplification, io_demand, time_floor
from pagecage.verdicts.quiet import judge_host_quiet
from tests.fixtures.records import (
    FILE_BYTES,
    SECONDS,
    after,
    caged,
    make_record,
    outer,
    plain_record,
    series,
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
def test_cache_state(requested: str, resident: int | None, word: str) -> None:
    record = make_record(cache={"requested": requested, "resident_bytes_before": resident})
    assert judge_cache_state(record).verdict == word


def test_a_resident_file_counts_whole_pages() -> None:
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
def test_a_quiet_host(changes: Json) -> None:
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
def test_each_kind_of_noise_is_found_and_named(figures: Json, what: str) -> None:
    found = judge_host_quiet(make_record(counters=after(**figures)))
    assert found.verdict == "not_quiet"
    assert what in found.reason
    assert "another cgroup wrote" not in found.reason, "these are reads"


@pytest.mark.parametrize(("foreign", "word"), [(900_000, "quiet"), (1_100_000, "not_quiet")])
def test_foreign_traffic_on_a_disk_that_the_trial_hardly_uses(foreign: int, word: str) -> None:
    counters = after(read_bytes=0, reads=0, foreign=foreign)
    assert judge_host_quiet(make_record(counters=counters)).verdict == word


@pytest.mark.parametrize(("flushes", "word"), [(0, "not_quiet"), (80, "not_quiet"), (800, "quiet")])
def test_writes_of_the_file_system_for_a_sync_are_not_foreign(flushes: int, word: str) -> None:
    counts = after()
    counts["before"]["device"]["flushes"] = 7
    counts["after"]["device"] |= {"flushes": 7 + flushes, "sectors_written": 12_000_000 // 512}
    assert judge_host_quiet(make_record(counters=counts)).verdict == word


def test_syncs_do_not_excuse_foreign_reads() -> None:
    counts = after(foreign=20_000_000)
    counts["before"]["device"]["flushes"] = 0
    counts["after"]["device"]["flushes"] = 10_000
    assert judge_host_quiet(make_record(counters=counts)).verdict == "not_quiet"


def test_a_busy_outer_host() -> None:
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
def test_what_was_not_counted_is_unknown(changes: Json) -> None:
    assert judge_host_quiet(make_record(**changes)).verdict == "unknown"


@settings(deadline=None)  # a busy machine is no failure
@given(
    ticks=st.integers(min_value=0, max_value=4), seconds=st.floats(min_value=0.001, max_value=0.19)
)
def test_a_few_ticks_in_a_short_part_are_never_called_noise(ticks: int, seconds: float) -> None:
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
def test_own_threads_and_a_quota_are_not_noise(cage: Json, figures: Json) -> None:
    record = make_record(cage=cage, counters=after(**figures))
    assert judge_host_quiet(record).verdict == "quiet"


def test_amplification_is_per_byte_asked_for_and_per_distinct_byte() -> None:
    workload = {"end": {"bytes": 2_000_000, "distinct_bytes": 500_000}}
    found = amplification(make_record(counters=after(read_bytes=4_000_000), workload=workload))
    assert (found.per_requested_byte, found.per_distinct_byte) == (2.0, 8.0)


@pytest.mark.parametrize("changes", [{"workload": {"end": {}}}, {"counters": {}}])
def test_amplification_is_unknown_without_a_closing_line(changes: Json) -> None:
    assert amplification(make_record(**changes)).verdict == "unknown"


@pytest.mark.parametrize(
    ("reads", "seconds", "cap"), [(1500, 5.0, "IOReadBandwidthMax"), (4000, 8.0, "IOReadIOPSMax")]
)
def test_the_time_floor_is_that_of_the_slower_cap(reads: int, seconds: float, cap: str) -> None:
    found = time_floor(make_record(counters=after(read_bytes=100_000_000, reads=reads)))
    assert found.floor_seconds == pytest.approx(seconds)
    assert found.closeness == pytest.approx(seconds / SECONDS)
    assert cap in found.reason


def test_there_is_no_time_floor_without_caps() -> None:
    assert time_floor(make_record(cage=caged({}))).verdict == "unknown"


@pytest.mark.parametrize(("emulated", "word"), [(True, "yes"), (False, "no"), (None, "unknown")])
def test_emulated(emulated: bool | None, word: str) -> None:
    assert evaluate(make_record(emulated=emulated)).emulated.verdict == word


def test_a_proven_trial_is_kept() -> None:
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
def test_only_these_three_exclude(change: Json, reason: str) -> None:
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
def test_doubt_alone_does_not_exclude(change: Json) -> None:
    assert not evaluate(make_record(**change)).excluded


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_which_outcomes_are_data_points(outcome: str) -> None:
    expected = outcome in ("ok", "oom_killed", "timed_out")
    assert evaluate(make_record(outcome=outcome)).is_data_point == expected


def test_an_empty_record_is_evaluated_without_an_error() -> None:
    sections = ("cage", "cache", "device", "workload", "counters", "response")
    bare: Json = {**{name: {} for name in sections}, "measured": None, "phases": []}
    for outcome in OUTCOMES:
        record = make_record(outcome=outcome, outer_host=None, **bare)
        json.dumps(verdicts_to_json(evaluate(record, [])))


DATA, LOG = {"IOReadIOPSMax": 200}, {"IOWriteIOPSMax": 50}
LOG_DISK = "254:32"


def driven(cap: int) -> dict[str, Any]:
    """Return a calibration that reached the cap."""
    return {"method": "fio", "seconds": 2.0, "allowed": cap * 1.05, "observed": cap, "held": True}


def record_of(reads: float, writes: float, foreign_bytes: int = 0, **cage: Any) -> Record:
    """Return a trial of ten seconds with these rates on the data's disk and on the log's."""
    counters = after(read_bytes=int(reads * SECONDS) * 4096, reads=int(reads * SECONDS))
    written = int(writes * SECONDS)
    moved = {"rbytes": 0, "rios": 0, "wbytes": written * 4096, "wios": written}
    for moment in ("after", "totals"):
        counters[moment]["cgroup"]["io.stat"][LOG_DISK] = moved
    device = {"reads": 0, "sectors_read": 0, "writes": written, "io_ticks": 1000, "flushes": 0}
    sectors = written * 8 + foreign_bytes // 512
    at_end = {**device, "sectors_written": sectors}
    for moment, counted in (("before", dict.fromkeys(at_end, 0)), ("after", at_end)):
        counters[moment]["disks"] = {"wal": {"device": counted, "lower_device": None}}
    log = caged(LOG, IOWriteIOPSMax=driven(50))
    log |= {"read_back": {"io.max.wiops": "50"}, "ancestors": {}} | cage
    disk = {"device": {"name": "vdc", "maj_min": LOG_DISK}, "cage": log}
    cage_of_data = caged(DATA, IOReadIOPSMax=driven(200))
    return make_record(counters=counters, cage=cage_of_data, disks={"wal": disk})


def rows_of(reads: float, writes: float) -> list[dict[str, Any]]:
    rows = series(rios=reads, rbytes=reads * 4096, io_wait=0.9, busy=0.1, cpu=0.1)
    start = rows[10]["t"]
    for row in rows:
        grown = max(0.0, row["t"] - start) * writes
        io = {"rbytes": 0, "rios": 0, "wbytes": grown * 4096, "wios": grown}
        row["disks"] = {"wal": {"io": io, "disk": {"io_ticks": 0, "reads": 0, "writes": grown}}}
    return rows


def judged(reads: float, writes: float) -> Verdicts:
    return evaluate(record_of(reads, writes), rows_of(reads, writes))


def test_every_limit_of_every_disk_has_a_verdict() -> None:
    found = {(one.disk, one.property): one.verdict for one in judged(100, 49).limits}
    assert found == {(None, "IOReadIOPSMax"): "enforced", ("wal", "IOWriteIOPSMax"): "enforced"}


def test_a_leak_on_the_second_disk_excludes_the_trial() -> None:
    found = judged(100, 90)
    assert found.excluded
    [reason] = [one for one in found.reasons if "leaky" in one]
    assert reason.startswith("IOWriteIOPSMax of wal leaky: The trial reached 90 I/Os per second")


def test_a_wrong_read_back_on_the_second_disk() -> None:
    record = record_of(100, 49, read_back={"io.max.wiops": "max"})
    [leaky] = [one for one in evaluate(record).limits if one.verdict == "leaky"]
    assert (leaky.disk, leaky.property) == ("wal", "IOWriteIOPSMax")


@pytest.mark.parametrize(
    ("reads", "writes", "disk", "cap"), [(80, 50, "wal", "50"), (200, 10, "data", "200")]
)
def test_the_diagnosis_names_the_disk_whose_cap_was_full(
    reads: float, writes: float, disk: str, cap: str
) -> None:
    found = judged(reads, writes)
    assert (found.binding_limit.verdict, found.diagnosis.disk) == ("iops", disk)
    where = "writes to" if disk == "wal" else "reads from"
    says = f"The {cap} IOPS cap on {where} the {disk} disk was full for 100 % of the time"
    assert found.diagnosis.sentence.startswith(says)
    assert "as well" not in found.diagnosis.sentence


def test_two_caps_that_are_full_at_once_are_both_named() -> None:
    found = judged(200, 50)
    assert found.binding_limit.shares == {"iops": 1.0}
    assert found.binding_limit.caps == {"IOReadIOPSMax": 1.0, "wal.IOWriteIOPSMax": 1.0}
    assert "200 IOPS cap on reads from the data disk was full" in found.diagnosis.sentence
    assert "50 IOPS cap on writes to the wal disk was full" in found.diagnosis.sentence
    assert "for 100 % as well." in found.diagnosis.sentence


def test_the_counters_alone_name_the_disk_too() -> None:
    """Without a series there is one window over the whole part."""
    assert evaluate(record_of(20, 50)).diagnosis.disk == "wal"


def test_keys_about_disks_only_where_there_are_several() -> None:
    data = verdicts_to_json(judged(200, 10))
    assert data["diagnosis"]["disk"] == "data"
    assert data["diagnosis"]["others"]["wal"]["write"]["iops_cap"] == 50
    assert [limit.get("disk") for limit in data["limits"]] == [None, "wal"]
    alone = verdicts_to_json(evaluate(make_record(), rows_of(200, 10)))
    tables = [*alone["limits"], alone["diagnosis"], *alone["diagnosis"]["seconds"]]
    assert not any({"disk", "others"} & set(table) for table in tables)


def test_a_series_without_the_disk_is_no_series() -> None:
    rows = [{key: row[key] for key in row if key != "disks"} for row in rows_of(20, 50)]
    found = evaluate(record_of(20, 50), rows)
    assert (found.diagnosis.disk, len(found.diagnosis.seconds)) == ("wal", 1)


def test_the_floor_is_that_of_the_slower_disk() -> None:
    found = judged(100, 50).floor
    assert found.floor_seconds == pytest.approx(SECONDS)
    assert found.reason.startswith("On the disk wal, IOWriteIOPSMax allows this I/O in")


def test_another_process_on_the_second_disk_is_seen() -> None:
    quiet, noisy = record_of(100, 49), record_of(100, 49, foreign_bytes=100_000_000)
    assert evaluate(quiet).host_quiet.verdict == "quiet"
    found = evaluate(noisy).host_quiet
    assert found.verdict == "not_quiet"
    assert "moved 95.4 MiB on the disk wal" in found.reason
    assert "files that another cgroup wrote before" in found.reason, "these are writes"


def test_nothing_is_predicted_from_several_disks() -> None:
    found = io_demand(record_of(100, 49), rows_of(100, 49))
    assert found == "the cage has several disks, and a prediction knows only one"


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
