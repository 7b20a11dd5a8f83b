"""Whole runs on this machine whose cgroups another program changes, takes away or holds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pagecage.linux.cgroup import Cgroup, mount_points
from pagecage.model.record import Record
from pagecage.units import MIB
from tests.builders.sealed_runs import LEVEL, SealedRun

pytestmark = [pytest.mark.limits, pytest.mark.slow]
CONTROLLERS = ("memory", "blkio")


@pytest.fixture
def sealed(on_disk: Path) -> Iterator[SealedRun]:
    """Make a run. Fails if it leaves a cgroup."""
    yield SealedRun(on_disk)
    left = groups()
    for group in sorted(left, reverse=True):
        group.rmdir()
    assert left == []


def groups() -> list[Path]:
    """Return the cgroups of this process's runs in every hierarchy."""
    tops = {mount for mount, _ in mount_points().values()}
    return [path for top in tops for path in top.rglob(f"pagecage-*{LEVEL.replace('-', '_')}*")]


def place_of(group: Cgroup, controller: str) -> Path:
    """Return the directory that has a controller."""
    found: Path | None = getattr(group, controller) or group.unified
    assert found is not None
    return found


def reasons(sealed: SealedRun, record: Record) -> list[str]:
    """Return why a record is excluded, but for other work on this machine."""
    found = sealed.verdicts(record).reasons
    return [sentence for sentence in found if not sentence.startswith("host not quiet")]


def test_a_trial_that_nothing_disturbs_is_included(sealed: SealedRun) -> None:
    assert sealed.ended() == 0, sealed.told()
    [record] = sealed.records()
    assert (record.outcome, reasons(sealed, record)) == ("ok", [])


@pytest.mark.parametrize("controller", CONTROLLERS)
def test_a_workload_that_is_moved_out_is_not_counted(sealed: SealedRun, controller: str) -> None:
    """It stays in the trial's groups of the other hierarchies. The next attempt is not moved."""
    with sealed.started("--dataset", "smoke") as run:
        pid, group = sealed.reading(run)
        place = place_of(group, controller)
        (place.parent / "cgroup.procs").write_text(str(pid))
        assert run.wait(120) == 0, sealed.told()
    first, *_, last = sealed.records()
    assert first.outcome == "not_prepared"
    assert f"not in its cage, but in {place.parent}" in (first.error or "")
    assert last.outcome == "ok"


def test_a_limit_that_another_program_writes_is_leaky(sealed: SealedRun) -> None:
    with sealed.started("--dataset", "smoke") as run:
        _, group = sealed.reading(run)
        name = "memory.limit_in_bytes" if group.memory else "memory.max"
        (place_of(group, "memory") / name).write_text(str(256 * MIB))
        assert run.wait(120) == 0, sealed.told()
    [record] = sealed.records()
    limits = {one.property: one for one in sealed.verdicts(record).limits}
    assert limits["MemoryMax"].verdict == "leaky"
    assert str(256 * MIB) in limits["MemoryMax"].reason
    assert reasons(sealed, record)


@pytest.mark.parametrize("controller", CONTROLLERS)
def test_a_hierarchy_that_is_unmounted_excludes_the_trial(
    sealed: SealedRun, controller: str
) -> None:
    """The next start, which has the hierarchy again, removes what the agent could not reach."""
    with sealed.started("--dataset", "smoke") as run:
        _, group = sealed.reading(run)
        sealed.inside(run, "umount", "--lazy", mount_of(place_of(group, controller)))
        run.wait(120)
    assert groups() != []
    first = sealed.records()[0]
    assert first.outcome != "ok" or reasons(sealed, first), first.error
    assert "stays, because its hierarchy is not mounted any more" in (first.error or "")
    assert sealed.ended() == 0, sealed.told()
    assert sealed.records()[-1].outcome == "ok"


@pytest.mark.parametrize("controller", CONTROLLERS)
def test_a_hierarchy_that_turns_read_only_is_told(sealed: SealedRun, controller: str) -> None:
    with sealed.started("--dataset", "smoke") as run:
        _, group = sealed.reading(run)
        mount = mount_of(place_of(group, controller))
        sealed.inside(run, "mount", "-o", "remount,bind,ro", mount)
        run.wait(120)
    assert groups() != []
    error = sealed.records()[0].error or ""
    assert "cannot be removed: Read-only file system" in error
    assert sealed.ended() == 0, sealed.told()
    assert sealed.records()[-1].outcome == "ok"


def test_a_group_that_cannot_be_removed_is_told_and_removed_later(sealed: SealedRun) -> None:
    """Another program has mounted a group below the trial's, as long as the run lasts."""
    with sealed.started("--dataset", "smoke") as run:
        _, group = sealed.reading(run)
        held = place_of(group, "memory") / "held"
        held.mkdir()
        sealed.inside(run, "mount", "--bind", str(held), str(held))
        run.wait(120)
    [record] = sealed.records()
    assert f"{held} cannot be removed: Device or resource busy" in (record.error or "")
    assert held.is_dir()
    assert sealed.ended() == 0, sealed.told()
    assert not held.exists()


def mount_of(directory: Path) -> str:
    return str(next(path for path in directory.parents if os.path.ismount(path)))
