"""Identifiers by pattern in plans, records and fleets, and bounds as docs/FORMAT.md states them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pagecage.errors import PagecageError
from pagecage.fleet.folder import FleetFolder
from pagecage.model import json_codec, record, run_files
from pagecage.model.json_codec import Json
from pagecage.model.plan import plan_to_json
from pagecage.model.record import record_from_json
from pagecage.model.run_files import read_plan
from pagecage.runner import frame_receiver, run_folder
from pagecage.units import exact_size
from tests.builders.plans import plan_of
from tests.fixtures.records import plain_record
from tests.tree import ROOT

FORMAT = (ROOT / "docs/FORMAT.md").read_text()
OUT = "../../../../outside"
BAD = [
    *(OUT, "/etc/passwd", "..", ".hidden", "", "a/b", "a\n", "\x1b[2J", "a\0b", "x" * 9999),
    *(7, [], {}),
]


def written(folder: Path, plan: dict[str, Any]) -> Path:
    plan = {key: value for key, value in plan.items() if key != "plan_sha256"}
    (folder / "plan.json").write_text(json.dumps(plan))
    return folder


@pytest.fixture
def plan() -> Json:
    found: Json = json.loads(json.dumps(plan_to_json(plan_of())))
    return found


def test_a_plan_is_read(plan: dict[str, Any], tmp_path: Path) -> None:
    assert read_plan(written(tmp_path, plan))["run_id"] == plan["run_id"]


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize("key", ["run_id", "experiment", "host", "size"])
def test_a_plan_names_nothing_outside(
    plan: dict[str, Any], tmp_path: Path, key: str, value: object
) -> None:
    with pytest.raises(PagecageError, match=key):
        read_plan(written(tmp_path, {**plan, key: value}))


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize("where", ["trial_id", "cage", "disk", "collector", "own collector"])
def test_a_trial_of_a_plan_names_nothing_outside(
    plan: dict[str, Any], tmp_path: Path, where: str, value: Any
) -> None:
    trial = plan["trials"][0]
    if where == "trial_id":
        trial["trial_id"] = value
    elif where == "cage":
        trial["cage"]["name"] = f"{value}\x07" if isinstance(value, str) else value
    elif where == "disk":
        trial["cage"]["disks"] = {str(value): {}}
    elif where == "collector":
        trial["collectors"] = [value]
    else:
        trial["own_collectors"] = [{"name": value}]
    with pytest.raises(PagecageError):
        read_plan(written(tmp_path, plan))


def test_two_trials_of_one_name_are_refused(plan: dict[str, Any], tmp_path: Path) -> None:
    plan["trials"].append(plan["trials"][0])
    with pytest.raises(PagecageError, match="two trials of one name"):
        read_plan(written(tmp_path, plan))


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "[" * 100_000])
def test_a_plan_that_is_not_json_is_a_sentence(tmp_path: Path, constant: str) -> None:
    (tmp_path / "plan.json").write_text(f'{{"run_id": {constant}')
    with pytest.raises(PagecageError, match=r"plan\.json is not valid JSON"):
        read_plan(tmp_path)


def test_a_plan_of_any_length_is_not_read(
    plan: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_files, "MOST_PLAN_BYTES", 100)
    with pytest.raises(PagecageError, match="is longer than"):
        read_plan(written(tmp_path, plan))


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize(
    "key", ["run_id", "host", "experiment", "trial_id", "phase", "boot_id", "state_id"]
)
def test_a_record_names_nothing_outside(key: str, value: object) -> None:
    with pytest.raises(PagecageError, match=f"records.jsonl:1 is not a pagecage record.*{key}"):
        record_from_json({**plain_record(), key: value}, "records.jsonl:1")


@pytest.mark.parametrize("attempt", [0, -1, 10_001, 2**70, True, "1"])
def test_an_attempt_is_a_number_from_1(attempt: object) -> None:
    with pytest.raises(PagecageError, match="attempt"):
        record_from_json({**plain_record(), "attempt": attempt})


@pytest.mark.parametrize("path", [OUT, "/etc/passwd", "trials/t1.1/../x", "trials/t1.1/.x", "plan"])
@pytest.mark.parametrize("key", ["traces", "trace_files"])
def test_traces_of_a_record_lie_in_folders_of_trials(key: str, path: str) -> None:
    files = {"traces": {"sampler": path}, "trace_files": {path: {"bytes": 1, "sha256": "0" * 64}}}
    with pytest.raises(PagecageError, match="lies outside"):
        record_from_json({**plain_record(), key: files[key]})


@pytest.mark.parametrize("host", [OUT, "..", "a/b", ""])
def test_a_fleet_names_no_folder_outside(tmp_path: Path, host: str) -> None:
    document = {"fleet_version": 1, "hosts": {host: "0" * 64}}
    (tmp_path / "fleet.json").write_text(json.dumps(document))
    with pytest.raises(PagecageError, match="not an identifier"):
        FleetFolder(tmp_path).host_folders()


@pytest.mark.parametrize("line", ["7", "{}", '{"host": "a"}', '{"host": "../a", "round": 1}', "x"])
def test_a_damaged_round_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "rounds.jsonl").write_text(f"{line}\n")
    with pytest.raises(PagecageError, match=r"rounds\.jsonl:1 is"):
        FleetFolder(tmp_path).last_results()


def test_patterns_are_those_of_the_documents() -> None:
    stated = set(re.findall(r"`([^`]*\{\d+,\d+\}[^`]*)`", FORMAT))
    names = ("RUN_ID", "EXPERIMENT", "TRIAL_ID", "HOST", "STATE_ID", "DISK", "COLLECTOR")
    assert {getattr(json_codec, name).pattern for name in names} <= stated


UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def test_bounds_are_those_of_the_documents() -> None:
    table = FORMAT.split("### Bounds")[1].split("Receiving the frames")[0]
    modules = (json_codec, record, run_files, frame_receiver, run_folder)
    compared = 0
    for row in (line for line in table.splitlines() if "`MOST_" in line):
        _, _, stated, constants, _ = row.split("|")
        found = re.findall(r"([0-9,]*[0-9])(?: ([KMGT]iB))?", stated)
        figures = [int(n.replace(",", "")) * UNITS.get(unit, 1) for n, unit in found]
        names = re.findall(r"`(\w+)`", constants)
        values = [next(getattr(m, name) for m in modules if hasattr(m, name)) for name in names]
        assert figures == values, row
        compared += len(values)
    assert compared == 13


@pytest.mark.parametrize("count", [17, 128 << 20, 10 << 30, 81_250_000, 1536 << 10, 4096])
def test_the_size_of_a_dataset_that_fits_is_one(count: int) -> None:
    assert json_codec.is_identifier(exact_size(count), json_codec.SIZE)
    assert not json_codec.is_identifier(f"../{exact_size(count)}", json_codec.SIZE)
