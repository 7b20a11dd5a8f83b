"""Memory and disk of the machine around a guest, and short parts judged by the time around."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from pagecage.model.record import Record, record_from_json
from pagecage.verdicts.quiet import judge_host_quiet
from tests.builders.known import known
from tests.fixtures.records import SECONDS, after, outer, plain_record

MOVED = 190_000_000


def around_guest(**last: Any) -> Record:
    """Return a trial with these figures of the outer host at its end."""
    zero = {"pressure": {"memory": {"some_us": 0}}, "swap": {"in_bytes": 0, "out_bytes": 0}}
    zero["disk"] = {"io_ms": 0, "sectors_read": 0, "sectors_written": 0}
    before, end = {**outer(0.0), **zero}, {**outer(SECONDS), **copy.deepcopy(zero), **last}
    return record_from_json(plain_record(outer_host={"before": before, "after": end}))


def disk(foreign_bytes: int, busy_ms: int) -> dict[str, int]:
    sectors = (MOVED + foreign_bytes) // 512
    return {"io_ms": busy_ms, "sectors_read": sectors, "sectors_written": 0}


@pytest.mark.parametrize(
    ("last", "word", "says"),
    [
        ({}, "quiet", ""),
        ({"pressure": {"memory": {"some_us": 100_000}}}, "quiet", "for 1.0 % of the time"),
        ({"pressure": {"memory": {"some_us": 900_000}}}, "not_quiet", "for 9.0 % of the time"),
        ({"swap": {"in_bytes": 3 << 20, "out_bytes": 0}}, "quiet", "were swapped"),
        ({"swap": {"in_bytes": 3 << 20, "out_bytes": 9 << 20}}, "not_quiet", "12 MiB were swapped"),
        ({"disk": disk(0, 6000)}, "quiet", "moved 0 B for others"),
        ({"disk": disk(10 * MOVED, 6000)}, "not_quiet", "waited for it 50.0 % of the time"),
        ({"disk": disk(10 * MOVED, 1000)}, "quiet", "waited for it 9.1 % of the time"),
    ],
)
def test_memory_swap_and_disk_of_the_outer_host(last: Any, word: str, says: str) -> None:
    found = judge_host_quiet(around_guest(**last))
    assert found.verdict == word
    assert says in found.reason


def test_a_guest_that_leaves_its_disk_alone_is_not_disturbed_there() -> None:
    record = plain_record(counters=after(read_bytes=0, reads=0, busy=0.0))
    full = known(around_guest(disk=disk(10 * MOVED, 9000)).outer_host)
    moments = {"before": dict(full.before or {}), "after": dict(full.after or {})}
    found = judge_host_quiet(record_from_json({**record, "outer_host": moments}))
    assert found.verdict == "quiet"


def short(
    others: float, stolen: float = 0.0, span: float = 1.0, kernel_threads: float = 0.0
) -> Record:
    """Return a trial of 50 ms, around which all but it and the agent used so many CPU seconds."""

    def moment(seconds: float, busy: float, steal: float) -> dict[str, Any]:
        ticks = {"user": round(100 * busy), "nice": 0, "system": 0, "irq": 0, "softirq": 0}
        return {
            "monotonic_seconds": 990.0 + seconds,
            "trial_cpu_usec": round(4e4 * seconds),
            "agent_cpu_usec": round(1e4 * seconds),
            "kernel_threads_usec": round(1e6 * kernel_threads * seconds),
            "stat": {**ticks, "steal": round(100 * steal), "ticks_per_second": 100},
        }

    counts = after(read_bytes=0, reads=0, seconds=0.05, busy=0.0)
    for key in ("nice", "irq", "softirq"):
        for at in ("before", "after"):
            counts[at]["host"]["stat"] |= {key: 0, "steal": 7}
    busy = others + 0.05 * span
    counts["around"] = {"before": moment(0.0, 0.0, 0.0), "after": moment(span, busy, stolen)}
    measured = {**plain_record()["measured"], "seconds": 0.05}
    return record_from_json(plain_record(counters=counts, measured=measured, outer_host=None))


@pytest.mark.parametrize(
    ("record", "word"),
    [
        (short(0.1), "quiet"),
        (short(0.6), "unknown"),
        (short(0.6, kernel_threads=0.5), "quiet"),
        (short(0.1, stolen=0.3), "unknown"),
        (short(0.0, span=0.1), "unknown"),
    ],
)
def test_a_short_trial_is_judged_by_the_time_around_it(record: Record, word: str) -> None:
    assert judge_host_quiet(record).verdict == word


def waiting(waited_usec: float, steal: int = 0, **own: float) -> Record:
    """Return a trial of 50 ms without a time around it, in which tasks waited for so long."""
    data = plain_record(outer_host=None)
    data["measured"] = {**data["measured"], "seconds": 0.05}
    data["counters"] = after(read_bytes=0, reads=0, seconds=0.05, busy=0.0, **own)
    for moment, total in (("before", 0.0), ("after", waited_usec)):
        host = data["counters"][moment]["host"]
        host["cpu_pressure"] = {"some": {"total": total}}
        host["stat"] |= {"steal": steal, "nice": 0, "irq": 0, "softirq": 0, "idle": 0}
    return record_from_json(data)


@pytest.mark.parametrize(
    ("record", "word"),
    [
        (waiting(1000, cpu=0.08), "quiet"),
        (waiting(20_000, cpu=0.08), "unknown"),
        (waiting(1000, cpu=0.08, steal=3), "unknown"),
        (waiting(20_000), "quiet"),
    ],
)
def test_a_short_trial_is_judged_by_the_waits_of_the_machine(record: Record, word: str) -> None:
    """Only a trial of many threads is judged by them; others have waits of their own slice."""
    assert judge_host_quiet(record).verdict == word
