"""The enforcer of a run's cages, and the dilation of its volumes."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pagecage.cli.enforcement import enforced, fitting_dilation
from pagecage.errors import PagecageError
from pagecage.hosts.host import Progress
from pagecage.model.cage import UNCAGED, Cage, SnapshotRestore, VolumeSimulation

FAST = Cage("fast", {"IOReadIOPSMax": 16_000, "MemoryMax": 2**30})
FREE = Cage(UNCAGED, {})


@dataclass(frozen=True)
class SomeHost:
    emulated: bool
    name: str = "vm"

    def is_emulated(self, progress: Progress) -> bool:
        return self.emulated


def chosen(
    cage: Cage, by: str | None = None, dilate: str | None = None, *, emulated: bool = False
) -> Cage:
    cages = {cage.name: cage, UNCAGED: FREE}
    return enforced(cages, by, dilate, SomeHost(emulated), lambda _: None)[cage.name]


def test_a_cage_keeps_its_enforcer() -> None:
    assert chosen(FAST) == FAST


def test_the_option_replaces_it_and_leaves_the_control_alone() -> None:
    found = enforced({"fast": FAST, UNCAGED: FREE}, "volume", None, SomeHost(False), lambda _: None)
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
        enforced({UNCAGED: FREE}, "volume", None, SomeHost(False), lambda _: None)


def test_a_cgroup_cannot_restore_a_snapshot() -> None:
    simulation = VolumeSimulation(restore=SnapshotRestore(3e6, 524_288))
    cage = Cage("r", {"IOReadIOPSMax": 500}, simulation=simulation, enforced_by="volume")
    with pytest.raises(PagecageError, match="a cgroup cannot enforce"):
        chosen(cage, "cgroup")
