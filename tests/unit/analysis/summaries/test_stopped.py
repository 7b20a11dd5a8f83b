"""Tests of runs that a stopping rule ended."""

from __future__ import annotations

import json
import shutil

import pytest

from analysis.cells import stopping_rule_status
from analysis.data.load import load_run
from analysis.views.narrative import notices_html
from analysis.views.run import as_json
from pagecage.model.record import read_records
from tests.fixtures.runs import build_run


def steady(record):
    if record["response"]:
        record["response"]["full_pass_seconds"] = 10 + 0.01 * record["repeat"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return build_run(tmp_path_factory.mktemp("stopped") / "run", steady, repeats=8, until_ci=0.05)


def cut(folder, count):
    lines = (folder / "records.jsonl").read_text().splitlines(keepends=True)
    (folder / "records.jsonl").write_text("".join(lines[: 12 * count]))
    return folder


@pytest.fixture
def folder(whole, tmp_path):
    (tmp_path / "run").mkdir()
    for name in ("plan.json", "records.jsonl"):
        (tmp_path / "run" / name).write_bytes((whole / name).read_bytes())
    for name in ("facts", "trials"):
        shutil.copytree(whole / name, tmp_path / "run" / name)
    return tmp_path / "run"


def test_blocks_after_the_end_are_neither_run_nor_missing(folder):
    run = load_run(cut(folder, 6))
    assert len(run.trials) == len(run.plan["trials"]) == 72
    assert stopping_rule_status(run).endswith("8 times at most: reached after 6")
    assert all(cell["unanswered"] == 0 for cell in as_json(run)["cells"])
    assert "Unfinished" not in notices_html(run)
    assert "Stopping rule." in notices_html(run)


def test_a_run_in_progress_reports_what_is_too_wide(folder):
    run = load_run(cut(folder, 3))
    assert "8 times at most: not yet: " in stopping_rule_status(run)
    assert "uncaged · heap · sequential none" in stopping_rule_status(run)
    assert "Unfinished" in notices_html(run)


def test_a_reached_bound_reports_what_is_too_wide(folder):
    def wide(line):
        record = json.loads(line)
        if record["response"] and record["treatment"]["pattern"] == "random":
            record["response"]["full_pass_seconds"] *= record["repeat"]
        return json.dumps(record)

    lines = (folder / "records.jsonl").read_text().splitlines()
    (folder / "records.jsonl").write_text("".join(f"{wide(line)}\n" for line in lines))
    run = load_run(folder)
    assert len(list(read_records(folder / "records.jsonl"))) == len(run.trials) == 96
    assert "not reached: uncaged · heap · random " in stopping_rule_status(run)
    assert "sequential" not in stopping_rule_status(run)
