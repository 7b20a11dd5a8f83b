"""The other disks of a cage: their folders, limits, requirements and writeback."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pagecage.agent.limits.simulated_volume import SimulatedVolume, sound_account
from pagecage.agent.storage import OtherDisk, Storage, outer_volume
from pagecage.agent.trial_run import RequirementMissed, TrialRun
from pagecage.agent.trial_storage import mount_volume, release_volume
from pagecage.errors import PagecageError
from pagecage.linux.block_device import Disk, has_cgroup_writeback, resolve_disk
from pagecage.linux.cgroup import Cgroup, ancestors
from pagecage.linux.cgroup_files import read_limits
from pagecage.model.cage import (
    DATA_DISK,
    Cage,
    cloud_to_json,
    expected_read_back,
    limits_not_in_force,
)
from pagecage.model.requirements import MissedRequirement, Requirement
from pagecage.units import MIB, kernel_page_bytes

_PLACE = re.compile(r"\{disk\.([a-z][a-z0-9]*)\}")
_SPARE_BYTES = 256 * MIB
"""Room on a simulated volume for the files that calibration makes."""


def prepare_disks(run: TrialRun, storage: Storage) -> Storage:
    """Return the storage with the cage's other disks, and an empty folder for each named disk.

    Raises RequirementMissed if this host cannot provide a disk.
    """
    disks = {name: _disk_of(run, name) for name in run.trial.cage.disks}
    beside = {
        name: storage.data_dir / _folder(name)
        for name in dict.fromkeys(_named(run))
        if name not in disks
    }
    folders = beside | {name: disk.folder for name, disk in disks.items()}
    for folder in folders.values():
        run.cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    return replace(storage, disks=disks, folders=folders)


def _named(run: TrialRun) -> Iterator[str]:
    """Yield the names of the disks in the arguments of the workload and of the setup step."""
    trial = run.trial
    before = trial.before.arguments if trial.before else ()
    for argument in (*trial.workload.arguments, *before):
        yield from _PLACE.findall(argument)


def _folder(name: str) -> str:
    return f"pagecage-{name}"


def _disk_of(run: TrialRun, name: str) -> OtherDisk:
    if run.trial.cage.is_volume:
        return _on_volume(run, name)
    root = Path(run.session.request.disks[name])
    try:
        root.mkdir(parents=True, exist_ok=True)
        return OtherDisk(resolve_disk(root), root, root / _folder(name))
    except (PagecageError, OSError) as error:
        reason = getattr(error, "message", None) or str(error)
        raise RequirementMissed.of(Requirement.OTHER_DISK, f"{name}: {reason}") from None


def _on_volume(run: TrialRun, name: str) -> OtherDisk:
    """Return a disk of our guest, which its controller serves, or a volume served here."""
    session = run.session
    try:
        if volume := outer_volume(run, name):
            root = Path(session.request.disks[name])
            return OtherDisk(resolve_disk(root), root, root / _folder(name), volume)
        mounted = mount_volume(
            run.trial.writes_bytes + _SPARE_BYTES,
            Path(session.request.data_dir),
            session.request.spool,
            name,
        )
    except (PagecageError, OSError, KeyError) as error:
        reason = f"no simulated volume {name} here: {getattr(error, 'message', None) or error}"
        hint = getattr(error, "hint", "")
        raise RequirementMissed.of(Requirement.VOLUME, reason, hint) from None
    run.cleanup.callback(release_volume, mounted, session.request.spool, name)
    root = mounted.storage.mount_point
    volume = SimulatedVolume(mounted.server.command, mounted.path)
    return OtherDisk(mounted.storage.disk, root, root / _folder(name), volume)


_SEED_STEP = 1000
"""Difference between the seeds of two volumes of a trial; repeats are far fewer."""


def keep_disk_limits(run: TrialRun, disks: Mapping[str, OtherDisk], cgroup: Cgroup) -> None:
    """Keep the limits of the slice on each disk, as the kernel has them.

    Raises RequirementMissed if one is not in force.
    """
    for name, other in disks.items():
        cage, maj_min = run.trial.cage.on_disk(name), other.disk.maj_min
        expected = expected_read_back(cage.cgroup_part, kernel_page_bytes())
        read_back = _read_back(cgroup, maj_min)
        above = {str(one): _read_back(one, maj_min) for one in ancestors(cgroup)}
        run.keep_of_disk(
            name,
            "cage",
            name=cage.name,
            requested=dict(cage.properties),
            slice=str(cgroup),
            expected=expected,
            read_back=read_back,
            ancestors=above,
            **cloud_to_json(cage),
            enforced_by=cage.enforced_by,
            dilation=cage.dilation,
        )
        wrong = limits_not_in_force(expected, read_back, above)
        _refuse([f"{name}: {sentence}" for sentence in wrong])


def _read_back(cgroup: Cgroup, maj_min: str) -> dict[str, str]:
    """Return the I/O limits alone; those on memory and CPU have no disk."""
    limits = read_limits(cgroup, maj_min)
    return {key: value for key, value in limits.items() if key.startswith("io.max")}


def enforce_by_volumes(run: TrialRun, disks: Mapping[str, OtherDisk]) -> None:
    """Put the limits of the volumes in force, with fresh credits and empty accounts.

    Raises RequirementMissed. Each volume has latencies of its own, which a repeated run has again.
    """
    for number, (name, other) in enumerate(disks.items(), start=1):
        if other.volume is None:
            continue
        cage = run.trial.cage.on_disk(name)
        try:
            external = other.volume.enforce(cage, run.trial.repeat + _SEED_STEP * number)
        except PagecageError as error:
            raise RequirementMissed.of(Requirement.LIMITS, error.message, error.hint) from None
        run.keep_of_disk(name, "cage", external=external.to_json())
        held = external.read_back
        _refuse(
            [
                f"{name}: {external.by} holds {prop} at {held.get(prop)}"
                for prop, value in cage.properties.items()
                if held.get(prop) != value
            ]
        )


def keep_accounts(run: TrialRun, disks: Mapping[str, OtherDisk]) -> None:
    """Keep each volume's own account of the measured part."""
    for name, other in disks.items():
        if other.volume is not None:
            external: dict[str, Any] = run.disks[name]["cage"]["external"]
            external["account"] = sound_account(other.volume)


