"""Levels, and trials included by name."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.cells import make_cell
from analysis.data.load import (
    JudgedTrial,
    Run,
    failed_verdicts,
    include_by_name,
    included_by_name_sentence,
    load_run,
    numeric_levels,
    sort_levels,
    table_layout,
)
from analysis.views.notebook import Results, notices_html
from pagecage.errors import PagecageError
from pagecage.model.json_codec import Json
from tests.builders.command_line import called
from tests.fixtures.records import outer
from tests.fixtures.runs import build_run


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        (["128", "0", "64"], [0, 64, 128]),
        (["64KiB", "4KiB", "1MiB"], [4096, 65536, 2**20]),
        (["t24", "t1", "t4"], [1, 4, 24]),
        (["10ms", "none", "1ms"], [0, 0.001, 0.01]),
        (["0.5", "2"], [0.5, 2]),
    ],
)
def test_numeric_levels_are_sorted(levels: list[str], expected: list[float]) -> None:
    found = numeric_levels(levels)
    assert found is not None
    assert [found[level] for level in sort_levels(levels)] == pytest.approx(expected)


@pytest.mark.parametrize(
    "levels",
    [
        ["sync1", "threads8"],
        ["cold", "resident"],
        ["8", "8.0"],
        ["4KiB", "4XiB"],
        ["iops-500", "uncaged"],
        ["1"],
        ["none", "off"],
    ],
)
def test_other_levels_stay_as_the_definition_has_them(levels: list[str]) -> None:
    assert numeric_levels(levels) is None
    assert sort_levels(levels) == levels


@given(st.lists(st.integers(0, 10**6), min_size=2, unique=True))
def test_order_is_a_permutation_and_by_number(values: list[int]) -> None:
    levels = [f"ra{value}" for value in values]
    assert sort_levels(levels) == [f"ra{value}" for value in sorted(values)]


def plan(factors: dict[str, list[str]]) -> list[dict[str, str]]:
    return [
        dict(zip(factors, levels, strict=True)) for levels in itertools.product(*factors.values())
    ]


THREE = {"cage": ["a", "b"], "source": ["x", "y", "z"], "pattern": ["s", "r"]}
FOUR = {name: ["1", "2"] for name in "abcd"}
WIDE = {"a": ["1", "2"], "b": [str(n) for n in range(9)]}
SQUARE = {"a": ["1", "2", "3"], "b": ["1", "2", "3"]}
SINGLE = {"a": ["1", "2"]}


@pytest.mark.parametrize(
    ("factors", "planned", "layout"),
    [
        (THREE, plan(THREE), (("cage", "source"), "pattern", {})),
        (
            THREE,
            [t for t in plan(THREE) if t["cage"] == "b"],
            (("source",), "pattern", {"cage": "b"}),
        ),
        (FOUR, plan(FOUR), (("a", "b", "c", "d"), None, {})),
        (WIDE, plan(WIDE), (("a", "b"), None, {})),
        (SQUARE, [{"a": n, "b": n} for n in "123"], (("a", "b"), None, {})),
        (SINGLE, plan(SINGLE), (("a",), None, {})),
    ],
    ids=["three factors", "one level left", "many factors", "many levels", "gaps", "one factor"],
)
def test_the_last_factor_goes_across_if_it_fits(
    factors: dict[str, list[str]], planned: list[dict[str, str]], layout: tuple[object, ...]
) -> None:
    found = table_layout(factors, planned)
    assert (found.down, found.across, found.constant) == layout


@given(st.integers(1, 5), st.integers(0, 2**32))
def test_every_factor_stands_somewhere_and_once(count: int, seed: int) -> None:
    draw = random.Random(seed)
    factors = {f"f{n}": [str(level) for level in range(draw.randint(1, 6))] for n in range(count)}
    every = plan(factors)
    layout = table_layout(factors, draw.sample(every, draw.randint(1, min(30, len(every)))))
    used = [*layout.down, *([layout.across] if layout.across else []), *layout.constant]
    assert sorted(used) == sorted(factors)
    assert layout.down


CELL = {"cage": "uncaged", "source": "unloaded", "pattern": "random"}


def spoiled(record: Json) -> None:
    """Spoil one cell: the first trial is not cold, the second not quiet, the third neither."""
    if record["treatment"] != CELL:
        return
    if record["repeat"] in (1, 3):
        record["cache"]["resident_bytes_before"] = 4096
    if record["repeat"] in (2, 3):
        record["outer_host"]["after"] = outer(record["measured"]["seconds"], others=1.5)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return build_run(tmp_path / "run", spoiled)


def trials_of(run: Run) -> dict[int, JudgedTrial]:
    return {t.record.repeat: t for t in run.trials if dict(t.record.treatment) == CELL}


def test_the_reason_for_exclusion_has_a_name(folder: Path) -> None:
    trials = trials_of(load_run(folder))
    found = {repeat: set(failed_verdicts(trial)) for repeat, trial in trials.items()}
    assert found == {
        1: {"cache_state_reached"},
        2: {"host_quiet"},
        3: {"cache_state_reached", "host_quiet"},
    }


@pytest.mark.parametrize(
    ("names", "repeats"),
    [
        ([], set()),
        (["host_quiet"], {2}),
        (["cache_state_reached"], {1}),
        (["host_quiet", "cache_state_reached"], {1, 2, 3}),
    ],
)
def test_a_verdict_includes_the_trials_that_fail_no_other(
    folder: Path, names: list[str], repeats: set[int]
) -> None:
    run = include_by_name(load_run(folder), names)
    assert {repeat for repeat, trial in trials_of(run).items() if trial.is_included} == repeats
    assert sum(t.is_included_by_name for t in run.trials) == len(repeats)


def test_a_trial_is_included_by_its_name_and_counts(folder: Path) -> None:
    run = load_run(folder)
    name = trials_of(run)[3].record.trial_id
    assert make_cell(run, CELL, run.response).text.endswith("†")
    cell = make_cell(include_by_name(run, [name]), CELL, run.response)
    assert cell.summary is not None
    assert (cell.summary.n, cell.excluded, cell.is_all_excluded) == (1, 2, False)


@pytest.mark.parametrize("name", ["limits", "nobody", "000-uncaged-heap-sequential-r1"])
def test_a_name_that_selects_no_excluded_trial_is_refused_with_those_that_would(
    folder: Path, name: str
) -> None:
    with pytest.raises(PagecageError, match=f"--include: {name} names no excluded trial") as caught:
        include_by_name(load_run(folder), [name])
    assert "(cache_state_reached and host_quiet)" in caught.value.hint


def test_terminal_data_and_report_name_the_included_trials(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = trials_of(load_run(folder))[2].record.trial_id
    assert called(["show", str(folder), "--include", "host_quiet", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["included_by_name"] == [name]
    assert called(["show", str(folder), "--include", "host_quiet"]) == 0
    assert "included by name" in capsys.readouterr().out
    results = Results(folder, ["host_quiet"])
    assert f"included by name: {name}" in results.heading.text
    assert results.limitations is not None
    assert "2 of 36 trials are excluded" in results.limitations.text
    assert f"An excluded trial is included by name: {name}." in notices_html(results.run)
    assert included_by_name_sentence(load_run(folder)) == ""


def test_a_report_is_made_with_included_trials(folder: Path) -> None:
    assert called(["show", str(folder), "--html", "--include", "host_quiet"]) == 0
    assert "<strong>Included by name.</strong>" in (folder / "report.html").read_text()
    assert called(["show", str(folder), "--html", "--include", "nobody"]) == 2
