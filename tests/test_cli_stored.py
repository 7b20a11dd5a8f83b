"""`pagecage runs`, `show` and gates over runs that are stored."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from analysis import results
from analysis.comparison import judge
from analysis.data.load import load_run
from analysis.stats import parse_gate
from pagecage.cli import compare, runs
from pagecage.runner.run_folder import RunFolder
from tests.builders.command_line import called
from tests.builders.timed_runs import times
from tests.fixtures.runs import build_run
from tests.fixtures.small_runs import FOLDER, unpacked

OLD, NEW = "20260101T000000Z-smoke-vm", "20260102T000000Z-smoke-vm"


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two runs of one experiment, in which `smoke` names the newer one."""
    folder = tmp_path / "runs"
    folder.mkdir()
    for run_id in (OLD, NEW):
        unpacked("smoke", folder / run_id)
    (folder / "latest-smoke").symlink_to(NEW)
    for module in (compare, runs):
        monkeypatch.setattr(module, "RUNS", folder)
    monkeypatch.chdir(tmp_path)
    return folder


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, object]]:
    assert called(["runs", "list", *words, "--json"]) == 0
    rows: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return rows


def test_runs_are_listed_with_trials_and_room(
    stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (stored / OLD / "trials/much").open("wb") as file:
        file.write(os.urandom(1 << 20))
    rows = listed(capsys, str(stored))
    assert [row["run_id"] for row in rows] == [NEW, OLD]
    assert rows[0]["done"] == rows[0]["planned"]
    assert int(str(rows[1]["size_bytes"])) - int(str(rows[0]["size_bytes"])) >= 1 << 20
    assert [row["run_id"] for row in listed(capsys, str(stored), "--largest")] == [OLD, NEW]


def test_a_run_that_is_removed_leaves_the_next_newest(
    stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(["runs", "remove", "smoke", "--yes"]) == 0
    assert not (stored / NEW).exists()
    assert (stored / "latest-smoke").resolve() == (stored / OLD).resolve()
    assert called(["runs", "remove", OLD, "--yes"]) == 0
    assert list(stored.iterdir()) == []


def test_without_an_answer_nothing_is_removed(
    stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(["runs", "remove", "smoke", OLD]) == 2
    assert "add --yes" in capsys.readouterr().err
    assert (stored / NEW).exists()
    assert (stored / OLD).exists()


def test_a_run_that_is_written_to_is_not_removed(
    stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with RunFolder(stored / NEW).locked():
        assert called(["runs", "remove", OLD, NEW, "--yes"]) == 3
    assert (stored / OLD).exists(), "all or none"


def test_a_folder_elsewhere_is_not_removed(
    stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    shutil.move(stored / OLD, elsewhere)
    assert called(["runs", "remove", str(elsewhere), "--yes"]) == 2
    assert elsewhere.exists()


def test_show_opens_bundles_and_folders(
    stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = shutil.copy(FOLDER / "smoke.pagecage.zip", tmp_path / "sent.pagecage.zip")
    shown = []
    for name in (str(bundle), str(stored / OLD), NEW, "smoke"):
        assert called(["show", name, "--csv"]) == 0
        shown.append(capsys.readouterr().out)
    assert len(set(shown)) == 1
    assert called(["show", str(bundle), "--html"]) == 2
    assert f"pagecage import {bundle}" in capsys.readouterr().err
    assert called(["show", str(stored), "--json"]) == 0
    assert [row["run_id"] for row in json.loads(capsys.readouterr().out)] == [NEW, OLD]
    assert called(["show", str(tmp_path)]) == 0
    assert "sent" in capsys.readouterr().out


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose times are known, another that takes three times as long, and a short one."""
    top = tmp_path_factory.mktemp("timed")
    build_run(top / "a", times(1, 1), repeats=6)
    build_run(top / "slow", times(3, 3), repeats=6)
    build_run(top / "few", times(1, 1), repeats=2)
    return top


@pytest.mark.parametrize(
    ("run", "gate", "status"),
    [
        ("a", "full_pass_seconds > 1us", 5),
        ("a", "full_pass_seconds < 10h", 5),
        ("a", "time > 10h", 6),
        ("a", "iops > 1000000000", 6),
        ("few", "time > 10h", 6),
    ],
)
def test_a_gate_with_a_bound_needs_no_second_run(
    timed: Path, capsys: pytest.CaptureFixture[str], run: str, gate: str, status: int
) -> None:
    assert called(["compare", str(timed / run), "--fail-if", gate]) == status
    assert {5: "failed", 6: "undecided"}[status] in capsys.readouterr().out


def test_a_bound_passes_where_the_whole_interval_is_within(timed: Path) -> None:
    found = judge(load_run(timed / "a"), [parse_gate("time > 10h")])
    killed = [one for one in found if one.reason == "killed"]
    assert {one.verdict for one in killed} == {"undecided"}
    assert {one.verdict for one in found if one not in killed} == {"passed"}
    assert results.gate_status({"passed"}) == 0


def test_a_bound_is_judged_beside_a_change(timed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", str(timed / "a"), str(timed / "slow"), "--json", "--anyway"]
    gates = ["--fail-if", "time > +10%", "--fail-if", "full_pass_seconds > 10h"]
    assert called([*words, *gates]) == 5
    found = json.loads(capsys.readouterr().out)["gates"]
    verdicts = {
        gate: {one["verdict"] for one in found if one["gate"] == gate} for gate in gates[1::2]
    }
    assert verdicts == {"time > +10%": {"failed"}, "full_pass_seconds > 10h": {"passed"}}


@pytest.mark.parametrize(
    ("gate", "says"),
    [
        ("full_pass_seconds > 3GB", "is not a time"),
        ("device_reads > 3s", "is neither a time nor a size"),
        ("device_read_bytes > 3parsec", "no clear unit"),
        ("nothing > 3", "no trial has 'nothing'"),
        ("full_pass_seconds > 3 %", "is not a gate"),
        ("full_pass_seconds > -3", "is not a gate"),
        ("full_pass_seconds > +3%", "is a change"),
    ],
)
def test_a_wrong_gate_is_a_sentence(
    timed: Path, capsys: pytest.CaptureFixture[str], gate: str, says: str
) -> None:
    assert called(["compare", str(timed / "a"), "--fail-if", gate]) == 2
    assert says in capsys.readouterr().err
