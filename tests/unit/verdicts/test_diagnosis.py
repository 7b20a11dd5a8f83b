"""What held a trial back, in a sentence: from stored trials whose limit is known, and from what was changed in them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagecage.verdicts.evaluate import judge, verdicts_to_json
from tests.fixtures.records import after, caged, make_record, series
from tests.fixtures.stored import NAMES, stored, with_caps

KNOWN = {
    "iops": ("iops", "IOReadIOPSMax"), "bandwidth": ("bandwidth", "IOReadBandwidthMax"), "cpu": ("cpu", None),
    "bandwidth-in-order": ("bandwidth", "IOReadBandwidthMax"), "iops-asynchronous": ("iops", "IOReadIOPSMax"),
    "memory": ("memory", None), "killed": ("memory", None), "device": ("device", None), "latency": ("none", None),
}  # fmt: skip


def told(record, rows):
    return judge(record, rows).diagnosis


def test_every_stored_trial_is_known():
    assert set(KNOWN) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_stored_trial_is_held_by_what_it_was_set_up_to_meet(name):
    found = told(*stored(name))
    assert (found.bound_by, found.property) == KNOWN[name]
    assert found.share is not None
    assert found.share > 0.9


def test_single_pages_against_an_iops_cap():
    assert told(*stored("iops")).sentence == (
        "100 % of the time the 500 IOPS cap on reads was full with 4 KiB reads (2.05 MB/s of 20 MB/s): more IOPS or "
        "larger reads help, more bandwidth does not. Reading the files once sequentially would take about 6.71 s."
    )


def test_windows_against_a_bandwidth_cap():
    assert told(*stored("bandwidth")).sentence == (
        "100 % of the time the 20 MB/s cap on reads was full with 92.3 KiB reads (210 of 500 I/Os a second): more "
        "bandwidth or reading less helps, more IOPS do not."
    )


def test_pages_read_again_for_want_of_memory():
    sentence = told(*stored("memory")).sentence
    assert "MemoryMax of 6.4 MiB held it (86 % of the bytes read had been in memory before" in sentence
    assert "more memory helps" in sentence


def test_killed_for_memory():
    assert told(*stored("killed")).sentence == (
        "It was killed: it needs more memory than MemoryMax of 12.8 MiB. Only more memory helps."
    )


def test_killed_though_the_measured_part_ended():
    counters = after(oom_kill=1)
    assert told(make_record(outcome="oom_killed", counters=counters), series()).sentence.startswith("It was killed")


def test_computing_below_a_cap_that_nothing_reached_says_that_it_is_translated():
    sentence = told(*stored("cpu")).sentence
    assert "computed or waited for a CPU (0.99 CPUs busy) and no cap was full" in sentence
    assert "translated here" in sentence


def test_computing_on_a_real_cpu_without_caps():
    record = make_record(cage=caged({}), emulated=False)
    assert told(record, series(cpu=0.99)).sentence == (
        "100 % of the time it computed or waited for a CPU (0.99 CPUs busy): a faster disk does not help."
    )


def test_throttled_by_a_quota():
    record = make_record(cage=caged({"CPUQuota": 50}))
    assert told(record, series(cpu=0.5, throttled=0.5)).sentence == (
        "100 % of the time CPUQuota of 50 % held it: more CPU helps, a faster disk does not."
    )


def test_throttled_by_somebody_elses_quota():
    assert "a CPU quota held it" in told(make_record(cage=caged({})), series(cpu=0.5, throttled=0.5)).sentence


def test_a_busy_disk_without_caps():
    assert "the disk itself was busy without any cap (266 MB/s, 2,0" in told(*stored("device")).sentence


def test_a_busy_disk_below_its_caps():
    record, rows = stored("device")
    sentence = told(with_caps(record, IOReadIOPSMax=100_000), rows).sentence
    assert "busy below every cap" in sentence
    assert "a faster disk or fewer reads help, higher caps do not" in sentence


def test_one_read_after_the_other_is_held_by_the_time_of_each():
    assert told(*stored("latency")).sentence == (
        "No cap was full: 63 % of the time went into waiting for the disk, 0.283 ms a read. Several reads at once or "
        "a disk that answers sooner help, higher caps do not."
    )


def test_several_things_in_turn():
    record = make_record(cage=caged({}))
    sentence = told(record, series(rbytes=1e6, rios=100, cpu=0.2, io_wait=0.3, memory_wait=0.1, busy=0.3)).sentence
    assert sentence == "No limit held it: 30 % waiting for the disk, 10 % for memory, 0.20 CPUs busy."


def test_nothing_is_known_of_a_part_that_did_not_end():
    found = told(make_record(measured=None, counters={}), [])
    assert (found.share, found.read, found.seconds) == (None, None, ())
    assert found.sentence == "Not known: the measured part did not end."


# One thing changed in a trial that was really measured, and another limit binds.


def test_the_same_reads_under_a_lower_iops_cap_are_held_by_that():
    record, rows = stored("bandwidth")
    found = told(with_caps(record, IOReadBandwidthMax=200_000_000, IOReadIOPSMax=215), rows)
    assert found.property == "IOReadIOPSMax"
    assert found.sentence.startswith("100 % of the time the 215 IOPS cap on reads was full with 92.3 KiB reads")


def test_the_same_reads_under_higher_caps_are_held_by_neither():
    record, rows = stored("bandwidth")
    found = told(with_caps(record, IOReadBandwidthMax=200_000_000, IOReadIOPSMax=5000), rows)
    assert (found.bound_by, found.property) == ("none", None)
    assert "No cap was full" in found.sentence


def test_the_same_single_pages_under_a_lower_bandwidth_are_held_by_that():
    record, rows = stored("iops")
    found = told(with_caps(record, IOReadBandwidthMax=2_100_000, IOReadIOPSMax=1000), rows)
    assert found.sentence.startswith("100 % of the time the 2.1 MB/s cap on reads was full with 4 KiB reads (500 of")


def test_both_caps_full_at_once():
    record, rows = stored("iops")
    sentence = told(with_caps(record, IOReadBandwidthMax=2_100_000), rows).sentence
    assert "more IOPS or larger reads help only with more bandwidth, which is full too" in sentence


def test_without_the_other_cap_it_is_not_spoken_of():
    record, rows = stored("iops")
    assert "bandwidth" not in told(with_caps(record, IOReadBandwidthMax=None), rows).sentence
    record, rows = stored("bandwidth")
    assert "IOPS" not in told(with_caps(record, IOReadIOPSMax=None), rows).sentence


def test_a_cap_that_held_it_and_was_not_filled():
    record, rows = stored("iops")
    assert (
        "the 650 IOPS cap on reads held it (77 % of it used)"
        in told(with_caps(record, IOReadIOPSMax=650), rows).sentence
    )


def test_without_its_memory_limit_the_same_refaults_name_something_else():
    record, rows = stored("memory")
    assert told(with_caps(record, MemoryMax=None), rows).bound_by != "memory"


def test_a_cap_that_is_full_of_what_had_to_leave_memory():
    record, rows = stored("memory")
    capped = with_caps(record, IOReadIOPSMax=668)
    found = told(capped, rows)
    assert found.property == "IOReadIOPSMax"
    again = "86 % of the bytes read had been in memory before: more memory helps as well."
    assert again in found.sentence
    assert "in memory before" not in told(with_caps(capped, MemoryMax=None), rows).sentence, "no limit made it leave"
    assert "in memory before" not in told(*stored("bandwidth-in-order")).sentence


def test_an_unnamed_memory_limit_is_still_told():
    record = make_record(cage=caged({"MemoryMax": 13_418_496}))
    sentence = told(record, series(rbytes=1e6, hits=900, memory_wait=0.6, cpu=0.3)).sentence
    assert sentence == (
        "100 % of the time MemoryMax of 12.8 MiB held it (60 % of it went into reclaim): more memory helps."
    )


def test_bytes_that_nobody_asked_for():
    record = make_record()
    sentence = told(record, series(rbytes=19e6, rios=150, io_wait=0.6)).sentence
    assert "The disk delivered 31.7 bytes for each that was asked for" in sentence


def _writes(rows):
    """The same series as if every read had been a write."""
    swap = {"rbytes": "wbytes", "rios": "wios", "wbytes": "rbytes", "wios": "rios"}
    return [{**row, "io": {swap[key]: value for key, value in row["io"].items()}} for row in rows]


def test_writes_are_told_apart_from_reads():
    record, rows = stored("iops")
    record = with_caps(record, IOReadIOPSMax=None, IOReadBandwidthMax=None)
    found = told(record, _writes(rows))
    assert found.property == "IOWriteIOPSMax"
    assert "the 500 IOPS cap on writes was full with 4 KiB writes (2.05 MB/s of 20 MB/s)" in found.sentence
    assert "sequentially" not in found.sentence
    assert (found.read.bytes, found.write.ios_per_second) == (0, pytest.approx(500, rel=0.01))


def test_a_bandwidth_cap_on_writes():
    record, rows = stored("bandwidth")
    found = told(record, _writes(rows))
    assert found.property == "IOWriteBandwidthMax"
    assert "more bandwidth or writing less helps" in found.sentence


def test_a_second_limit_is_named():
    record, rows = stored("iops")
    start = record.measured["start_monotonic_seconds"]
    rows = [row if row["t"] < start + 28 else _idle(row, rows, start + 28) for row in rows]
    sentence = told(record, rows).sentence
    assert sentence.startswith("70 % of the time the 500 IOPS cap")
    assert "of the time went to computing" in sentence


def _idle(row, rows, moment):
    """A row whose disk stands still since `moment` and whose CPU does nothing else but compute."""
    last = next(one for one in rows if one["t"] >= moment)
    since = max(0.0, row["t"] - last["t"])
    cpu = {**last["cpu"], "usage_usec": last["cpu"]["usage_usec"] + since * 1e6}
    return {**row, "io": last["io"], "disk": last["disk"], "pressure": last["pressure"], "cpu": cpu}


def test_sequential_reading_that_memory_cannot_hold():
    record, rows = stored("iops")
    sentence = told(with_caps(record, MemoryMax=67_108_864), rows).sentence
    assert sentence.endswith("would take about 6.71 s, but 64 MiB of memory do not hold them.")


def test_sequential_reading_by_small_windows_needs_iops_too():
    record, rows = stored("iops")
    record = replace(record, device={**record.device, "queue_settings": {"read_ahead_kb": "16"}})
    assert told(record, rows).sequential_seconds == pytest.approx(134217728 / 16384 / 500)


def test_every_second_is_told():
    found = told(*stored("iops"))
    assert len(found.seconds) == 40
    assert {(one.bound_by, one.property) for one in found.seconds} == {("iops", "IOReadIOPSMax")}
    assert sum(one.read.ios for one in found.seconds) == pytest.approx(20_000, rel=0.02)
    assert [int(one.start_seconds) for one in found.seconds] == list(range(40))


@settings(deadline=None, max_examples=60)
@given(
    rbytes=st.floats(0, 20e6), rios=st.floats(0, 500), io_wait=st.floats(0, 1), cpu=st.floats(0, 1),
    refaults=st.floats(0, 5000), hits=st.floats(0, 100), busy=st.floats(0, 1), throttled=st.floats(0, 1),
)  # fmt: skip
def test_there_is_always_a_sentence_and_it_is_plain_data(**rates):
    verdicts = judge(make_record(), series(2, **rates))
    assert verdicts.diagnosis.sentence.endswith(".")
    assert verdicts_to_json(verdicts)["diagnosis"]["bound_by"] == verdicts.binding_limit.verdict
    assert sum(one.seconds for one in verdicts.diagnosis.seconds) <= 10.0
