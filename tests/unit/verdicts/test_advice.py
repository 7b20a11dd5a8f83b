"""Remarks of a diagnosis on burst credits, shared limits and merged requests."""

from __future__ import annotations

import pytest

from pagecage.model.json_codec import to_json
from pagecage.verdicts.evaluate import evaluate
from tests.fixtures.records import with_sections
from tests.fixtures.stored import stored, with_caps


def diagnosis_of(record, rows):
    return evaluate(record, rows).diagnosis


def test_credits_that_ran_out_are_reported():
    record, rows = stored("iops")
    start = record.measured.start_monotonic_seconds
    changes = [{"t": start - 1, "IOReadIOPSMax": 1000}, {"t": start + 12.5, "IOReadIOPSMax": 500}]
    record = with_sections(
        record, cage={"credits": {"buckets": [], "changes": changes, "error": None}}
    )
    found = diagnosis_of(record, rows)
    assert "Burst credits ran out after 12.5 s. Then only the base rate was left." in found.sentence
    assert found.seconds[5].read.iops_cap == 1000
    assert found.seconds[20].read.iops_cap == 500
    assert found.read.iops_cap == pytest.approx(500 * (1 + 12.5 / 40), rel=0.02)


def _mixed(record, writes, **cage):
    """Return the record with this many writes beside its 20,000 reads, under a shared limit."""
    counters = to_json(record.counters)
    counters["after"]["cgroup"]["io.stat"][record.device.maj_min]["wios"] += writes
    accounting = {"io_size_bytes": None, "combined": True}
    return with_sections(record, counters=counters, cage={"accounting": accounting, **cage})


def _split(**bucket):
    whole = {
        "kind": "iops",
        "properties": ["IOReadIOPSMax", "IOWriteIOPSMax"],
        "base": 500,
        "rate": 500,
    }
    return {
        "credits": {
            "buckets": [{**whole, "capacity": 0, "credits_at_start": 0, **bucket}],
            "changes": [],
        }
    }


def test_reads_and_writes_above_a_shared_limit_are_reported():
    record, rows = stored("iops")
    record = with_caps(record, IOWriteIOPSMax=500)
    past = (
        "Reads and writes together used 1.60 times the limit of 500 IOPS that they share at the"
        " provider."
    )
    assert past in diagnosis_of(_mixed(record, 12_000), rows).sentence
    assert past in diagnosis_of(_mixed(record, 12_000, **_split()), rows).sentence
    assert "together" not in diagnosis_of(_mixed(record, 0), rows).sentence
    assert "together" not in diagnosis_of(_mixed(record, 12_000, accounting=None), rows).sentence


def test_reads_and_writes_that_together_fill_a_limit_are_reported():
    record, rows = stored("iops")
    record = with_caps(record, IOWriteIOPSMax=500)
    filled = "Reads and writes shared the limit of 500 IOPS and together used all of it."
    assert filled in diagnosis_of(_mixed(record, 100, **_split()), rows).sentence
    assert (
        "Reads and writes"
        not in diagnosis_of(_mixed(record, 100, **_split(base=800, rate=800)), rows).sentence
    )
    assert (
        "used 1.50 times the limit of 500 IOPS"
        in diagnosis_of(_mixed(record, 12_000, **_split(**_LITTLE)), rows).sentence
    )


_LITTLE = {"rate": 1000, "capacity": 2000, "credits_at_start": 2000}


def test_a_cap_reduced_by_the_other_direction_is_reported_with_its_base():
    record, rows = stored("iops")
    start = record.measured.start_monotonic_seconds
    reduced = {**_split()["credits"], "changes": [{"t": start - 1, "IOReadIOPSMax": 510}]}
    record = with_sections(
        with_caps(record, IOReadIOPSMax=640, IOWriteIOPSMax=640),
        cage={"credits": reduced, "requested": {"IOReadIOPSMax": 640}},
    )
    assert (
        "The 640 IOPS cap on reads (on average 510 IOPS because reads and writes share it) was full"
        in diagnosis_of(record, rows).sentence
    )


def test_credits_gone_before_the_trial_are_reported():
    record, rows = stored("iops")
    burst = {"start": "drained", "iops": {"rate": 3000, "credits": 1000}, "bandwidth": None}
    sentence = diagnosis_of(with_sections(record, cage={"burst": burst}), rows).sentence
    assert "The trial began without burst credits." in sentence
    assert "ran out" not in sentence


def test_requests_merged_after_counting_are_reported():
    record, rows = stored("iops")
    counters = to_json(record.counters)
    counters["after"]["device"]["reads"] = counters["before"]["device"]["reads"] + 10_000
    counters["after"]["device"]["sectors_read"] = (
        counters["before"]["device"]["sectors_read"] + 160_000
    )
    sentence = diagnosis_of(with_sections(record, counters=counters), rows).sentence
    assert "the disk received one request of 8 KiB for 2.00 I/Os" in sentence
    assert "request" not in diagnosis_of(record, rows).sentence


def test_exceeding_a_divided_limit_is_a_leak():
    record, rows = stored("iops")
    record = with_caps(record, IOReadIOPSMax=500, IOWriteIOPSMax=500)
    limits = {
        limit.property: limit for limit in evaluate(_mixed(record, 2_000, **_split()), rows).limits
    }
    assert limits["IOReadIOPSMax"].verdict == "leaky"
    assert (
        "share the limit of 500 I/Os per second and used 44 s of it in 40 s"
        in limits["IOReadIOPSMax"].reason
    )
    within = {
        limit.property: limit.reason
        for limit in evaluate(_mixed(record, 100, **_split()), rows).limits
    }
    assert "share" not in within["IOReadIOPSMax"]
