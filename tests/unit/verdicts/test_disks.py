"""Verdicts on a trial whose cage names a second disk: data at 200 reads, a log at 50 writes."""

from __future__ import annotations

from typing import Any

import pytest

from pagecage.model.record import Record
from pagecage.verdicts.evaluate import Verdicts, evaluate, verdicts_to_json
from pagecage.verdicts.io_demand import io_demand
from tests.fixtures.records import SECONDS, after, caged, make_record, series

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
    counters["before"]["disks"] = {
        "wal": {"device": dict.fromkeys([*device, "sectors_written"], 0), "lower_device": None}
    }
    counters["after"]["disks"] = {
        "wal": {"device": {**device, "sectors_written": sectors}, "lower_device": None}
    }
    log = caged(LOG, IOWriteIOPSMax=driven(50))
    log |= {"read_back": {"io.max.wiops": "50"}, "ancestors": {}} | cage
    disk = {"device": {"name": "vdc", "maj_min": LOG_DISK}, "cage": log}
    return make_record(
        counters=counters,
        cage=caged(DATA, IOReadIOPSMax=driven(200)),
        disks={"wal": disk},
    )


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
    assert found.diagnosis.sentence.startswith(
        f"The {cap} IOPS cap on {where} the {disk} disk was full for 100 % of the time"
    )
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
