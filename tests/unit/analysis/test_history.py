"""Histories: a change of level is found where it is, and noise is none."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.history import (
    History,
    HistoryPoint,
    LevelChange,
    TreatmentHistory,
    _changes,
    history_of,
)
from analysis.stats import change_points, parse_gate, summarise
from pagecage.errors import PagecageError
from tests.builders.command_line import called
from tests.builders.pages import loads_of
from tests.builders.run_edits import edit
from tests.builders.timed_runs import times
from tests.fixtures.runs import build_run


def changes(levels: list[float]) -> list[LevelChange]:
    points = [HistoryPoint(f"run{n}", summarise([level])) for n, level in enumerate(levels)]
    return list(_changes(points))


def noisy(draw: random.Random, levels: list[float], spread: float) -> list[float]:
    return [level * draw.lognormvariate(0, spread) for level in levels]


@given(
    before=st.integers(3, 20),
    after=st.integers(3, 20),
    level=st.floats(1e-3, 1e9),
    percent=st.sampled_from((-50, -5, -2, 2, 5, 300)),
)
def test_a_step_of_counts_is_found_exactly(
    before: int, after: int, level: float, percent: int
) -> None:
    [change] = changes([level] * before + [level * (1 + percent / 100)] * after)
    assert change.run_id == f"run{before}"
    assert change.is_proven
    assert change.ratio.middle == pytest.approx(1 + percent / 100)


@given(st.lists(st.just(7.0), max_size=30) | st.lists(st.just(0.0), max_size=30))
def test_an_equal_level_is_no_change(levels: list[float]) -> None:
    assert changes(levels) == []


@given(st.lists(st.floats(0, 1e12), max_size=12))
def test_any_series_has_changes_inside_of_it(levels: list[float]) -> None:
    found = change_points(levels)
    assert found == sorted(set(found))
    assert all(0 < index < len(levels) for index in found)


def test_three_runs_prove_no_change_below_what_three_runs_differ_by() -> None:
    """The later three are all slower, by 9 % in the median; the earlier ones differ by 16 %."""
    [change] = changes([1.08, 1.25, 1.2, 1.33, 1.31, 1.31])
    assert (change.run_id, change.word) == ("run3", "inconclusive")
    assert change.ratio.low > 1
    assert change.floor is not None
    assert change.floor.share == pytest.approx(1.25 / 1.08 - 1)
    gate = parse_gate("read_seconds > +3%")
    history = TreatmentHistory({}, (), (change,))
    verdicts = History((), "read_seconds", (history,), ()).gate_verdicts(gate)
    assert [word for _, word, _ in verdicts] == ["undecided"]


def test_noise_is_seldom_proven_to_be_a_change() -> None:
    draw = random.Random(20261122)
    series = [noisy(draw, [100.0] * count, 0.05) for count in (8, 15, 30) for _ in range(100)]
    alarms = sum(any(change.is_proven for change in changes(one)) for one in series)
    assert alarms <= 15, f"{alarms} of {len(series)}"


def test_a_regression_of_a_fifth_is_found_in_noise_of_five_percent() -> None:
    draw = random.Random(20261122)
    found = 0
    for _ in range(50):
        levels = noisy(draw, [100.0] * 10 + [120.0] * 5, 0.05)
        proven = [change.run_id for change in changes(levels) if change.is_proven]
        found += "run10" in proven
    assert found >= 40


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Six runs; from the fourth on everything takes 30 % longer. And one of another kernel."""
    top = tmp_path_factory.mktemp("runs")
    made = [build_run(top / f"run{n}", times(1.3 if n >= 3 else 1, n)) for n in range(6)]
    other = build_run(top / "run-other", times(1, 9))
    edit(other / "facts/b-1.json", lambda facts: facts.update(kernel="5.0"))
    return [*made, other]


def test_a_run_of_another_kernel_is_left_out(
    folders: list[Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = tmp_path / "history.html"
    words = ["history", folders[-1], *folders[:-1], "--json", "--html", page]
    status = called([*words, "--fail-if", "full_pass_seconds > +10%"])
    data = json.loads(capsys.readouterr().out)
    assert data["left_out"] == {"kernel": 1}
    assert status == 5
    slower = [row for row in data["treatments"] if row["changes"]]
    assert len(slower) == 10, "two of twelve treatments are killed"
    assert {change["run_id"] for row in slower for change in row["changes"]} == {"run3"}
    assert loads_of(page.read_text()) == []
    assert page.read_text().count("<svg") == 1


def test_one_run_has_no_history(folders: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert called(["history", str(folders[0])]) == 2
    assert "a history needs two" in capsys.readouterr().err


def test_a_response_that_no_trial_has_is_refused(folders: list[Path]) -> None:
    from analysis.data.load import load_run

    runs = [load_run(folder) for folder in folders[:2]]
    with pytest.raises(PagecageError, match="read_minutes"):
        history_of(runs, "read_minutes")
