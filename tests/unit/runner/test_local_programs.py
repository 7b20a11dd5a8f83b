"""Programs that this machine lacks, found before the first trial."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pagecage.agent.programs import fio
from pagecage.cli import execution
from pagecage.errors import EXIT_HOST, HostError
from pagecage.hosts.local import LocalHost
from pagecage.model.trial import CommandSpec, Trial, Workload
from pagecage.planning.host_choice import refuse_missing_programs
from pagecage.runner import local_programs
from pagecage.runner.local_programs import missing_programs
from tests.builders.plans import BASE, plan_of

FIO = Workload("fio", ("ioengine=mmap",), kind="fio")
PLAN = plan_of(replace(BASE, workload=FIO, factors={"engine": ("mmap", "psync")}))


@pytest.fixture
def no_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (fio, local_programs):
        monkeypatch.setattr(module, "find_tool", lambda _: None)


def of_engine(*levels: str) -> tuple[Trial, ...]:
    """Return trials of fio, and others of a workload that lacks nothing."""
    here = Workload("pcread", ())
    return tuple(
        replace(trial, workload=FIO if trial.treatment["engine"] in levels else here)
        for trial in PLAN.trials
    )


def test_no_trial_runs_without_its_program(no_tools: None) -> None:
    [found] = missing_programs(PLAN.trials)
    assert found.trials == PLAN.trials
    with pytest.raises(HostError, match="fio is not installed") as refused:
        refuse_missing_programs(PLAN.trials, print)
    assert (refused.value.hint, refused.value.exit_code) == ("apt install fio", EXIT_HOST)


def test_the_fix_in_a_checkout_names_the_experiment(no_tools: None) -> None:
    trials = tuple(replace(trial, experiment="fio-matrix") for trial in PLAN.trials)
    assert missing_programs(trials)[0].hint == "make setup NAME=fio-matrix HOST=local"


def test_treatments_without_their_program_are_named_once(no_tools: None) -> None:
    said: list[str] = []
    refuse_missing_programs(of_engine("psync"), said.append)
    assert said == [
        "psync will have no result: fio is not installed\n  fix: apt install fio",
    ]


def test_nothing_is_said_of_programs_that_are_there() -> None:
    said: list[str] = []
    refuse_missing_programs(of_engine(), said.append)
    assert said == []


def test_a_fio_without_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_programs, "missing_engine", lambda _: "this fio has no ioengine x")
    monkeypatch.setattr(local_programs, "find_tool", lambda name: f"/usr/bin/{name}")
    [found] = missing_programs(PLAN.trials)
    assert found.reason == "this fio has no ioengine x"
    assert "fio --enghelp" in found.hint


@pytest.mark.parametrize(
    ("program", "is_missing"),
    [
        ("sh", False),
        ("no-such-program", True),
        ("./here", False),
        ("./nowhere", True),
        ("{programs}/x", False),
    ],
)
def test_the_program_of_a_command(tmp_path: Path, program: str, is_missing: bool) -> None:
    (tmp_path / "here").write_text("#!/bin/sh\n")
    (tmp_path / "here").chmod(0o755)
    command = Workload(program, (), kind="command", command=CommandSpec(directory=str(tmp_path)))
    trials = [replace(trial, workload=command) for trial in PLAN.trials]
    assert bool(missing_programs(trials)) == is_missing


def test_an_engine_of_containers(no_tools: None) -> None:
    docker = [replace(t, driver="docker-api") for t in of_engine()]
    assert [one.hint for one in missing_programs(docker)] == ["apt install docker.io"]


def test_nothing_is_prepared_for_a_plan_without_its_program(
    no_tools: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    prepared: list[str] = []
    monkeypatch.setattr(execution, "require_programs", lambda *_: None)
    monkeypatch.setattr(execution, "refuse_limits", lambda *_: None)
    monkeypatch.setattr(execution, "ask_before_queue_settings", lambda *_: prepared.append("asked"))
    monkeypatch.setattr(execution, "prepare", lambda *_: prepared.append("prepared"))
    with pytest.raises(HostError, match="fio is not installed"):
        execution.prepare_host(PLAN, LocalHost(tmp_path), True, print)
    assert prepared == []
