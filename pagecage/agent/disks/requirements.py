"""The requirement of a cage that names several disks, checked against a host's facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pagecage.model.cage import DATA_DISK, Cage
from pagecage.model.requirements import MissedRequirement, Requirement


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
