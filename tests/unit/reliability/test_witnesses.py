"""The comparison of witnesses: it finds those that lie, and knows where two must differ."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from reliability.campaign import RESULTS
from reliability.witnesses import (
    HANDED_OVER,
    JOURNAL,
    LOADS,
    MERGED,
    NOT_YET,
    PAGE_CACHE,
    PLANS,
    as_json,
    data_disk,
    differences,
    keep,
    of_fio,
    plan_of,
    unexplained,
    witnesses_section,
)

MIB = 1024 * 1024
READ = {"read bytes": 4 * MIB, "reads": 1024, "written bytes": 0, "writes": 0}
UNMERGED = {"reads merged": 0, "writes merged": 0}
TRIAL: dict[str, Any] = {
    "load": "random reads, direct",
    "cage": "volume",
    "accounts": {
        "fio": dict(READ),
        "io.stat": dict(READ),
        "diskstats": READ | UNMERGED,
        "QEMU": READ | UNMERGED,
        "volume": dict(READ),
    },
}


def trial(load: str = "random reads, direct", **changes: Mapping[str, float]) -> dict[str, Any]:
    changed = copy.deepcopy(TRIAL) | {"load": load}
    for witness, account in changes.items():
        changed["accounts"][witness] |= account
    return changed


def test_equal_witnesses_agree_in_every_pair() -> None:
    assert unexplained([TRIAL]) == []
    assert len(list(differences(TRIAL))) == 2 * 10, "two quantities, ten pairs of five witnesses"


@pytest.mark.parametrize("witness", TRIAL["accounts"])
@pytest.mark.parametrize("quantity", ["read bytes", "reads"])
def test_one_that_lies_is_apart_from_all_others(witness: str, quantity: str) -> None:
    lying = trial(TRIAL["load"], **{witness: {quantity: READ[quantity] * 1.05}})
    apart = unexplained([lying])
    assert len(apart) == 4
    assert {one.quantity for one in apart} == {quantity}
    assert all(witness in one.pair for one in apart)


def test_merged_requests_are_the_disks_but_not_qemus() -> None:
    merged = {"reads": 24, "reads merged": 1000}
    seen_below = {"reads": 24}
    found = trial(diskstats=merged, QEMU=seen_below, volume=seen_below)
    assert unexplained([found]) == []
    reasons = {one.pair: one.reason for one in differences(found) if one.quantity == "reads"}
    assert reasons["io.stat", "diskstats"] is None
    assert reasons["io.stat", "QEMU"] == MERGED
    assert reasons["diskstats", "QEMU"] is None


def test_read_ahead_explains_requests_and_no_bytes() -> None:
    few = {"reads": 32}
    below = dict.fromkeys(("io.stat", "diskstats", "QEMU", "volume"), few)
    found = trial("sequential reads of a whole file, buffered", **below)
    assert unexplained([found]) == []
    assert {one.reason for one in differences(found)} == {None, PAGE_CACHE}
    twice = trial("sequential reads of a whole file, buffered", fio={"read bytes": 2 * MIB})
    assert len(unexplained([twice])) == 4


def test_the_journal_is_the_disks_and_not_the_trials() -> None:
    writes = {"writes": 512, "written bytes": 8 * MIB}
    journal = {"writes": 540, "written bytes": 9 * MIB}
    accounts = dict.fromkeys(("fio", "io.stat"), writes)
    accounts |= dict.fromkeys(("diskstats", "QEMU", "volume"), journal)
    found = trial("sequential writes, direct, fsync", **accounts)
    assert unexplained([found]) == []
    [row] = [
        one
        for one in differences(found)
        if one.pair == ("io.stat", "diskstats") and one.quantity == "written bytes"
    ]
    assert (row.reason, row.is_agreement) == (JOURNAL, False)
    assert row.share == pytest.approx(1 / 8)


def test_the_flush_of_an_old_file_is_charged_to_its_former_writer() -> None:
    written, flushed = {"written bytes": 8 * MIB}, {"written bytes": 7 * MIB}
    accounts = dict.fromkeys(("diskstats", "QEMU", "volume"), flushed)
    accounts |= {"fio": written, "io.stat": {"written bytes": 0}}
    for load, reasons in (
        ("buffered writes to an old file, fsync", {HANDED_OVER, NOT_YET, PAGE_CACHE, None}),
        ("buffered writes to a new file, fsync", {JOURNAL, PAGE_CACHE, None}),
    ):
        found = trial(load, **accounts)
        assert {one.reason for one in differences(found)} == reasons
    assert [one.pair for one in unexplained([found])] == [("fio", "io.stat")], "of a new file"


def section(results: Path, *trials: Any) -> str:
    (results / "witnesses.json").write_text(json.dumps({"trials": trials}))
    return "\n".join(witnesses_section(results))


def test_the_section_names_those_that_are_apart(tmp_path: Path) -> None:
    good = section(tmp_path, TRIAL)
    assert "1 trials gave 20 comparisons. 20 must agree, and 20 do (none is apart)." in good
    bad = section(tmp_path, trial(fio={"reads": 2000}))
    assert "20 must agree, and 16 do (**4 apart**)" in bad


def test_the_file_has_every_comparison(tmp_path: Path) -> None:
    keep({**TRIAL, "limits_held": {}}, tmp_path / "witnesses.json")
    found = json.loads((tmp_path / "witnesses.json").read_text())
    assert len(found["comparisons"]) == 20
    row = found["comparisons"][0]
    assert (row["pair"], row["quantity"]) == (["fio", "io.stat"], "read bytes")
    assert (row["first"], row["second"], row["share"]) == (4 * MIB, 4 * MIB, 0)
    assert (row["agrees"], row["reason"]) == (True, None)


def test_every_stored_comparison_is_in_the_file() -> None:
    stored = json.loads((RESULTS / "witnesses.json").read_text())
    listed = [as_json(one) for each in stored["trials"] for one in differences(each)]
    assert json.loads(json.dumps(listed)) == stored["comparisons"]
    assert [row for row in listed if not row["agrees"] and not row["reason"]] == []


def test_each_plan_has_every_load_in_each_of_its_cages() -> None:
    for name, cages in PLANS.items():
        made = plan_of(name).trials
        assert len(made) == 1 + len(LOADS) * len(cages)
        assert len({one.trial_id for one in made}) == len(made)


def test_fios_jobs_are_added() -> None:
    job = {part: {"io_bytes": 10, "total_ios": 2} for part in ("read", "write")}
    text = "note: a line before\n" + str({"jobs": [job, job]}).replace("'", '"')
    assert of_fio(text) == {"read bytes": 20, "reads": 4, "written bytes": 20, "writes": 4}


def test_the_data_disk_among_qemus_devices() -> None:
    root = {"qdev": "/machine/peripheral-anon/device[2]/virtio-backend", "stats": {"rd_bytes": 1}}
    data = {"qdev": "/machine/peripheral/data-disk/virtio-backend", "stats": {"rd_bytes": 2}}
    assert data_disk([root, data])["rd_bytes"] == 2
    with pytest.raises(LookupError):
        data_disk([root])
