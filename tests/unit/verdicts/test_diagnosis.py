"""Diagnoses of stored trials whose limit is known, as they are and with one thing changed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagecage.model.json_codec import Json, to_json
from pagecage.model.record import Record
from pagecage.model.record_sections import Row
from pagecage.verdicts.counters import Rows
from pagecage.verdicts.diagnosis import Diagnosis
from pagecage.verdicts.evaluate import evaluate, verdicts_to_json
from tests.builders.known import known
from tests.fixtures.records import after, caged, make_record, series, with_sections
from tests.fixtures.stored import NAMES, stored, with_caps

KNOWN = {
    "iops": ("iops", "IOReadIOPSMax"),
    "bandwidth": ("bandwidth", "IOReadBandwidthMax"),
    "cpu": ("cpu", None),
    "bandwidth-in-order": ("bandwidth", "IOReadBandwidthMax"),
    "iops-asynchronous": ("iops", "IOReadIOPSMax"),
    "memory": ("memory", None),
    "killed": ("memory", None),
    "device": ("device", None),
    "latency": ("none", None),
}


def diagnosis_of(record: Record, rows: Rows) -> Diagnosis:
    return evaluate(record, rows).diagnosis


def test_every_stored_trial_is_known() -> None:
    assert set(KNOWN) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_stored_trial_is_held_by_what_it_was_set_up_to_meet(name: str) -> None:
    found = diagnosis_of(*stored(name))
    assert (found.bound_by, found.property) == KNOWN[name]
    assert known(found.share) > 0.9


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "iops",
            "The 500 IOPS cap on reads was full for 100 % of the time with reads of 4 KiB (2.05"
            " MB/s of 20 MB/s). More IOPS or larger reads help. More bandwidth does not. Reading"
            " the files once, sequentially, would take about 6.71 s.",
        ),
        (
            "bandwidth",
            "The 20 MB/s cap on reads was full for 100 % of the time with reads of 92.3 KiB (210 of"
            " 500 I/Os per second). More bandwidth or reading less helps. More IOPS do not.",
        ),
        (
            "killed",
            "The OOM killer ended the program: it needs more memory than the MemoryMax of 12.8 MiB."
            " Only more memory helps.",
        ),
        (
            "latency",
            "No cap was full. The program waited for the disk 63 % of the time, 0.283 ms per read."
            " Several reads at once or a disk with lower latency help. Higher caps do not.",
        ),
    ],
)
def test_the_sentence_of_a_stored_trial(name: str, sentence: str) -> None:
    assert diagnosis_of(*stored(name)).sentence == sentence


def test_pages_read_again_for_want_of_memory() -> None:
    sentence = diagnosis_of(*stored("memory")).sentence
    assert sentence.startswith("The MemoryMax of 6.4 MiB held the program back for ")
    assert "86 % of the bytes read had been in memory before." in sentence
    assert "More memory helps." in sentence


def test_killed_though_the_measured_part_ended() -> None:
    record = make_record(outcome="oom_killed", counters=after(oom_kill=1))
    sentence = diagnosis_of(record, series()).sentence
    assert sentence.startswith("The OOM killer ended the program")


def test_computing_on_an_emulated_cpu_below_a_cap_mentions_the_emulation() -> None:
    sentence = diagnosis_of(*stored("cpu")).sentence
    assert "computed or waited for a CPU (0.99 CPUs busy), and no cap was full." in sentence
    assert "QEMU emulates the CPU here" in sentence


@pytest.mark.parametrize(
    ("cage", "rates", "sentence"),
    [
        (
            {},
            {"cpu": 0.99},
            "For 100 % of the time, the program computed or waited for a CPU (0.99 CPUs busy). A"
            " faster disk does not help.",
        ),
        (
            {"CPUQuota": 50},
            {"cpu": 0.5, "throttled": 0.5},
            "The CPUQuota of 50 % held the program back for 100 % of the time. More CPU helps. A"
            " faster disk does not.",
        ),
        (
            {},
            {"cpu": 0.5, "throttled": 0.5},
            "A CPU quota held the program back for 100 % of the time. More CPU helps. A faster disk"
            " does not.",
        ),
        (
            {},
            {
                "rbytes": 1e6,
                "rios": 100,
                "cpu": 0.2,
                "io_wait": 0.3,
                "memory_wait": 0.1,
                "busy": 0.3,
            },
            "No limit held the program back. It waited for the disk 30 % of the time and for memory"
            " 10 %, and kept 0.20 CPUs busy.",
        ),
        (
            {"MemoryMax": 13_418_496},
            {"rbytes": 1e6, "hits": 900, "memory_wait": 0.6, "cpu": 0.3},
            "The MemoryMax of 12.8 MiB held the program back for 100 % of the time. Reclaiming"
            " memory took 60 % of that time. More memory helps.",
        ),
    ],
)
def test_the_sentence_of_a_real_cpu(cage: Json, rates: dict[str, float], sentence: str) -> None:
    record = make_record(cage=caged(cage), emulated=False)
    assert diagnosis_of(record, series(**rates)).sentence == sentence


def test_a_busy_disk_without_caps() -> None:
    sentence = diagnosis_of(*stored("device")).sentence
    assert "of the time (266 MB/s, 2,0" in sentence
    assert "without any cap" in sentence
    assert "caps do not" not in sentence


@pytest.mark.parametrize(
    ("name", "caps", "prop", "says"),
    [
        (
            "device",
            {"IOReadIOPSMax": 100_000},
            None,
            "below every cap. A faster disk or fewer reads help. Higher caps do not.",
        ),
        (
            "bandwidth",
            {"IOReadBandwidthMax": 200_000_000, "IOReadIOPSMax": 215},
            "IOReadIOPSMax",
            "The 215 IOPS cap on reads was full for 100 % of the time with reads of 92.3 KiB",
        ),
        (
            "bandwidth",
            {"IOReadBandwidthMax": 200_000_000, "IOReadIOPSMax": 5000},
            None,
            "No cap was full",
        ),
        (
            "iops",
            {"IOReadBandwidthMax": 2_100_000, "IOReadIOPSMax": 1000},
            "IOReadBandwidthMax",
            "The 2.1 MB/s cap on reads was full for 100 % of the time with reads of 4 KiB (500 of",
        ),
        (
            "iops",
            {"IOReadBandwidthMax": 2_100_000},
            "IOReadIOPSMax",
            "More IOPS or larger reads help only with more bandwidth, which is full as well.",
        ),
        (
            "iops",
            {"IOReadIOPSMax": 650},
            "IOReadIOPSMax",
            "The 650 IOPS cap on reads held the program back for 100 % of the time. The program"
            " used 77 % of the cap with ",
        ),
        (
            "iops",
            {"MemoryMax": 67_108_864},
            "IOReadIOPSMax",
            "would take about 6.71 s, but they do not fit into 64 MiB of memory.",
        ),
    ],
)
def test_with_one_thing_changed_another_limit_binds(
    name: str, caps: dict[str, int], prop: str | None, says: str
) -> None:
    record, rows = stored(name)
    found = diagnosis_of(with_caps(record, **caps), rows)
    assert found.property == prop
    assert says in found.sentence


def test_nothing_is_known_of_a_part_that_did_not_end() -> None:
    found = diagnosis_of(make_record(measured=None, counters={}), [])
    assert (found.share, found.read, found.seconds) == (None, None, ())
    assert found.sentence == "The limit is not known, because the measured part did not end."


@pytest.mark.parametrize(
    ("name", "left_out", "word"),
    [("iops", "IOReadBandwidthMax", "bandwidth"), ("bandwidth", "IOReadIOPSMax", "IOPS")],
)
def test_a_cap_that_is_not_requested_is_not_mentioned(name: str, left_out: str, word: str) -> None:
    record, rows = stored(name)
    assert word not in diagnosis_of(with_caps(record, **{left_out: None}), rows).sentence


def test_without_its_memory_limit_the_same_refaults_name_something_else() -> None:
    record, rows = stored("memory")
    assert diagnosis_of(with_caps(record, MemoryMax=None), rows).bound_by != "memory"


def test_a_cap_that_is_full_of_what_had_to_leave_memory() -> None:
    record, rows = stored("memory")
    capped = with_caps(record, IOReadIOPSMax=668)
    found = diagnosis_of(capped, rows)
    assert found.property == "IOReadIOPSMax"
    again = "86 % of the bytes read had been in memory before. More memory helps as well."
    assert again in found.sentence
    unlimited = diagnosis_of(with_caps(capped, MemoryMax=None), rows)
    assert "in memory before" not in unlimited.sentence, "no limit made it leave"
    assert "in memory before" not in diagnosis_of(*stored("bandwidth-in-order")).sentence


def test_bytes_that_the_program_did_not_request() -> None:
    record = make_record()
    sentence = diagnosis_of(record, series(rbytes=19e6, rios=150, io_wait=0.6)).sentence
    assert "The disk delivered 31.7 bytes for each byte that the program requested." in sentence


def _writes(rows: Rows) -> Rows:
    """Return the series with writes in place of reads."""
    swap = {"rbytes": "wbytes", "rios": "wios", "wbytes": "rbytes", "wios": "rios"}
    return [{**row, "io": {swap[key]: value for key, value in row["io"].items()}} for row in rows]


def test_writes_are_distinguished_from_reads() -> None:
    record, rows = stored("iops")
    record = with_caps(record, IOReadIOPSMax=None, IOReadBandwidthMax=None)
    found = diagnosis_of(record, _writes(rows))
    assert found.property == "IOWriteIOPSMax"
    full = "The 500 IOPS cap on writes was full for 100 % of the time with writes of 4 KiB"
    assert f"{full} (2.05 MB/s of 20 MB/s)." in found.sentence
    assert "sequentially" not in found.sentence
    assert known(found.read).bytes == 0
    assert known(found.write).ios_per_second == pytest.approx(500, rel=0.01)


def test_a_bandwidth_cap_on_writes() -> None:
    record, rows = stored("bandwidth")
    found = diagnosis_of(record, _writes(rows))
    assert found.property == "IOWriteBandwidthMax"
    assert "More bandwidth or writing less helps." in found.sentence


def test_a_second_limit_is_named() -> None:
    record, rows = stored("iops")
    start = known(record.measured).start_monotonic_seconds
    rows = [row if row["t"] < start + 28 else _idle(row, rows, start + 28) for row in rows]
    sentence = diagnosis_of(record, rows).sentence
    assert sentence.startswith("The 500 IOPS cap on reads was full for 70 % of the time")
    assert "Computing took another 30 % of the time." in sentence


def _idle(row: Row, rows: Rows, moment: float) -> Json:
    """Return the row as if the disk were idle and the CPU busy since `moment`."""
    last = next(one for one in rows if one["t"] >= moment)
    since = max(0.0, row["t"] - last["t"])
    cpu = {**last["cpu"], "usage_usec": last["cpu"]["usage_usec"] + since * 1e6}
    return {**row, "io": last["io"], "disk": last["disk"], "pressure": last["pressure"], "cpu": cpu}


def test_sequential_reading_by_small_windows_needs_iops_too() -> None:
    record, rows = stored("iops")
    record = with_sections(record, device={"queue_settings": {"read_ahead_kb": "16"}})
    assert diagnosis_of(record, rows).sequential_seconds == pytest.approx(134217728 / 16384 / 500)


def test_every_second_is_reported() -> None:
    found = diagnosis_of(*stored("iops"))
    assert len(found.seconds) == 40
    assert {(one.bound_by, one.property) for one in found.seconds} == {("iops", "IOReadIOPSMax")}
    assert sum(one.read.ios for one in found.seconds) == pytest.approx(20_000, rel=0.02)
    assert [int(one.start_seconds) for one in found.seconds] == list(range(40))


@settings(deadline=None, max_examples=60)
@given(
    rbytes=st.floats(0, 20e6),
    rios=st.floats(0, 500),
    io_wait=st.floats(0, 1),
    cpu=st.floats(0, 1),
    refaults=st.floats(0, 5000),
    hits=st.floats(0, 100),
    busy=st.floats(0, 1),
    throttled=st.floats(0, 1),
)
def test_there_is_always_a_sentence_and_it_is_plain_data(**rates: float) -> None:
    verdicts = evaluate(make_record(), series(2, **rates))
    assert verdicts.diagnosis.sentence.endswith(".")
    assert verdicts_to_json(verdicts)["diagnosis"]["bound_by"] == verdicts.binding_limit.verdict
    assert sum(one.seconds for one in verdicts.diagnosis.seconds) <= 10.0


def test_credits_that_ran_out_are_reported() -> None:
    record, rows = stored("iops")
    start = known(record.measured).start_monotonic_seconds
    changes = [{"t": start - 1, "IOReadIOPSMax": 1000}, {"t": start + 12.5, "IOReadIOPSMax": 500}]
    section = {"buckets": [], "changes": changes, "error": None}
    record = with_sections(record, cage={"credits": section})
    found = diagnosis_of(record, rows)
    assert "Burst credits ran out after 12.5 s. Then only the base rate was left." in found.sentence
    assert found.seconds[5].read.iops_cap == 1000
    assert found.seconds[20].read.iops_cap == 500
    assert known(found.read).iops_cap == pytest.approx(500 * (1 + 12.5 / 40), rel=0.02)


def _mixed(record: Record, writes: int, **cage: Any) -> Record:
    """Return the record with this many writes beside its 20,000 reads, under a shared limit."""
    counters = to_json(record.counters)
    counters["after"]["cgroup"]["io.stat"][record.device.maj_min]["wios"] += writes
    accounting = {"io_size_bytes": None, "combined": True}
    return with_sections(record, counters=counters, cage={"accounting": accounting, **cage})


def _split(**bucket: float) -> Json:
    properties = ["IOReadIOPSMax", "IOWriteIOPSMax"]
    whole = {"kind": "iops", "properties": properties, "base": 500, "rate": 500}
    shared = {**whole, "capacity": 0, "credits_at_start": 0, **bucket}
    return {"credits": {"buckets": [shared], "changes": []}}


PAST = (
    "Reads and writes together used 1.60 times the limit of 500 IOPS that they share at the"
    " provider."
)
FILLED = "Reads and writes shared the limit of 500 IOPS and together used all of it."
LITTLE = {"rate": 1000, "capacity": 2000, "credits_at_start": 2000}


@pytest.mark.parametrize(
    ("writes", "cage", "says"),
    [
        (12_000, {}, PAST),
        (12_000, _split(), PAST),
        (0, {}, None),
        (12_000, {"accounting": None}, None),
        (100, _split(), FILLED),
        (100, _split(base=800, rate=800), None),
        (12_000, _split(**LITTLE), "used 1.50 times the limit of 500 IOPS"),
    ],
)
def test_the_use_of_a_shared_limit_is_reported(writes: int, cage: Json, says: str | None) -> None:
    record, rows = stored("iops")
    record = _mixed(with_caps(record, IOWriteIOPSMax=500), writes, **cage)
    sentence = diagnosis_of(record, rows).sentence
    assert says in sentence if says else "Reads and writes" not in sentence


def test_a_cap_reduced_by_the_other_direction_is_reported_with_its_base() -> None:
    record, rows = stored("iops")
    start = known(record.measured).start_monotonic_seconds
    reduced = {**_split()["credits"], "changes": [{"t": start - 1, "IOReadIOPSMax": 510}]}
    record = with_caps(record, IOReadIOPSMax=640, IOWriteIOPSMax=640)
    section = {"credits": reduced, "requested": {"IOReadIOPSMax": 640}}
    record = with_sections(record, cage=section)
    shared = "on average 510 IOPS because reads and writes share it"
    says = f"The 640 IOPS cap on reads ({shared}) was full"
    assert says in diagnosis_of(record, rows).sentence


def test_credits_gone_before_the_trial_are_reported() -> None:
    record, rows = stored("iops")
    burst = {"start": "drained", "iops": {"rate": 3000, "credits": 1000}, "bandwidth": None}
    sentence = diagnosis_of(with_sections(record, cage={"burst": burst}), rows).sentence
    assert "The trial began without burst credits." in sentence
    assert "ran out" not in sentence


def test_requests_merged_after_counting_are_reported() -> None:
    record, rows = stored("iops")
    counters = to_json(record.counters)
    for name, count in (("reads", 10_000), ("sectors_read", 160_000)):
        counters["after"]["device"][name] = counters["before"]["device"][name] + count
    sentence = diagnosis_of(with_sections(record, counters=counters), rows).sentence
    assert "the disk received one request of 8 KiB for 2.00 I/Os" in sentence
    assert "request" not in diagnosis_of(record, rows).sentence


@pytest.mark.parametrize(("writes", "is_leaky"), [(2_000, True), (100, False)])
def test_exceeding_a_divided_limit_is_a_leak(writes: int, is_leaky: bool) -> None:
    record, rows = stored("iops")
    record = with_caps(record, IOReadIOPSMax=500, IOWriteIOPSMax=500)
    limits = evaluate(_mixed(record, writes, **_split()), rows).limits
    [read] = [limit for limit in limits if limit.property == "IOReadIOPSMax"]
    told = "share the limit of 500 I/Os per second and used 44 s of it in 40 s"
    assert (told in read.reason) is is_leaky
    assert (read.verdict == "leaky") is is_leaky
