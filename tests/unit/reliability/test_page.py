"""docs/TRUST.md: its length, its figures, and the code with which they were measured."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from reliability import campaign
from reliability.campaign import (
    PAGE,
    RESULTS,
    SOURCES,
    code_of,
    code_state,
    commit_of,
    is_outdated,
    measured_with,
    read_results,
    told_states,
    write_results,
)
from reliability.page import FILES, SUMMARIES
from tests.tree import ROOT

MOST_WORDS = 4000
CODE, COMMIT = re.compile(r"[0-9a-f]{12}"), re.compile(r"[0-9a-f]{7,12}(\+changes)?")


def test_the_page_begins_with_a_line_for_each_summary() -> None:
    text = PAGE.read_text()
    lines = text.partition("\n## ")[0].splitlines()
    assert len([line for line in lines if line.startswith("- **")]) == len(SUMMARIES) == 5
    assert len(text.split()) < MOST_WORDS


def test_every_file_of_results_names_the_code_that_it_depends_on() -> None:
    stored = {path.name: json.loads(path.read_text()) for path in RESULTS.glob("*.json")}
    assert set(stored) == {*FILES, "statistics-before.json"}, "that one has a commit of its own"
    for name in FILES:
        states = stored[name]["measured"]
        assert states, name
        assert all(CODE.fullmatch(one["code"]) for one in states), name
        assert all(COMMIT.fullmatch(one["commit"]) for one in states), name
        assert f"[{name}](trust/{name})" in PAGE.read_text()
        assert told_states(states) in PAGE.read_text()
    assert all((ROOT / top).exists() for tops in SOURCES.values() for top in tops)


def test_every_row_of_several_measurements_has_its_code() -> None:
    rows = {"local-kills.json": "runs", "guest-kills.json": "runs", "disks.json": "cells"}
    rows["witnesses.json"] = "trials"
    for name, key in rows.items():
        found = json.loads((RESULTS / name).read_text())
        known = {one["code"] for one in found["measured"]}
        assert {row["code"] for row in found[key]} == known, name


def test_a_change_of_the_code_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "ROOT", tmp_path)
    (tmp_path / "part").mkdir()
    for name, text in {"part/a.py": "1", "part/notes.md": "x", "b.py": "2"}.items():
        (tmp_path / name).write_text(text)
    first = code_state(("part",))
    assert first == code_state(("part",))
    assert first != code_state(("part", "b.py"))
    (tmp_path / "part/notes.md").write_text("y")
    assert code_state(("part",)) == first, "a text is no code"
    (tmp_path / "part/a.py").write_text("3")
    assert code_state(("part",)) != first


def test_earlier_states_stay_while_rows_have_them(tmp_path: Path) -> None:
    path = tmp_path / "disks.json"
    now = code_of(path.name)
    found: dict[str, Any] = {"cells": [{"code": "old"}, {"code": now}]}
    found["measured"] = [{"code": code, "commit": "c"} for code in ("gone", "old")]
    write_results(path, found, found["cells"])
    states = read_results(path)["measured"]
    assert [one["code"] for one in states] == ["old", now]
    assert is_outdated(path.name, states)
    assert told_states(states).startswith("Measured with 2 states of the code, the newest that of")
    write_results(path, {"cells": []})
    states = read_results(path)["measured"]
    assert [one["code"] for one in states] == [now]
    assert not is_outdated(path.name, states)
    assert told_states(states) == f"Measured with commit `{commit_of(path.name)}`."


def test_results_of_the_present_code_replace_its_earlier_ones() -> None:
    now = code_of("disks.json")
    earlier = [{"code": now, "commit": "abc"}]
    assert measured_with("disks.json", earlier, {now}) == [
        {"code": now, "commit": commit_of("disks.json")}
    ]
