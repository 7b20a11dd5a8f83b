"""The example of a user's project, run in the guest with copies of its files."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from pagecage.process import Completed, run
from tests.tree import ROOT

pytestmark = pytest.mark.vm
EXAMPLE = ROOT / "examples/record-search"


@pytest.fixture
def example(tmp_path: Path) -> Path:
    copy = tmp_path / "example"
    shutil.copytree(EXAMPLE, copy, ignore=shutil.ignore_patterns("runs"))
    return copy


def pagecage(folder: Path, *words: str) -> Completed:
    argv = [sys.executable, "-m", "pagecage.cli.main", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PAGECAGE_RUNS", None)
    return run(argv, check=False, cwd=folder, env=environment, timeout_seconds=800)


def test_the_example_runs_in_its_own_cage(example: Path) -> None:
    done = pagecage(example, "run", "search", "--host", "vm", "--size", "smoke", "--yes")
    assert done.status == 0, done.stderr
    folder = (example / "runs/latest-search").resolve()
    assert (folder / "report.html").exists()
    records = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    assert {record["outcome"] for record in records} == {"ok"}
    assert {record["treatment"]["cage"] for record in records} == {"uncaged", "old-laptop"}
    caged = [record for record in records if record["treatment"]["cage"] == "old-laptop"]
    assert all("/replay/search.py" in " ".join(record["workload"]["argv"]) for record in caged)
    shown = json.loads(pagecage(example, "show", "search", "--json").stdout)
    assert shown["experiment"] == "search"
