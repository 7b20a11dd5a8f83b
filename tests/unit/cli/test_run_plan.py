"""From what the user typed to a host, a size, an experiment with the cage of his choice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pagecage.cli.host import which
from pagecage.errors import HostError, PagecageError
from pagecage.hosts.local import LocalHost
from pagecage.model.cage import Cage
from pagecage.model.json_codec import JsonView
from pagecage.model.plan import Plan, plan_from_json, plan_to_json
from pagecage.planning import host_choice, run_plan
from pagecage.planning.host_choice import choose_host, refuse_limits
from pagecage.planning.options import FleetOptions, RunOptions, definitions
from pagecage.planning.plan import check_levels, make_trials, with_cage, with_driver
from pagecage.planning.run_plan import build_plan, check_options, choose_size
from pagecage.units import parse_size_bytes
from pagecage.version import VERSION
from tests.builders.facts import FIT, NO_MANAGER, USER, facts
from tests.builders.plans import BASE, CAGES, CHOICES, level_table
from tests.fake_host.hosts import TestHost

CAGED = replace(
    BASE,
    factors={"cage": ("uncaged", "tenth"), "pattern": ("a",)},
    levels={"pattern": {"a": level_table()}},
)


def cages_used(experiment: Any) -> set[str]:
    return {trial.cage.name for trial in make_trials(experiment, CAGES, CHOICES)}


def test_a_chosen_cage_replaces_all_but_the_control() -> None:
    assert cages_used(CAGED) == {"uncaged", "tenth"}
    assert cages_used(with_cage(CAGED, "tight")) == {"uncaged", "tight"}
    assert with_cage(CAGED, "tight").definition["factors"]["cage"] == ["uncaged", "tight"]
    assert cages_used(with_cage(CAGED, "uncaged")) == {"uncaged"}
    assert with_cage(CAGED) is CAGED
    assert cages_used(with_cage(CAGED, "tight", "tenth")) == {"uncaged", "tight", "tenth"}


def test_renamed_levels_do_not_outlive_the_choice() -> None:
    renamed = replace(CAGED, levels={**CAGED.levels, "cage": {"tenth": level_table(cage="tenth")}})
    assert cages_used(with_cage(renamed, "tight")) == {"uncaged", "tight"}


def cold(*names: str) -> Any:
    """Return an experiment whose levels of these cages have a cold cache, as `init` writes it."""
    levels = {**CAGED.levels, "cage": {name: level_table(cache="cold") for name in names}}
    stored = {"levels": {"cage": {name: {"cache": "cold"} for name in names}}}
    return replace(CAGED, levels=levels, definition={**CAGED.definition, **stored})


def test_a_cold_start_stays_cold_in_another_cage() -> None:
    chosen = with_cage(cold("uncaged", "tenth"), "tight")
    caches = {trial.cage.name: trial.cache for trial in make_trials(chosen, CAGES, CHOICES)}
    assert caches == {"uncaged": "cold", "tight": "cold"}
    cold_start = {"cache": "cold"}
    assert chosen.definition["levels"]["cage"] == {"tight": cold_start, "uncaged": cold_start}
    only = make_trials(with_cage(cold("uncaged", "tenth"), "uncaged"), CAGES, CHOICES)
    assert {(trial.cage.name, trial.cache) for trial in only} == {("uncaged", "cold")}


def test_caged_levels_that_differ_leave_open_what_another_cage_takes_over() -> None:
    both = replace(cold("tenth"), factors={"cage": ("tenth", "tight"), "pattern": ("a",)})
    with pytest.raises(PagecageError, match="differ in more than the cage"):
        with_cage(both, "uncaged")


def test_an_experiment_without_cages_gets_one() -> None:
    assert cages_used(with_cage(BASE, "tight")) == {"tight"}


def test_an_experiment_that_sets_its_cages_in_other_levels_cannot_be_given_one() -> None:
    own = replace(
        BASE, factors={"limits": ("hard",)}, levels={"limits": {"hard": level_table(cage="tenth")}}
    )
    with pytest.raises(PagecageError, match="set its cages"):
        with_cage(own, "tight")


@pytest.mark.parametrize(
    ("name", "emulated", "size"), [("auto", True, "emulated"), ("smoke", True, "smoke")]
)
def test_the_size_and_why(name: str, emulated: bool, size: str) -> None:
    host = TestHost((), "/nowhere")
    chosen, reason = choose_size(name, host, lambda _: None)
    assert chosen == size
    assert reason
    assert (reason == "asked for") is (name != "auto")


def auto(monkeypatch: pytest.MonkeyPatch, known: JsonView) -> list[str]:
    """Choose this machine, which has these facts, as the host; return the messages."""
    said: list[str] = []
    monkeypatch.setattr(LocalHost, "facts", lambda _: known)
    assert isinstance(choose_host("auto", None, said.append), LocalHost)
    return said


def test_auto_is_local_where_nothing_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert auto(monkeypatch, FIT)[-1].startswith("host: local (")


NOT_FIRST = {"pid1": False, "version": 0}
NO_V2, MEMORY_ALONE = {"v2": False, "controllers": []}, {"controllers": ["memory"]}


@pytest.mark.parametrize(
    ("known", "reason"),
    [
        ({**FIT, "systemd": {**NOT_FIRST, "user": False}}, "systemd is not the first process here"),
        (
            {**NO_MANAGER, "systemd": {**NOT_FIRST, "user": True, "user_manager": False}},
            "systemd is not the first process here",
        ),
        (facts(systemd={"version": 243}), "systemd 243 is older than 244"),
        (facts(cgroup=NO_V2), "/sys/fs/cgroup is not the unified (v2) hierarchy"),
        (facts(cgroup=MEMORY_ALONE), "the io controller is not available to systemd"),
        (USER, "the io controller is not available to this user's systemd"),
        (NO_MANAGER, "this user's own systemd (user@1000.service) is not running"),
        (facts(disk={"error": "/ is on overlay"}), "/ is on overlay"),
    ],
)
def test_auto_is_the_vm_where_something_is_and_says_what(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, known: dict[str, Any], reason: str
) -> None:
    said: list[str] = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # the user's guest may be running
    monkeypatch.setattr(LocalHost, "facts", lambda _: known)
    host = choose_host("auto", None, said.append)
    assert host.name == "vm"
    assert said == [f"host: vm ({reason}, see pagecage doctor)"]
    host.stop()


NO_CGROUPS = {
    **FIT,
    "systemd": {**NOT_FIRST, "user": False},
    "cgroupfs": {
        "hierarchy": None,
        "parent": None,
        "v1": [],
        "obstacles": [
            {"controller": name, "reason": "no cgroup hierarchy is mounted here", "hint": "see"}
            for name in ("memory", "io", "cpu")
        ],
    },
}
WITH_CAGES = replace(BASE, factors={"cage": ("uncaged", "tight")})
FREE_AND_TIGHT = {"uncaged": Cage("uncaged", {}), "tight": Cage("tight", {"MemoryMax": 4096})}
BY_FILES = {
    **NO_CGROUPS,
    "cgroupfs": {"hierarchy": "hybrid", "parent": "/g", "v1": ["memory", "blkio"], "obstacles": []},
}


def test_auto_is_local_where_cgroup_files_hold_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    said = auto(monkeypatch, BY_FILES)
    assert said[-1].startswith("host: local (the driver cgroupfs with cgroup v1 and v2 holds")


@pytest.mark.parametrize(
    ("known", "level", "driver"),
    [
        (FIT, "tight", "systemd-scope"),
        (BY_FILES, "tight", "cgroupfs"),
        (BY_FILES, "uncaged", "cgroupfs"),
        (NO_CGROUPS, "uncaged", "process"),
        (NO_CGROUPS, "tight", "systemd-scope"),
    ],
)
def test_the_driver_of_trials_that_name_none(
    monkeypatch: pytest.MonkeyPatch, known: dict[str, Any], level: str, driver: str
) -> None:
    monkeypatch.setattr(LocalHost, "facts", lambda _: known)
    options = replace(CHOICES, default_driver=LocalHost(None).default_driver())
    trials = make_trials(WITH_CAGES, FREE_AND_TIGHT, options)
    assert {t.driver for t in trials if t.treatment["cage"] == level} == {driver}


def test_limits_that_cannot_be_held_are_refused_by_treatment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(LocalHost, "facts", lambda _: NO_CGROUPS)
    trials = make_trials(WITH_CAGES, FREE_AND_TIGHT, CHOICES)
    with pytest.raises(HostError, match=r"cannot hold the limits of .*tight.*no cgroup") as error:
        refuse_limits(trials, LocalHost(None))
    assert error.value.message.endswith(" (--treatment cage=uncaged leaves them out)")
    assert error.value.hint == "see", "a command can be pasted"
    refuse_limits([trial for trial in trials if not trial.cage.has_limits], LocalHost(None))


@pytest.mark.parametrize(
    ("known", "experiment", "name"),
    [
        (BY_FILES, "constrained-random", "local"),
        (BY_FILES, "cage-drivers", "vm"),
        (NO_CGROUPS, "constrained-random", "vm"),
        (NO_CGROUPS, "prefault", "local"),
        (FIT, "constrained-random", "local"),
    ],
)
def test_the_host_of_auto_is_known_before_the_guest_is_set_up(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    known: dict[str, Any],
    experiment: str,
    name: str,
) -> None:
    def no_guest(*_: object) -> None:
        pytest.fail("the guest was asked")

    monkeypatch.setattr(host_choice, "_guest", no_guest)
    monkeypatch.setattr(LocalHost, "facts", lambda _: {**known, "free_bytes": 1 << 40})
    assert which("auto", experiment=experiment, dataset="smoke") == 0
    assert capsys.readouterr().out == f"{name}\n"


def test_auto_is_local_for_a_user_who_was_given_io(monkeypatch: pytest.MonkeyPatch) -> None:
    assert auto(monkeypatch, {**USER, "cgroup": FIT["cgroup"]})


def test_the_harness_names_its_revision() -> None:
    assert set(run_plan.harness()) == {"version", "git_revision", "git_dirty"}


def test_a_copy_where_there_is_no_git_has_a_version_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert run_plan.harness() == {"version": VERSION, "git_revision": None, "git_dirty": None}


def test_a_driver_is_chosen_for_all_or_by_the_experiment_itself() -> None:
    assert with_driver(BASE, None) is BASE
    assert with_driver(BASE, "docker").driver == "docker"
    own = replace(
        BASE, factors={"by": ("docker",)}, levels={"by": {"docker": level_table(driver="docker")}}
    )
    with pytest.raises(PagecageError, match="set its drivers"):
        with_driver(own, "podman")


def test_levels_without_a_treatment_are_refused() -> None:
    experiment = replace(
        BASE, factors={"a": ("1", "2"), "b": ("x", "y")}, exclude=({"a": "2", "b": "x"},)
    )
    check_levels(experiment, {"a": ("2",), "b": ("y",)})
    with pytest.raises(PagecageError, match="has no a=3"):
        check_levels(experiment, {"a": ("3",)})
    with pytest.raises(PagecageError, match="excludes a=2 and b=x"):
        check_levels(experiment, {"a": ("2",), "b": ("x",)})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (RunOptions(budget=1200.0, dataset="full"), "--dataset cannot be given too"),
        (RunOptions(budget=1200.0, host="lab"), "lab is a group"),
    ],
)
def test_a_budget_that_cannot_choose_a_size(options: RunOptions, says: str) -> None:
    with pytest.raises(PagecageError, match=says):
        check_options(options, FleetOptions())


def planned(budget: float | None, host: Any, name: str = "constrained-random") -> Plan:
    options = RunOptions(budget=budget, seed=1)
    return build_plan(options, definitions().experiment(name), host, "a test", lambda _: None)


def test_a_budget_chooses_the_size_and_the_plan_tells_it(tmp_path: Path) -> None:
    host = LocalHost(tmp_path)
    usual, longer = planned(None, host), planned(1200.0, host)
    assert usual.document["budget_seconds"] == 180
    assert longer.document["budget_seconds"] == 1200
    assert usual.document["expected_seconds"] < 1.1 * 180
    assert usual.document["expected_seconds"] < longer.document["expected_seconds"] < 1.1 * 1200
    for plan in (usual, longer):
        size = plan.document["definition"]["sizes"][plan.document["size"]]
        planned_bytes = {trial.dataset_bytes for trial in plan.trials}
        assert planned_bytes == {parse_size_bytes(size["dataset"])}
        assert plan_from_json(plan_to_json(plan)) == plan


def test_without_a_budget_emulated_machines_get_the_size_that_is_made_for_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(LocalHost, "is_emulated", lambda *_: True)
    for host in (TestHost((), "/nowhere"), LocalHost(tmp_path)):
        assert planned(None, host).document["size"] == "emulated"
        assert "expected_seconds" not in planned(None, host).document
        assert planned(3600.0, host).document["size"] != "emulated"


def test_an_experiment_without_datasets_keeps_its_sizes(tmp_path: Path) -> None:
    assert planned(None, LocalHost(tmp_path), "append-log").document["size"] == "default"
    with pytest.raises(PagecageError, match="append-log has no datasets"):
        planned(1200.0, LocalHost(tmp_path), "append-log")
