"""What a diagnosis adds about the provider's ways: credits, limits that reads and writes share, merging."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pagecage.verdicts.evaluate import judge
from tests.fixtures.stored import stored, with_caps


def told(record, rows):
    return judge(record, rows).diagnosis


def test_credits_that_ran_out_are_told():
    record, rows = stored("iops")
    start = record.measured["start_monotonic_seconds"]
    changes = [{"t": start - 1, "IOReadIOPSMax": 1000}, {"t": start + 12.5, "IOReadIOPSMax": 500}]
    record = replace(record, cage={**record.cage, "credits": {"buckets": [], "changes": changes, "error": None}})
    found = told(record, rows)
    assert "Its burst credits ran out after 12.5 s; only the base was left then." in found.sentence
    assert found.seconds[5].read.iops_cap == 1000
    assert found.seconds[20].read.iops_cap == 500
    assert found.read.iops_cap == pytest.approx(500 * (1 + 12.5 / 40), rel=0.02)


def _mixed(record, writes, **cage):
    """The record as if besides its 20,000 reads it had written so often, under limits that both ways share."""
    counters = json.loads(json.dumps(record.counters))
    counters["after"]["cgroup"]["io.stat"][record.device["maj_min"]]["wios"] += writes
    accounting = {"io_size_bytes": None, "combined": True}
    return replace(record, counters=counters, cage={**record.cage, "accounting": accounting, **cage})


def _split(**bucket):
    whole = {"kind": "iops", "properties": ["IOReadIOPSMax", "IOWriteIOPSMax"], "base": 500, "rate": 500}
    return {"credits": {"buckets": [{**whole, "capacity": 0, "credits_at_start": 0, **bucket}], "changes": []}}


def test_reads_and_writes_past_a_limit_that_they_share_are_told():
    record, rows = stored("iops")
    record = with_caps(record, IOWriteIOPSMax=500)
    past = "Reads and writes together came to 1.60 of the 500 IOPS that they share at the provider."
    assert past in told(_mixed(record, 12_000), rows).sentence
    assert past in told(_mixed(record, 12_000, **_split()), rows).sentence
    assert "together" not in told(_mixed(record, 0), rows).sentence
    assert "together" not in told(_mixed(record, 12_000, accounting=None), rows).sentence


def test_reads_and_writes_that_filled_a_limit_between_them_are_told():
    record, rows = stored("iops")
    record = with_caps(record, IOWriteIOPSMax=500)
    filled = "Reads and writes shared the 500 IOPS, which both together filled."
    assert filled in told(_mixed(record, 100, **_split()), rows).sentence
    assert "Reads and writes" not in told(_mixed(record, 100, **_split(base=800, rate=800)), rows).sentence
    assert "came to 1.50 of the 500 IOPS" in told(_mixed(record, 12_000, **_split(**_LITTLE)), rows).sentence


_LITTLE = {"rate": 1000, "capacity": 2000, "credits_at_start": 2000}


def test_a_cap_that_the_other_direction_lessened_is_told_with_its_base():
    record, rows = stored("iops")
    start = record.measured["start_monotonic_seconds"]
    lessened = {**_split()["credits"], "changes": [{"t": start - 1, "IOReadIOPSMax": 510}]}
    record = replace(with_caps(record, IOReadIOPSMax=640, IOWriteIOPSMax=640), cage={**record.cage, "credits": lessened,
                     "requested": {"IOReadIOPSMax": 640}})  # fmt: skip
    assert "the 640 IOPS cap on reads (510 IOPS beside the other direction) was full" in told(record, rows).sentence


def test_credits_that_were_gone_before_it_began_are_told():
    record, rows = stored("iops")
    burst = {"start": "drained", "iops": {"rate": 3000, "credits": 1000}, "bandwidth": None}
    sentence = told(replace(record, cage={**record.cage, "burst": burst}), rows).sentence
    assert "Its burst credits were gone before it began" in sentence
    assert "ran out" not in sentence


def test_requests_that_were_merged_after_they_were_counted_are_told():
    record, rows = stored("iops")
    counters = json.loads(json.dumps(record.counters))
    counters["after"]["device"]["reads"] = counters["before"]["device"]["reads"] + 10_000
    counters["after"]["device"]["sectors_read"] = counters["before"]["device"]["sectors_read"] + 160_000
    sentence = told(replace(record, counters=counters), rows).sentence
    assert "the disk got 8 KiB a request (2.00 to one)" in sentence
    assert "a request" not in told(record, rows).sentence


def test_more_of_a_divided_limit_than_there_was_is_a_leak():
    record, rows = stored("iops")
    record = with_caps(record, IOReadIOPSMax=500, IOWriteIOPSMax=500)
    limits = {one.property: one for one in judge(_mixed(record, 2_000, **_split()), rows).limits}
    assert limits["IOReadIOPSMax"].verdict == "leaky"
    assert "share the limit of 500 I/Os a second and took 44 s of it in 40 s" in limits["IOReadIOPSMax"].reason
    within = {one.property: one.reason for one in judge(_mixed(record, 100, **_split()), rows).limits}
    assert "share" not in within["IOReadIOPSMax"]
