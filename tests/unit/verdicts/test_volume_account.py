"""Verdicts on trials whose disk was a simulated volume: its account is the witness."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.model.cage import (
    BurstCredits,
    Cage,
    CreditBucket,
    IoAccounting,
    LatencyQuantiles,
    VolumeSimulation,
)
from pagecage.model.record import Record
from pagecage.verdicts.evaluate import evaluate
from pagecage.verdicts.limits import cap_changes, judge_limits
from pagecage.verdicts.verdict import BindingVerdict, LimitVerdict
from pagecage.verdicts.volume_account import judge_witnesses, late_volumes, volume_account
from pagecage.verdicts.windows import judge_binding_limit
from tests.builders.accounts import account_of, external
from tests.fixtures.records import START, after, caged, make_record

LIMITS = {"IOReadIOPSMax": 500, "IOReadBandwidthMax": 20_000_000}
CAGE = Cage("c", LIMITS, enforced_by="volume")


def record_of(cage: Cage = CAGE, reads: int = 4000, **account: float) -> Record:
    """Return a record of 10 s with an account; the kernel's counters do not read it back."""
    outside = external(cage, account_of(cage, **account))
    section = caged(cage.properties) | {"read_back": {}, "expected": {}, "external": outside}
    return make_record(cage=section, counters=after(read_bytes=4096 * reads, reads=reads))


def verdict(record: Record, name: str) -> LimitVerdict:
    return next(limit for limit in judge_limits(record) if limit.property == name)


MERGED = 9000
"""Reads by the kernel's count, of which a provider that merges counts fewer."""


@pytest.mark.parametrize(
    ("reads", "exceeded", "operations", "word", "says"),
    [
        (4000, 9.0, 4990, "enforced", "waited for this limit of the volume in 9 s of 10 s"),
        (4000, 0.0, 100, "never_reached", ""),
        (4000, 9.0, 5200, "leaky", "By its account the volume let 10.4 s of this limit through in"),
        (MERGED, 9.0, 4990, "enforced", ""),
    ],
)
def test_a_limit_is_judged_by_the_account(
    reads: int, exceeded: float, operations: int, word: str, says: str
) -> None:
    record = record_of(reads=reads, exceeded=exceeded, operations=operations, bytes=1e6)
    found = verdict(record, "IOReadIOPSMax")
    assert (found.verdict, found.observed) == (word, operations / 10)
    assert says in found.reason


@pytest.mark.parametrize(("operations", "word"), [(15_000, "enforced"), (15_200, "leaky")])
def test_credits_let_more_through_at_first(operations: int, word: str) -> None:
    cage = replace(CAGE, burst=BurstCredits("full", iops=CreditBucket(3000, 10_000)))
    record = record_of(cage, exceeded=5.0, operations=operations, bytes=1e6)
    assert verdict(record, "IOReadIOPSMax").verdict == word


def test_changes_of_the_rate_are_changes_of_both_caps() -> None:
    both = {"IOReadIOPSMax": 500, "IOWriteIOPSMax": 500}
    cage = Cage("c", both, accounting=IoAccounting(combined=True), enforced_by="volume")
    account = account_of(cage, operations=1000)
    account["pcvolume"]["limits"][0]["changes"] = [{"seconds": 4.0, "per_second": 500.0}]
    section = caged(both) | {"external": external(cage, account)}
    record = make_record(cage=section)
    change = {"t": START + 4.0, "IOReadIOPSMax": 500.0, "IOWriteIOPSMax": 500.0}
    assert cap_changes(record) == [change]


def binding(name: str, share: float) -> BindingVerdict:
    return BindingVerdict(name, "", {name: share})


@pytest.mark.parametrize(
    ("seen", "exceeded", "word"),
    [
        (binding("iops", 0.9), 9.0, "agree"),
        (binding("iops", 0.9), 0.5, "disagree"),
        (binding("device", 1.0), 9.0, "disagree"),
        (binding("device", 1.0), 0.5, "agree"),
        (binding("iops", 0.4), 4.5, "agree"),
    ],
)
def test_two_witnesses(seen: BindingVerdict, exceeded: float, word: str) -> None:
    cage = Cage("c", {"IOReadIOPSMax": 500}, enforced_by="volume")
    record = record_of(cage, exceeded=exceeded, operations=4900)
    assert judge_witnesses(record, seen).verdict == word


def test_without_a_volume_there_is_one_witness() -> None:
    record = make_record()
    assert volume_account(record) is None
    assert judge_witnesses(record, judge_binding_limit(record, [])).verdict == "unknown"


SLOW = VolumeSimulation(read_latency=(LatencyQuantiles(4096, ((0.5, 440.0),)),))


@pytest.mark.parametrize(
    ("simulation", "late", "is_excluded"),
    [(SLOW, 41, True), (SLOW, 40, False), (None, 4000, False)],
)
def test_late_replies_exclude_a_trial_with_a_latency(
    simulation: VolumeSimulation | None, late: int, is_excluded: bool
) -> None:
    record = late_record(simulation, late)
    reasons = evaluate(record).reasons
    assert any("volume late" in reason for reason in reasons) is is_excluded
    assert evaluate(record).excluded or not is_excluded


def test_the_sentence_has_the_share_and_the_disk() -> None:
    record = late_record(SLOW, 100)
    [sentence] = late_volumes(record)
    assert sentence.startswith("volume late: 2.5% of the replies came more than 100 us, and")


def late_record(simulation: VolumeSimulation | None, late: int) -> Record:
    cage = replace(CAGE, simulation=simulation)
    account = account_of(cage, operations=4000)
    account["pcvolume"]["late_ops"] = late
    section = caged(cage.properties) | {"external": external(cage, account)}
    return make_record(cage=section, counters=after(read_bytes=4096 * 4000, reads=4000))


@given(st.floats(0.1, 100.0), st.integers(0, 100_000))
def test_what_the_rate_allows_is_never_a_leak(seconds: float, operations: int) -> None:
    cage = Cage("c", {"IOReadIOPSMax": 500}, enforced_by="volume")
    used = min(operations, 500 * seconds)
    record = record_of(cage, seconds=seconds, operations=used)
    assert verdict(record, "IOReadIOPSMax").verdict != "leaky"


def test_a_slow_volume_is_told_by_its_latency() -> None:
    cage = Cage("c", {"IOReadIOPSMax": 500}, enforced_by="volume")
    account = account_of(cage, operations=450)
    account["total_read_time"] = 450 * 20_500
    section = caged(cage.properties) | {"external": external(cage, account)}
    busy = after(read_bytes=4096 * 450, reads=450, busy=9.9, io_wait=9.8)
    record = make_record(cage=section, counters=busy)
    found = evaluate(record).diagnosis
    assert found.bound_by == "device"
    assert "The latency of the volume held the program back for 100 %" in found.sentence
    assert "45 reads per second, each of 20.5 ms, below every cap" in found.sentence
