"""Repeats until intervals are narrow: a campaign ends by the rule, also after an interruption."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pagecage.cli.options import RunOptions
from pagecage.cli.run_plan import choose_repeats, until_ci
from pagecage.errors import PagecageError
from pagecage.runner.campaign import RunSummary
from pagecage.verdicts.repeats import half_width
from pagecage.verdicts.stopping import enough_blocks, too_wide
from tests.builders.campaigns import THREE, Run
from tests.builders.plans import BASE, CHOICES, plan_of

FIVE_PERCENT = replace(CHOICES, repeats=12, until_ci=0.05)
Figure = Callable[[int, str], float]


class Stopping(Run):
    """Up to twelve blocks of three trials, with given figures by block and level."""

    def __init__(self, tmp_path: Path, figure: Figure) -> None:
        super().__init__(tmp_path, repeats=1)
        self.plan = replace(plan_of(THREE, FIVE_PERCENT), run_id="20261121T100001Z-test-vm")
        self.plan = replace(self.plan, document={**self.plan.document, "run_id": self.plan.run_id})
        self.folder = type(self.folder).create(tmp_path / "runs", self.plan)
        figures = {
            t.trial_id: {"read_seconds": figure(t.block, t.treatment["level"])}
            for t in self.plan.trials
        }
        self.set_script({"figures": figures})

    def blocks(self) -> list[int]:
        return sorted({record.block for record in self.records()})


def steady(block: int, level: str) -> float:
    return 10 + 0.01 * block


def test_narrow_intervals_need_the_six_blocks_that_an_interval_needs(tmp_path: Path) -> None:
    run = Stopping(tmp_path, steady)
    assert run.go() == RunSummary(18, 0)
    assert run.blocks() == [1, 2, 3, 4, 5, 6]
    assert len(run.agent_calls()) == 1


def test_one_treatment_that_spreads_keeps_the_run_going(tmp_path: Path) -> None:
    run = Stopping(
        tmp_path, lambda block, level: 14.0 if (block, level) == (1, "b") else steady(block, level)
    )
    assert run.go() == RunSummary(27, 0)
    assert run.blocks() == list(range(1, 10))  # the interval of nine values omits the highest
    assert [len(call) for call in run.agent_calls()] == [18, 3, 3, 3]


def test_the_bound_ends_what_never_becomes_narrow(tmp_path: Path) -> None:
    run = Stopping(tmp_path, lambda block, level: 10.0 + block if level == "c" else 10.0)
    assert run.go() == RunSummary(36, 0)
    last = run.folder.last_records()
    assert enough_blocks(run.plan.document, last, run.folder.judge(last)) is None
    assert list(too_wide(run.plan.document, last, run.folder.judge(last))) == [("c",)]


def test_a_run_that_is_resumed_ends_at_the_same_block(tmp_path: Path) -> None:
    run = Stopping(
        tmp_path, lambda block, level: 14.0 if (block, level) == (1, "b") else steady(block, level)
    )
    run.go()
    kept = run.records()
    for count in (0, 7, 18, 20, 26):
        run.folder.records_path.unlink()
        for record in kept[:count]:
            run.folder.append(record)
        assert len(run.folder.remaining(run.plan)) >= 27 - count
        assert run.go() == RunSummary(27, 0)
        assert {record.trial_id for record in run.records()} == {record.trial_id for record in kept}


def test_a_treatment_that_is_killed_each_time_does_not_hold_a_run_up(tmp_path: Path) -> None:
    run = Stopping(tmp_path, steady)
    killed = {t.trial_id: ["oom_killed"] for t in run.plan.trials if t.treatment["level"] == "a"}
    figures = {
        t.trial_id: {"read_seconds": 10.0} for t in run.plan.trials if t.treatment["level"] != "a"
    }
    run.set_script({"figures": figures, **killed})
    assert run.go() == RunSummary(18, 0)


def test_a_plan_without_the_rule_runs_as_it_stands(tmp_path: Path) -> None:
    run = Run(tmp_path, repeats=8)
    assert run.plan.document["until_ci"] is None
    assert run.go() == RunSummary(24, 0)
    assert len(run.agent_calls()) == 1


@pytest.mark.parametrize(
    ("values", "width"),
    [
        ([1.0] * 5, None),
        ([1, 2, 3, 4, 5, 6], 2.5 / 3.5),
        ([10] * 6, 0.0),
        ([0] * 6, 0.0),
        ([0] * 5 + [1, 1], None),
    ],
)
def test_half_widths(values: list[float], width: float | None) -> None:
    assert half_width(values) == (width if width is None else pytest.approx(width))


@pytest.mark.parametrize("text", ["5", "0%", "%", "-5%", "5 %%", "five%", "100%", "0.0%", ""])
def test_a_share_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(PagecageError, match="is not a percentage"):
        until_ci(RunOptions(until_ci=text))


def test_the_bound_is_the_number_of_repeats() -> None:
    assert until_ci(RunOptions(until_ci="2.5%")) == pytest.approx(0.025)
    assert choose_repeats(RunOptions(until_ci="5%"), BASE, "smoke") == 30
    assert choose_repeats(RunOptions(until_ci="5%", max_repeats=9), BASE, "smoke") == 9
    assert choose_repeats(RunOptions(repeats=4), BASE, "smoke") == 4
    for wrong in (RunOptions(max_repeats=9), RunOptions(until_ci="5%", repeats=4)):
        with pytest.raises(PagecageError, match="until-ci"):
            choose_repeats(wrong, BASE, "smoke")
