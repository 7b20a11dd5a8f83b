"""The verdict on the cache state, from cache checks or, for older records, from counters."""

from __future__ import annotations

import copy
import json
import zipfile
from typing import Any

import pytest

from pagecage.model.record import Record, record_from_json
from pagecage.units import MIB
from pagecage.verdicts.cache_state import judge_cache_state
from pagecage.verdicts.evaluate import evaluate
from tests.fixtures.records import DISK, FILE_BYTES, make_record, plain_record
from tests.fixtures.small_runs import FOLDER, NAMES

FIGURES = ("charged_bytes", "read_bytes", "reclaimed_bytes", "host_reclaimed_bytes")
NOTHING = dict.fromkeys(("resident_bytes", *FIGURES), 0)
HONEST = {"start": NOTHING, "go": NOTHING, "charge_lag_bytes": MIB}
ALL_READ = NOTHING | dict.fromkeys(("resident_bytes", *FIGURES[:2]), FILE_BYTES)


def stored_records(name: str) -> list[dict[str, Any]]:
    with zipfile.ZipFile(next(FOLDER.glob(f"{name}.*"))) as archive:
        [path] = [path for path in archive.namelist() if path.endswith("records.jsonl")]
        return [json.loads(line) for line in archive.read(path).splitlines()]


@pytest.mark.parametrize("name", NAMES)
def test_every_stored_data_point_reached_its_cache_state(name: str) -> None:
    for data in stored_records(name):
        found = judge_cache_state(record_from_json(data))
        assert found.verdict in ("reached", "not_applicable"), (data["trial_id"], found.reason)


@pytest.fixture(scope="module")
def sequential() -> dict[str, Any]:
    """Return a trial of 64 MiB at 20 MB/s that was stored before cache checks existed."""
    records = stored_records("smoke")
    return next(r for r in records if r["treatment"] == {"cage": "smoke", "pattern": "sequential"})


def warmed(record: dict[str, Any], read_bytes: int, charged_bytes: int, **end: Any) -> Record:
    """Return the trial as if another process had read the file.

    `read_bytes` and `charged_bytes` are those of the trial's slice.
    """
    changed = copy.deepcopy(record)
    for moment in ("after", "totals"):
        cgroup = changed["counters"][moment]["cgroup"]
        cgroup["io.stat"][changed["device"]["maj_min"]]["rbytes"] = read_bytes
        cgroup["memory.stat"]["file"] = charged_bytes
    changed["cache"]["resident_bytes_after"] = changed["cache"]["file_bytes"]
    changed["workload"]["end"] |= end
    return record_from_json(changed)


def test_a_file_that_another_process_read_is_not_cold(sequential: dict[str, Any]) -> None:
    judged = evaluate(warmed(sequential, 131_072, 131_072))
    assert judged.cache_state_reached.verdict == "not_reached"
    says = "64 MiB were not resident, but the disk delivered only 128 KiB"
    assert says in judged.cache_state_reached.reason
    assert judged.excluded


def test_an_older_record_of_random_reads_is_contradicted_by_its_charge(
    sequential: dict[str, Any],
) -> None:
    """Random windows read more than the file, so bytes alone do not show another reader."""
    found = judge_cache_state(warmed(sequential, 100 * MIB, 6 * MIB))
    assert found.verdict == "not_reached"
    assert "another process read 58 MiB" in found.reason
    behind = warmed(sequential, 100 * MIB, 60 * MIB)
    assert judge_cache_state(behind).verdict == "reached", "a charge may be behind"


def test_an_older_record_without_counters_stays_as_it_was() -> None:
    record = make_record(counters={}, measured=None, response={})
    assert judge_cache_state(record).verdict == "reached"


@pytest.mark.parametrize(
    ("checks", "message"),
    [
        (
            {"start": NOTHING | {"resident_bytes": 4096}},
            "before the program started, another process had read 4 KiB",
        ),
        (
            {"go": NOTHING | {"resident_bytes": 8 * MIB}},
            "before `go`, another process had read 8 MiB",
        ),
        (
            {"end": ALL_READ | {"charged_bytes": 0}, "came_bytes": 0},
            "another process has read 128 MiB",
        ),
        (
            {"end": ALL_READ | {"read_bytes": 0}, "came_bytes": FILE_BYTES},
            "128 MiB of the files entered the page",
        ),
    ],
)
def test_checks_that_contradict_the_state(checks: dict[str, Any], message: str) -> None:
    found = judge_cache_state(make_record(cache=HONEST | checks))
    assert found.verdict == "not_reached"
    assert message in found.reason
    assert found.reason.startswith("cold: ")


def test_checks_that_agree_are_reported() -> None:
    cache = HONEST | {"end": ALL_READ, "came_bytes": FILE_BYTES}
    found = judge_cache_state(make_record(cache=cache))
    assert found.verdict == "reached"
    assert found.reason == "cold: 0 B of 128 MiB resident by cachestat, 0 B at `go`."


def test_several_resident_files_count_whole_pages_each() -> None:
    cache = {"requested": "resident", "file_bytes": 2 * 4097, "resident_bytes_before": 4 * 4096}
    assert judge_cache_state(make_record(cache=cache)).verdict == "reached"


def test_only_reads_from_the_measured_disk_count() -> None:
    record = plain_record()
    record["workload"]["end"] |= {"checksum": "7", "distinct_bytes": FILE_BYTES}
    record["counters"]["after"]["cgroup"]["io.stat"]["7:0"] = {"rbytes": FILE_BYTES}
    assert judge_cache_state(record_from_json(record)).verdict == "reached"
    record["counters"]["after"]["cgroup"]["io.stat"][DISK]["rbytes"] = 0
    assert judge_cache_state(record_from_json(record)).verdict == "not_reached"
