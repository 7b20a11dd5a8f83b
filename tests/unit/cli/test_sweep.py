"""`pagecage sweep`, as it is typed, up to its plan: an experiment's treatment or any command, and
what is refused.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pagecage.cli.execution import require_same_definition
from pagecage.errors import PagecageError
from pagecage.hosts.local import LocalHost
from pagecage.model.plan import Plan
from pagecage.planning.options import ReplayOptions
from pagecage.planning.sweep import (
    ExperimentOptions,
    SweepOptions,
    plan_of_command,
    plan_of_experiment,
)

VARY = "IOReadIOPSMax=250,1000"


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Hosts that were let go of."""
    told: list[str] = []
    monkeypatch.setattr(LocalHost, "stop", lambda _: told.append("stopped"))
    return told


def asked(*what: str, base: str = "customer-tenth", vary: str = VARY, **more: Any) -> SweepOptions:
    shared = {"host": "local", "seed": 3, **more.pop("replay", {})}
    return SweepOptions(base, what, vary, ExperimentOptions(**more), ReplayOptions(**shared))


def plan_of(wishes: SweepOptions, *, command: bool = False) -> Plan:
    made = plan_of_command if command else plan_of_experiment
    return made(wishes, "pagecage sweep", lambda _: None)[0]


def caps(plan: Plan) -> list[int]:
    return sorted(trial.cage.properties["IOReadIOPSMax"] for trial in plan.trials)


def test_an_experiments_treatment_under_each_value() -> None:
    plan = plan_of(asked("customer-replay", treatment=("load=lazy-random",), dataset="smoke"))
    assert caps(plan) == [250, 500, 1000]
    assert plan.document["size_reason"] == "asked for"
    assert plan.document["sweep"] == {
        "property": "IOReadIOPSMax",
        "factor": "IOReadIOPSMax",
        "values": {"250": 250, "500": 500, "1000": 1000},
        "own": "500",
        "cage": "customer-tenth",
    }


def test_a_sweep_that_was_cut_off_goes_by_the_definition_of_what_it_sweeps() -> None:
    plan = plan_of(asked("customer-replay", treatment=("load=lazy-random",), dataset="smoke"))
    assert plan.document["experiment"] == "sweep-customer-replay"
    require_same_definition(plan)
    changed = replace(plan, document={**plan.document, "definition_sha256": "0" * 64})
    with pytest.raises(PagecageError, match=r"experiments/customer-replay\.toml has changed"):
        require_same_definition(changed)


def test_a_command_under_each_value(tmp_path: Any) -> None:
    (tmp_path / "data").write_text("x")
    options = {"cold": (str(tmp_path / "data"),), "repeats": 2}
    plan = plan_of(asked("cat", "data", replay=options), command=True)
    assert caps(plan) == [250, 250, 500, 500, 1000, 1000]
    about = plan.document["sweep"]
    assert (about["factor"], about["own"]) == ("cage", "customer-tenth, IOReadIOPSMax 500")
    assert {trial.treatment["cage"] for trial in plan.trials} == set(about["values"])
    assert plan.document["experiment"] == "replay-cat"
    assert plan.trials[0].workload.kind == "command"


COLD = {"cold": ("x",)}


@pytest.mark.parametrize(
    ("wishes", "command", "word"),
    [
        (asked(), False, "no experiment and no command was given"),
        (asked("grep", "x"), False, "'grep x' is not an experiment"),
        (asked("customer-replay", replay=COLD), False, "--cold applies only to a command after --"),
        (asked("customer-replay", treatment=("lazy",)), False, "has no level"),
        (asked("customer-replay", base="customr", treatment=("load=advised",)), False, "no cage"),
        (asked("cat", dataset="smoke"), True, "--dataset applies only to an experiment"),
        (asked("cat", vary="IOPS=1,2"), True, "does not name a limit"),
        (asked(), True, "there is no command"),
    ],
)
def test_what_is_refused_is_a_sentence_with_its_mend(
    wishes: SweepOptions, command: bool, word: str
) -> None:
    with pytest.raises(PagecageError, match=word) as caught:
        plan_of(wishes, command=command)
    assert (caught.value.exit_code, bool(caught.value.hint)) == (2, True)


def test_a_host_is_let_go_of_when_the_plan_fails(stopped: list[str]) -> None:
    with pytest.raises(PagecageError, match="several loads"):
        plan_of(asked("customer-replay", dataset="smoke"))
    assert stopped == ["stopped"]


def test_a_cage_too_small_for_the_program_is_refused(stopped: list[str]) -> None:
    small = {"vary": "MemoryMax=1MiB,64MiB", "dataset": "smoke"}
    wishes = asked("customer-replay", treatment=("load=lazy-random",), **small)
    with pytest.raises(PagecageError, match="MemoryMax is 1048576 bytes"):
        plan_of(wishes)
    assert stopped == ["stopped"]
