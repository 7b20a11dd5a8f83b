"""Requested limits beside those in force."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagecage.agent.system.cgroup import Cgroup
from pagecage.agent.system.cgroup_files import limit_file
from pagecage.model.cage import IO_MAX_KEY, MEMORY_FILE
from pagecage.units import KIB, format_bytes
from pagecage.verify.disks import IDLE_BYTES, WrittenDevice, disk_name, used_disks, written_device
from pagecage.verify.engines import container_id
from pagecage.verify.in_force import (
    LimitInForce,
    all_limits,
    shown_value,
    tightest,
)
from pagecage.verify.kernel import KernelTrees, lineage
from pagecage.verify.requested import RequestedLimit

STATES = ("in_force", "tighter", "weaker", "elsewhere", "lost")
FAILURES = ("weaker", "elsewhere", "lost")
MUCH_MORE = 10
"""Least ratio of the I/O on two disks that makes the busier one the disk with the data."""
_FLAT = "cgroup v1 does not hold limits on I/O below the group that has them"
_ROUNDED_BYTES = 64 * KIB  # the kernel rounds memory limits down to a page, of 64 KiB at most
_ROUNDED_PERCENT = 1.0  # a quota is compared in whole percent of one CPU


@dataclass(frozen=True)
class LimitComparison:
    """A requested limit, the tightest one in force at its place, and a word of STATES.

    `reason` is a clause for a failure.
    """

    requested: RequestedLimit
    found: LimitInForce | None
    state: str
    reason: str = ""

    @property
    def is_failure(self) -> bool:
        """True if the program has more than it was given."""
        return self.state in FAILURES

    def sentence(self, kernel: KernelTrees) -> str:
        """Return the comparison as one line."""
        asked, found = self.requested, self.found
        where = f" of {asked.device}" if asked.device else ""
        line = f"{asked.name}{where}: {shown_value(asked.name, asked.value)} asked by {asked.by}"
        if found is None:
            return f"{line}, in force: none: LOST ({self.reason})"
        line += f", in force: {shown_value(found.name, found.value)}"
        if self.state == "tighter":
            return f"{line}, set on {kernel.shown(found.file.parent)}"
        word = {"weaker": "WEAKER", "elsewhere": "WRONG DISK"}.get(self.state)
        return f"{line}: {word} ({self.reason})" if word else line

    def to_json(self, kernel: KernelTrees) -> dict[str, Any]:
        """Return the comparison as documented in docs/FORMAT.md."""
        asked, found = self.requested, self.found
        return {
            "name": asked.name,
            "device": asked.device,
            "by": asked.by,
            "asked": asked.value,
            "said": asked.basis,
            "in_force": None if found is None else found.value,
            "file": None if found is None else str(found.file),
            "state": self.state,
            "sentence": self.sentence(kernel),
        }


def compare(
    requested: Sequence[RequestedLimit],
    cgroup: Cgroup,
    kernel: KernelTrees,
    on_disks: AbstractSet[str] | None,
) -> list[LimitComparison]:
    """Compare each requested limit with the limits of its cgroup and of the ancestors.

    `cgroup` is that of the program, whose I/O shows on which disks its data are. `on_disks` are
    the disks of its open files; None if they are not known.
    """
    used = used_disks(cgroup)
    return [
        LimitComparison(one, None, "lost", _FLAT)
        if _is_of_a_parent(one, cgroup)
        else _compare_one(one, used, kernel, on_disks)
        for one in requested
    ]


def _is_of_a_parent(asked: RequestedLimit, cgroup: Cgroup) -> bool:
    """Return whether a limit on I/O was asked for a parent in version 1, where it does not hold."""
    place = asked.cgroup.blkio if asked.name in IO_MAX_KEY else None
    return place is not None and place != cgroup.blkio and place.is_dir()


def _compare_one(
    asked: RequestedLimit,
    used: Mapping[str, int],
    kernel: KernelTrees,
    on_disks: AbstractSet[str] | None,
) -> LimitComparison:
    device = WrittenDevice() if asked.device is None else written_device(asked.device, kernel)
    limits = all_limits(lineage(asked.cgroup, kernel))
    found = [one for one in tightest(limits) if _is_meant(one, asked, device)]
    best = min(found, key=lambda limit: limit.value, default=None)
    if best is None:
        return LimitComparison(asked, None, "lost", device.problem or _loss_reason(asked))
    if not _is_equal(asked, best):
        if best.value < asked.value:
            return LimitComparison(asked, best, "tighter")
        return LimitComparison(
            asked,
            best,
            "weaker",
            f"{_shown_file(best.file)} was changed, or set by another",
        )
    elsewhere = _data_elsewhere(asked, device, used, kernel, limits, on_disks)
    return LimitComparison(asked, best, "elsewhere" if elsewhere else "in_force", elsewhere)


def _is_meant(limit: LimitInForce, asked: RequestedLimit, device: WrittenDevice) -> bool:
    return limit.name == asked.name and (asked.device is None or limit.maj_min in device.disks)


def _is_equal(asked: RequestedLimit, found: LimitInForce) -> bool:
    margin = 0.0
    if asked.name in MEMORY_FILE:
        margin = _ROUNDED_BYTES - 1
    elif asked.name == "CPUQuota":
        margin = _ROUNDED_PERCENT
    return abs(asked.value - found.value) <= margin


def _loss_reason(asked: RequestedLimit) -> str:
    key = IO_MAX_KEY.get(asked.name)
    key = f"io.max.{key}" if key else MEMORY_FILE.get(asked.name, "cpu.max")
    file = limit_file(asked.cgroup, key)
    if file is None:
        return f"cgroup v1 has no {key}" if asked.cgroup.memory else f"no hierarchy has {key}"
    if file.name == "swaps":
        return "the kernel does not count swap (swapaccount=1 on its command line)"
    if file.exists():
        return f"{_shown_file(file)} has no such limit"
    return f"{_shown_file(file)} is missing: the controller is not enabled there"


def _shown_file(file: Path) -> str:
    """Return a cgroup's file in words; the name of a container's cgroup is long."""
    place = file.parent
    return f"the container's {file.name}" if container_id(place) else f"{file.name} of {place.name}"


def _data_elsewhere(
    asked: RequestedLimit,
    device: WrittenDevice,
    used: Mapping[str, int],
    kernel: KernelTrees,
    limits: Sequence[LimitInForce],
    on_disks: AbstractSet[str] | None,
) -> str:
    """Return why the limited disk is not the one with the data; empty if it may be.

    The program must have no file open on the limited disk, and must have used it little beside a
    disk without such a limit: programs and libraries are read from somewhere.
    """
    if asked.device is None or on_disks is None or not on_disks.isdisjoint(device.disks):
        return ""
    there = max((used.get(maj_min, 0) for maj_min in device.disks), default=0)
    others = _without_limit(asked.name, used, limits, max(IDLE_BYTES, MUCH_MORE * there))
    if not others:
        return ""
    names = ", ".join(disk_name(maj_min, kernel) for maj_min in others)
    moved = format_bytes(max(used[maj_min] for maj_min in others))
    return f"its I/O, {moved} so far, is on {names}, which has no such limit"


def _without_limit(
    name: str, used: Mapping[str, int], limits: Sequence[LimitInForce], least_bytes: int
) -> list[str]:
    """Return the disks with that much I/O and no limit of this name."""
    limited = {limit.maj_min for limit in limits if limit.name == name}
    return [disk for disk, count in used.items() if count >= least_bytes and disk not in limited]


def failures(comparisons: Sequence[LimitComparison]) -> Iterator[LimitComparison]:
    """Yield the comparisons whose limit is not in force as it was asked for."""
    return (one for one in comparisons if one.is_failure)
