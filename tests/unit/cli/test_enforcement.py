"""The enforcer of a run's cages, the dilation of its volumes, and settings of a disk's queue."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from pagecage.errors import PagecageError
from pagecage.hosts.host import Progress
from pagecage.hosts.local import LocalHost
from pagecage.model.cage import UNCAGED, Cage, Enforcer, SnapshotRestore, VolumeSimulation
from pagecage.model.json_codec import JsonView
from pagecage.model.plan import Plan
from pagecage.planning import enforcement
from pagecage.planning.enforcement import ask_before_queue_settings, enforced
from pagecage.planning.options import RunOptions
from pagecage.planning.size import fitting_dilation
from pagecage.runner.resource_needs import needed_disk_bytes
from tests.builders.facts import facts
from tests.builders.plans import plan_of

FAST = Cage("fast", {"IOReadIOPSMax": 16_000, "MemoryMax": 2**30})
FREE = Cage(UNCAGED, {})
VOLUME = RunOptions(enforced_by="volume")


@dataclass(frozen=True)
class SomeHost:
    emulated: bool
    name: str = "vm"

    def is_emulated(self, progress: Progress) -> bool:
        return self.emulated


def chosen(
    cage: Cage, by: Enforcer | None = None, dilate: str | None = None, *, emulated: bool = False
) -> Cage:
    cages = {cage.name: cage, UNCAGED: FREE}
    options = RunOptions(enforced_by=by, dilate=dilate)
    return enforced(cages, options, SomeHost(emulated), lambda _: None)[cage.name]


def test_a_cage_keeps_its_enforcer() -> None:
    assert chosen(FAST) == FAST


def test_the_option_replaces_it_and_leaves_the_control_alone() -> None:
    found = enforced({"fast": FAST, UNCAGED: FREE}, VOLUME, SomeHost(False), lambda _: None)
    assert found["fast"].is_volume
    assert found[UNCAGED] == FREE


def test_a_volume_that_an_emulated_guest_cannot_drive_is_slowed_down() -> None:
    found = chosen(FAST, "volume", emulated=True)
    assert found.dilation == 16
    assert found.properties == {"IOReadIOPSMax": 1000, "MemoryMax": 2**30}


def test_real_hardware_dilates_only_when_told_to() -> None:
    assert chosen(FAST, "volume").dilation == 1
    assert chosen(FAST, "volume", "4").properties["IOReadIOPSMax"] == 4000


def test_every_limit_must_come_within_reach() -> None:
    both = Cage("b", {"IOReadIOPSMax": 2000, "IOReadBandwidthMax": 480 * 2**20})
    assert fitting_dilation(both) == 10


@pytest.mark.parametrize("factor", ["0.5", "0", "ten", "1e9", "nan", ""])
def test_a_factor_outside_its_bounds(factor: str) -> None:
    with pytest.raises(PagecageError, match="is not a factor from 1 to 1000"):
        chosen(FAST, "volume", factor)


def test_a_factor_without_a_volume() -> None:
    with pytest.raises(PagecageError, match="applies only to simulated volumes"):
        chosen(FAST, None, "4")


def test_a_volume_without_a_limit() -> None:
    with pytest.raises(PagecageError, match="no cage has a limit on I/O"):
        enforced({UNCAGED: FREE}, VOLUME, SomeHost(False), lambda _: None)


def test_a_cgroup_cannot_restore_a_snapshot() -> None:
    simulation = VolumeSimulation(restore=SnapshotRestore(3e6, 524_288))
    cage = Cage("r", {"IOReadIOPSMax": 500}, simulation=simulation, enforced_by="volume")
    with pytest.raises(PagecageError, match="a cgroup cannot enforce"):
        chosen(cage, "cgroup")


class Asked:
    """What was asked and told, at a terminal with an answer, or without one (None)."""

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path, answer: bool | None) -> None:
        self.questions: list[str] = []
        self.said: list[str] = []
        self.host = LocalHost(folder)
        patch.setattr(
            LocalHost, "facts", lambda _: facts(disk={"maj_min": "254:0", "node": "/dev/vda"})
        )
        patch.setattr(enforcement, "_disk_of_root", lambda: "254:0")
        patch.setattr(sys.stdin, "isatty", lambda: answer is not None)
        patch.setattr(enforcement, "confirmed", self._confirmed)
        self._answer = answer

    def _confirmed(self, question: str) -> bool:
        self.questions.append(question)
        return bool(self._answer)

    def about(self, plan: Plan, *, yes: bool = False) -> JsonView | None:
        ask_before_queue_settings(plan, self.host, yes, self.said.append)
        return self.host.own_disk


def test_a_terminal_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = Asked(monkeypatch, tmp_path, answer=True)
    assert asked.about(plan_of()) is None
    assert asked.questions[0].startswith("Set read_ahead_kb of ")
    with pytest.raises(PagecageError, match="not confirmed"):
        Asked(monkeypatch, tmp_path, answer=False).about(plan_of())


@pytest.mark.parametrize("own", [True, False])
def test_with_nobody_to_ask_the_data_get_a_disk_of_their_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, own: bool
) -> None:
    monkeypatch.setattr(LocalHost, "can_make_disk", lambda _: own)
    asked, plan = Asked(monkeypatch, tmp_path, answer=None), plan_of()
    made = asked.about(plan)
    assert asked.questions == []
    if own:
        assert made is not None
        assert made["file"] == f"{tmp_path}/disk.img"
        assert made["size_bytes"] > made["data_bytes"] >= needed_disk_bytes(plan.trials)
        assert asked.said[0].startswith(
            f"disk: {tmp_path}/disk.img by loop, which leaves read_ahead_kb"
        )
    else:
        assert made is None
        assert "will be changed during each trial and restored" in asked.said[0]


def test_files_of_the_user_stay_on_their_disk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(LocalHost, "can_make_disk", lambda _: True)
    plan = plan_of()
    replayed = replace(plan, document={**plan.document, "replay": {"carried": []}})
    assert Asked(monkeypatch, tmp_path, answer=None).about(replayed) is None


def test_a_plan_that_was_confirmed_or_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = Asked(monkeypatch, tmp_path, answer=None)
    assert asked.about(plan_of(), yes=True) is None
    plan = plan_of()
    unset = tuple(replace(trial, read_ahead_kb=None) for trial in plan.trials)
    assert asked.about(replace(plan, trials=unset)) is None
    assert asked.said == []