def _refuse(wrong: list[str]) -> None:
    if wrong:
        raise RequirementMissed.of(
            Requirement.LIMITS, f"limits are not as asked: {'; '.join(wrong)}", "pagecage doctor"
        )


def check_disks(facts: Mapping[str, Any], cage: Cage) -> list[MissedRequirement]:
    """Return why the cage's other disks cannot be those of a host.

    The kernel keeps one limit per disk, so that two names of one disk would share it. Volumes that
    are simulated need no disk.
    """
    if cage.is_volume:
        return []
    found, taken = facts.get("disks") or {}, {facts["disk"].get("maj_min"): DATA_DISK}
    missed = []
    for name in cage.disks:
        disk = found.get(name) or {"error": f"this host has no disk {name!r}"}
        reason = disk.get("error")
        if reason is None and (other := taken.get(disk["maj_min"])):
            reason = f"{name} and {other} are both {disk['node']}, for which there is one limit"
        taken[disk.get("maj_min")] = name
        if reason:
            reason = f"{cage.name} limits a disk {name!r} of its own, but {reason}"
            missed.append(MissedRequirement(Requirement.OTHER_DISK, reason, _disk_hint(name)))
    return missed


def _disk_hint(name: str) -> str:
    return f"use --host vm, or name a directory on another disk: --disk {name}=DIR"


def require_cgroup_writeback(run: TrialRun, storage: Storage, disk: Disk) -> None:
    """Raise RequirementMissed if a limit on writes would not hold for buffered writes to a disk.

    Its limit reads back well, and direct writes and the program's own fsync keep it. The kernel's
    flusher does not: its writes are charged to the root cgroup
    (Documentation/admin-guide/cgroup-v2.rst, "Writeback").
    """
    for reason in unlimited_writes(_limited(run, storage, disk)):
        hint = "put the data on ext4 (without data=journal), XFS or btrfs, or remove these limits"
        raise RequirementMissed.of(Requirement.LIMITS, reason, hint)


def _limited(
    run: TrialRun, storage: Storage, disk: Disk
) -> Iterator[tuple[Disk, Mapping[str, int]]]:
    """Yield each disk with its limits on the cgroup."""
    cage = run.trial.cage.cgroup_part
    yield disk, cage.properties
    for name, limits in cage.disks.items():
        yield storage.disks[name].disk, limits.properties


def unlimited_writes(
    limited: Iterator[tuple[Disk, Mapping[str, int]]], mountinfo: str | None = None
) -> Iterator[str]:
    """Yield a sentence per disk with a limit on writes and without writeback by cgroup."""
    for disk, properties in limited:
        names = [name for name in properties if name.startswith("IOWrite")]
        if names and not has_cgroup_writeback(Path(disk.mount_point), mountinfo):
            yield (
                f"{disk.mount_point} is {disk.filesystem} with writeback outside of the trial's"
                f" cgroup, where {' and '.join(names)} would not hold for buffered writes"
            )
