"""The limits of a cage's other disks: set on the slice or by volumes, and read back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pagecage.agent.limits.simulated_volume import sound_account
from pagecage.agent.storage import OtherDisk
from pagecage.agent.system.cgroup import Cgroup, ancestors
from pagecage.agent.system.cgroup_files import read_limits
from pagecage.agent.trial_run import RequirementMissed, TrialRun
from pagecage.errors import PagecageError
from pagecage.model.cage import expected_read_back, limits_not_in_force
from pagecage.model.cage_json import cloud_to_json
from pagecage.model.requirements import Requirement
from pagecage.units import kernel_page_bytes

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
