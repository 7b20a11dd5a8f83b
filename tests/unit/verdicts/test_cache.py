"""The verdict on the cache state: that of records with looks at the files, and that of older ones by their counters."""

from __future__ import annotations

import copy
import json
import zipfile
from typing import Any

import pytest

from pagecage.model.cache_proof import CacheCheck
from pagecage.model.record import Record, record_from_json
from pagecage.units import MIB
from pagecage.verdicts.conditions import judge_cache_state
from pagecage.verdicts.evaluate import judge
from tests.fixtures.records import DISK, FILE_BYTES, make_record, plain_record
from tests.fixtures.small_runs import FOLDER, NAMES

NOTHING = CacheCheck(0, 0, 0, 0, 0).to_json()
HONEST = {"start": NOTHING, "go": NOTHING, "charge_lag_bytes": MIB}
ALL_READ = CacheCheck(FILE_BYTES, FILE_BYTES, FILE_BYTES, 0, 0).to_json()


def stored_records(name: str) -> list[dict[str, Any]]:
    with zipfile.ZipFile(next(FOLDER.glob(f"{name}.*"))) as archive:
        [path] = [path for path in archive.namelist() if path.endswith("records.jsonl")]
        return [json.loads(line) for line in archive.read(path).splitlines()]


@pytest.mark.parametrize("name", NAMES)
def test_every_stored_trial_with_an_answer_was_honest(name: str) -> None:
    for data in stored_records(name):
        found = judge_cache_state(record_from_json(data))
        assert found.verdict in ("reached", "not_applicable"), (data["trial_id"], found.because)


@pytest.fixture(scope="module")
def sequential() -> dict[str, Any]:
    """smoke · sequential in its cage, as it was stored before there were looks: 64 MiB behind 20 MB/s."""
    records = stored_records("smoke")
    return next(r for r in records if r["treatment"] == {"cage": "smoke", "pattern": "sequential"})


def warmed(record: dict[str, Any], read_bytes: int, charged_bytes: int, **end: Any) -> Record:
    """The same trial where another process had read the file: so much was read and charged, and all is resident."""
    changed = copy.deepcopy(record)
    for moment in ("after", "totals"):
        cgroup = changed["counters"][moment]["cgroup"]
        cgroup["io.stat"][changed["device"]["maj_min"]]["rbytes"] = read_bytes
        cgroup["memory.stat"]["file"] = charged_bytes
    changed["cache"]["resident_bytes_after"] = changed["cache"]["file_bytes"]
    changed["workload"]["end"] |= end
    return record_from_json(changed)


def test_the_lie_that_was_believed(sequential: dict[str, Any]) -> None:
    judged = judge(warmed(sequential, 131_072, 131_072))
    assert judged.cache_state_reached.verdict == "not_reached"
    assert "the disk delivered 128 KiB to the slice of 64 MiB" in judged.cache_state_reached.because
    assert judged.excluded


def test_an_older_record_of_random_reads_is_betrayed_by_its_charge(sequential: dict[str, Any]) -> None:
    """Who reads windows at random reads more than the file in any case, and may be helped all the same."""
    found = judge_cache_state(warmed(sequential, 100 * MIB, 6 * MIB))
    assert found.verdict == "not_reached"
    assert "another process has read 58 MiB" in found.because
    assert judge_cache_state(warmed(sequential, 100 * MIB, 60 * MIB)).verdict == "reached", "a charge may be behind"


def test_an_older_record_without_counters_stays_as_it_was() -> None:
    assert judge_cache_state(make_record(counters={}, measured=None, response={})).verdict == "reached"


@pytest.mark.parametrize(
    ("looks", "says"),
    [
        (
            {"start": CacheCheck(4096, 0, 0, 0, 0).to_json()},
            "before the program started, another process had read 4 KiB",
        ),
        ({"go": CacheCheck(8 * MIB, 0, 0, 0, 0).to_json()}, "before `go`, another process had read 8 MiB"),
        ({"end": ALL_READ | {"charged_bytes": 0}, "came_bytes": 0}, "another process has read 128 MiB"),
        ({"end": ALL_READ | {"read_bytes": 0}, "came_bytes": FILE_BYTES}, "128 MiB of the files entered the page"),
    ],
)
def test_looks_that_contradict_the_state(looks: dict[str, Any], says: str) -> None:
    found = judge_cache_state(make_record(cache=HONEST | looks))
    assert found.verdict == "not_reached"
    assert says in found.because
    assert found.because.startswith("cold: ")


def test_looks_that_agree_are_told() -> None:
    cache = HONEST | {"end": ALL_READ, "came_bytes": FILE_BYTES}
    found = judge_cache_state(make_record(cache=cache))
    assert found.verdict == "reached"
    assert found.because == "cold: 0 B of 128 MiB resident by cachestat, 0 B at `go`."


def test_several_resident_files_count_whole_pages_each() -> None:
    cache = {"requested": "resident", "file_bytes": 2 * 4097, "resident_bytes_before": 4 * 4096}
    assert judge_cache_state(make_record(cache=cache)).verdict == "reached"


def test_the_disk_is_the_one_that_was_measured() -> None:
    """A slice that read elsewhere has not read the files."""
    record = plain_record()
    record["workload"]["end"] |= {"checksum": "7", "distinct_bytes": FILE_BYTES}
    record["counters"]["after"]["cgroup"]["io.stat"]["7:0"] = {"rbytes": FILE_BYTES}
    assert judge_cache_state(record_from_json(record)).verdict == "reached"
    record["counters"]["after"]["cgroup"]["io.stat"][DISK]["rbytes"] = 0
    assert judge_cache_state(record_from_json(record)).verdict == "not_reached"
