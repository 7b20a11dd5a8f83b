"""Tests of pccrash: a few kills and stops at every named point."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.tree import ROOT

OUT = ROOT / "build/c"
POINTS = [
    *("create_empty", "create_sized", "after_announce", "after_reserve", "after_publish"),
    *("before_grow", "after_grow", "before_map", "mid_copy", "before_commit", "after_commit"),
    *("trim_announced", "trim_truncating", "in_recover"),
]


@pytest.fixture(scope="session")
def pccrash() -> str:
    argv = ["make", "-C", str(ROOT / "workloads/c"), f"OUT={OUT}", f"{OUT}/pccrash"]
    subprocess.run(argv, check=True, capture_output=True)
    return str(OUT / "pccrash")


def run(
    pccrash: str, *words: object, status: int = 0, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    argv = [pccrash, *map(str, words)]
    done = subprocess.run(
        argv, capture_output=True, text=True, input=stdin, check=False, timeout=300
    )
    assert done.returncode == status, done.stderr
    return done


def end_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    end: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert end["type"] == "end"
    return end


@pytest.mark.parametrize("signal", ["kill", "stop"])
@pytest.mark.parametrize("point", POINTS)
def test_nothing_is_lost(pccrash: str, tmp_path: Path, point: str, signal: str) -> None:
    words = (
        *("--dir", tmp_path, "--point", point, "--signal", signal, "--trials", 3, "--no-handshake"),
    )
    end = end_of(run(pccrash, *words))
    response = end["response"]
    assert end["checksum_ok"] is True
    assert response["trials"] == 3
    assert response["records"] >= 3 * 3 * 200
    for name in (
        *("lost_records", "doubled_records", "torn_records", "undecided_trials", "stalled_trials"),
    ):
        assert response[name] == 0, name
    if point in ("after_reserve", "after_publish", "mid_copy", "before_commit"):
        holes = 3 if signal == "kill" else 0  # one per killed writer
        assert response["tombstones"] == holes
    if point == "in_recover":
        assert response["tombstones"] == 3
    if point == "trim_truncating" and signal == "stop":
        assert response["refused_trials"] == 3  # PCLOG_BUSY instead of waiting
    assert list(tmp_path.iterdir()) == []


def test_the_points_are_listed(pccrash: str) -> None:
    assert run(pccrash, "--points").stdout.split() == POINTS


def test_the_handshake(pccrash: str, tmp_path: Path) -> None:
    lines = run(pccrash, "--dir", tmp_path, "--trials", 2, stdin="go\n").stdout.splitlines()
    assert [json.loads(line)["type"] for line in lines] == ["ready", "sample", "end"]
    lines = run(pccrash, "--dir", tmp_path, "--trials", 2).stdout.splitlines()
    assert [json.loads(line)["type"] for line in lines] == ["ready"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "--dir is missing"),
        (("--point", "nowhere"), "unknown point 'nowhere'"),
        (("--signal", "term"), "--signal must be kill, stop or both, not 'term'"),
        (("--dir", "/tmp", "--writers", "1"), "--writers from 2 to 64"),
        (("--dir", "/tmp", "--trials", "0"), "--trials must be at least 1"),
        (("--dir",), "--dir is not an option, or lacks its value"),
        (("--colour", "red"), "unknown option '--colour'"),
    ],
)
def test_invalid_arguments_are_refused(pccrash: str, words: tuple[str, ...], sentence: str) -> None:
    assert sentence in run(pccrash, *words, status=2).stderr


def test_a_missing_folder_is_refused(pccrash: str, tmp_path: Path) -> None:
    done = run(pccrash, "--dir", tmp_path / "none", "--no-handshake", status=1)
    assert "cannot write to" in done.stderr
