"""The time left, by what trials of a treatment took."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from pagecage.model.record import Record
from pagecage.model.trial import Trial
from pagecage.planning import time_left
from pagecage.planning.time_left import ExpectedTrials, TimeEstimate
from tests.builders.plans import BASE, plan_of
from tests.fixtures.records import make_record

TRIALS = plan_of(replace(BASE, factors={"speed": ("fast", "slow")})).trials
SECONDS = {"fast": 2.0, "slow": 60.0}


@dataclass
class Clock:
    now: float = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(time_left, "time", made)
    return made


def record_of(trial: Trial, **changes: Any) -> Record:
    given = {"trial_id": trial.trial_id, "treatment": dict(trial.treatment), "outcome": "ok"}
    return make_record(**given, **changes)


def speed(trial: Trial) -> str:
    return trial.treatment["speed"]


def test_a_trial_takes_as_long_as_the_earlier_ones_of_its_treatment(clock: Clock) -> None:
    estimate = TimeEstimate(4, 0, 10.0, ExpectedTrials.of(TRIALS, seconds=40.0))
    assert estimate.left_seconds == pytest.approx(40)
    estimate.begin()
    for trial in TRIALS[:2]:
        clock.now += SECONDS[speed(trial)]
        estimate.end(record_of(trial))
    assert estimate.left_seconds == pytest.approx(62)
    clock.now += SECONDS[speed(TRIALS[2])]
    assert estimate.end(record_of(TRIALS[2])) == 3
    assert estimate.left_seconds == pytest.approx(SECONDS[speed(TRIALS[3])])
    assert estimate.number == "  3/4"


def test_an_estimate_is_corrected_by_the_trials_that_ended(clock: Clock) -> None:
    estimate = TimeEstimate(4, 0, 10.0, ExpectedTrials.of(TRIALS, seconds=40.0))
    estimate.begin()
    clock.now += 20
    estimate.end(record_of(TRIALS[0]))
    assert estimate.left_seconds == pytest.approx(60), "each took twice its estimate"


def test_a_trial_that_runs_again_is_still_left(clock: Clock) -> None:
    estimate = TimeEstimate(4, 0, 10.0, ExpectedTrials.of(TRIALS, seconds=40.0))
    estimate.begin()
    clock.now += 500
    assert estimate.end(replace(record_of(TRIALS[0]), outcome="interrupted")) == 0
    assert estimate.left_seconds == pytest.approx(40)


def test_a_resumed_run_knows_what_its_trials_took() -> None:
    records = [
        record_of(trial, phases=[_phase("prepare", 0, 1), _phase("run", 1, SECONDS[speed(trial)])])
        for trial in TRIALS[:2]
    ]
    expected = ExpectedTrials.of(TRIALS[2:], records, seconds=500.0)
    assert TimeEstimate(4, 2, 250.0, expected).left_seconds == pytest.approx(64)


def _phase(name: str, start: float, seconds: float) -> dict[str, Any]:
    times = {"start_wall_seconds": start, "start_monotonic_seconds": start, "seconds": seconds}
    return {"name": name, **times}


def test_trials_that_are_not_planned_take_the_mean(clock: Clock) -> None:
    estimate = TimeEstimate(10, 0, 7.0)
    assert estimate.left_seconds == 70
    estimate.begin()
    clock.now += 3
    estimate.end(record_of(TRIALS[0]))
    assert estimate.left_seconds == pytest.approx(27)
