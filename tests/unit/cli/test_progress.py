"""Progress of a run: one line a trial, and no text from outside that could break the telling."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from pagecage.cli.progress import RunProgress, describe
from pagecage.model.record import OUTCOMES
from pagecage.model.services import ServiceSpec
from pagecage.planning.plan import make_trials
from pagecage.planning.size import expected_seconds
from pagecage.planning.summary import LOAD_SECONDS
from pagecage.planning.time_left import TimeEstimate
from tests.builders.plans import BASE, CAGES, CHOICES
from tests.fixtures.records import make_record


def shown(text: str) -> str:
    console = Console(width=500, no_color=True, highlight=False)
    with console.capture() as captured:
        console.print(text, soft_wrap=True)
    return captured.get()


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_every_outcome_has_its_line(outcome: str) -> None:
    line = shown(describe(make_record(outcome=outcome, error=None)))
    assert ("killed" if outcome == "oom_killed" else outcome) in line


def test_a_line_tells_time_rate_and_amplification() -> None:
    response = {"read_seconds": 10.0, "covered_fraction": 0.05}
    response |= {"device_read_bytes_per_second": 2e7, "amplification": 32.0}
    line = shown(describe(make_record(response=response)))
    assert "10 s for 5.0%" in line
    assert "disk 20 MB/s" in line
    assert "x32 read" in line


@given(st.text(max_size=60))
@settings(deadline=None)
def test_no_error_breaks_the_line(error: str) -> None:
    shown(describe(make_record(outcome="failed", error=error)))


@pytest.mark.parametrize(
    "error", ["cannot open [/data/x]", "it reads [mq-deadline] none", "[/]", "[bold]x[/bold]"]
)
def test_brackets_are_shown_as_they_are(error: str) -> None:
    assert error in shown(describe(make_record(outcome="failed", error=error)))


@pytest.mark.parametrize("text", ["[/x]", "plain", "[red]"])
def test_every_event_can_be_told(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with RunProgress(TimeEstimate(2, 0, 5.0)) as progress:
        for event in (
            {"event": "step", "text": text},
            {"event": "trial", "trial_id": "r1_x"},
            {"event": "phase", "phase": text},
            {"event": "swept", "unit": text},
            {"event": "record", "record": make_record(trial_id="r1_x", error=text)},
            {"event": "agent_ended", "status": 1, "stderr": text},
        ):
            progress(event)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count(text) >= 4


def test_the_bar_knows_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    with RunProgress(TimeEstimate(3, 1, 5.0)) as progress:
        progress({"event": "trial", "trial_id": "a"})
        progress({"event": "record", "record": make_record(trial_id="a", outcome="ok")})
        progress({"event": "record", "record": make_record(trial_id="b", outcome="failed")})
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].split()[:2] == ["2/3", "a"]
    assert lines[1].split()[:2] == ["2/3", "b"]


def test_the_first_guess_grows_with_the_plan() -> None:
    few, many = make_trials(BASE, CAGES, CHOICES), make_trials(BASE, CAGES, CHOICES) * 3
    assert 0 < expected_seconds(few) < expected_seconds(many)


def test_the_first_guess_has_the_load_of_a_server() -> None:
    served = ServiceSpec(("load",), warm_up_seconds=10, settle_seconds=5)
    first, *_ = make_trials(BASE, CAGES, CHOICES)
    plain = replace(first, dataset=None)
    server = replace(plain, workload=replace(plain.workload, service=served))
    assert expected_seconds((server,)) - expected_seconds((plain,)) == 15 + LOAD_SECONDS
