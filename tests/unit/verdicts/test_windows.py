"""The binding limit: one case for each limit, and shares of the time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagecage.model.json_codec import Json
from pagecage.model.record import Record
from pagecage.model.record_sections import Row
from pagecage.verdicts.counters import Rows
from pagecage.verdicts.verdict import BindingVerdict
from pagecage.verdicts.windows import NAMES, judge_binding_limit, windows_of
from tests.fixtures.records import START, after, caged, make_record, plain_record, series

BARE = caged({})
MEMORY = caged({"MemoryMax": 13_418_496})


def binding_of(record: Record, rows: Rows) -> BindingVerdict:
    return judge_binding_limit(record, windows_of(record, rows))


@pytest.mark.parametrize(
    ("cage", "rates", "name"),
    [
        (
            caged(),
            {"rbytes": 19e6, "rios": 150, "io_wait": 0.6, "refaults": 4000, "hits": 100},
            "bandwidth",
        ),
        (caged(), {"rbytes": 12.4e6, "rios": 95, "io_wait": 0.6}, "bandwidth"),
        (caged(), {"rbytes": 2e6, "rios": 490, "io_wait": 0.9}, "iops"),
        (caged(), {"rbytes": 13e6, "rios": 450, "io_wait": 0.9}, "iops"),
        (
            MEMORY,
            {
                "rbytes": 130e6,
                "rios": 1000,
                "io_wait": 0.4,
                "refaults": 30000,
                "hits": 900,
                "cpu": 0.9,
            },
            "memory",
        ),
        (MEMORY, {"rbytes": 1e6, "hits": 900, "memory_wait": 0.5, "cpu": 0.4}, "memory"),
        (BARE, {"rbytes": 900e6, "rios": 7000, "io_wait": 0.8, "busy": 0.98, "cpu": 0.3}, "device"),
        (BARE, {"cpu": 0.99}, "cpu"),
        (BARE, {"cpu": 0.5, "cpu_wait": 0.45}, "cpu"),
        (MEMORY, {"rbytes": 130e6, "hits": 400, "memory_wait": 0.3, "cpu": 0.95}, "cpu"),
        (caged({"CPUQuota": 50}), {"cpu": 0.5, "throttled": 0.5}, "cpu"),
        (BARE, {"rbytes": 1e6, "cpu": 0.2, "io_wait": 0.3, "busy": 0.3}, "none"),
        (caged(), {"rbytes": 5e6, "rios": 100, "io_wait": 0.2, "cpu": 0.3}, "none"),
        (caged(), {"rbytes": 15e6, "rios": 100, "io_wait": 0.02, "cpu": 0.95}, "cpu"),
        (MEMORY, {"rbytes": 180e6, "hits": 900, "refaults": 0, "cpu": 0.95}, "cpu"),
        (MEMORY, {"rbytes": 180e6, "hits": 0, "refaults": 40000, "cpu": 0.95}, "cpu"),
    ],
)
def test_each_limit_that_can_hold_a_trial(cage: Json, rates: dict[str, float], name: str) -> None:
    found = binding_of(make_record(cage=cage), series(**rates))
    assert found.verdict == name
    assert found.shares == {name: pytest.approx(1.0)}


def test_an_oom_kill_is_the_memory_limit() -> None:
    record = make_record(outcome="oom_killed", counters=after(oom_kill=1), measured=None)
    assert binding_of(record, []).verdict == "memory"


def test_the_limit_with_the_largest_share_of_the_time_is_named() -> None:
    first = series(6, rbytes=19e6, rios=150, io_wait=0.6)
    busy = {"rbytes": 0.0, "cpu": 1.0}
    rest = [_shifted(row, first[-1]) for row in series(4, **busy)[11:]]
    found = binding_of(make_record(cage=caged()), [*first, *rest])
    assert found.verdict == "bandwidth"
    assert found.shares["bandwidth"] == pytest.approx(0.6, abs=0.05)
    assert found.shares["cpu"] == pytest.approx(0.4, abs=0.05)


def _shifted(row: Row, last: Row) -> Row:
    """Return a later row whose counters continue from the last row of the earlier part."""
    moved = {**row, "t": row["t"] - START + last["t"]}
    moved["io"] = {key: row["io"].get(key, 0) + count for key, count in last["io"].items()}
    moved["pressure"] = {
        kind: {part: line[part] + last["pressure"][kind][part] for part in line}
        for kind, line in row["pressure"].items()
    }
    return moved


PORTION_BYTES = 5 << 20


def in_portions(rate: float, **waits: float) -> list[Json]:
    """Return rows whose reads arrive as portions of 5 MiB, as cgroup v1 counts them."""
    rows = series(10, rbytes=rate, rios=150, **waits)
    for row in rows:
        row["io"] = {k: n // PORTION_BYTES * PORTION_BYTES for k, n in row["io"].items()}
    return rows


@pytest.mark.parametrize("io_wait", [0.6, 0.0])
@pytest.mark.parametrize(("rate", "share"), [(20e6, 1.0), (19.5e6, 1.0), (9e6, 0.0), (4e6, 0.0)])
def test_a_cap_is_judged_over_several_large_portions(
    rate: float, share: float, io_wait: float
) -> None:
    found = binding_of(make_record(cage=caged()), in_portions(rate, io_wait=io_wait))
    assert found.caps.get("IOReadBandwidthMax", 0.0) == pytest.approx(share)


def test_a_cap_met_in_large_portions_was_not_full_in_a_pause() -> None:
    first = in_portions(20e6, io_wait=0.6)[:70]
    pause = [{**first[-1], "t": first[-1]["t"] + n / 10} for n in range(1, 40)]
    found = binding_of(make_record(cage=caged()), [*first, *pause])
    assert found.caps["IOReadBandwidthMax"] == pytest.approx(0.6, abs=0.07)


def test_rows_before_go_and_after_end_do_not_count() -> None:
    measured = {**plain_record()["measured"], "seconds": 5.0}
    rows = series(10, rbytes=19e6, rios=150, io_wait=0.6)
    for row in rows:
        if row["t"] > START + 5:
            row["io"] = {**rows[60]["io"]}
    shares = binding_of(make_record(measured=measured), rows).shares
    assert shares == {"bandwidth": pytest.approx(1.0)}


def test_without_a_series_the_counters_of_the_whole_part_decide() -> None:
    found = binding_of(make_record(), [])
    assert found.verdict == "bandwidth"
    assert "in 1 window" in found.reason


def test_without_windows_the_limit_is_not_known() -> None:
    found = binding_of(make_record(measured=None, counters={}), [])
    assert (found.verdict, found.shares) == ("none", {})
    assert "not known" in found.reason


@settings(deadline=None)  # a busy machine must not fail the test
@given(
    rbytes=st.floats(0, 20e6),
    rios=st.floats(0, 500),
    io_wait=st.floats(0, 1),
    cpu=st.floats(0, 1),
    refaults=st.floats(0, 5000),
    hits=st.floats(0, 100),
    busy=st.floats(0, 1),
)
def test_shares_are_shares(**rates: float) -> None:
    found = binding_of(make_record(), series(2, **rates))
    assert found.verdict in NAMES
    assert sum(found.shares.values()) == pytest.approx(1.0)
