"""The limits that the kernel enforces on a cgroup and its ancestors, read from cgroup files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pagecage.agent.system.cgroup import Cgroup
from pagecage.agent.system.cgroup_files import LimitFiles, limit_file, limited_disks
from pagecage.model.cage import IO_MAX_KEY, MEMORY_FILE
from pagecage.units import exact_size

NAMES = (*IO_MAX_KEY, *MEMORY_FILE, "CPUQuota")
_NOT_SHARED = ("memory.swappiness", "swaps")


@dataclass(frozen=True)
class LimitInForce:
    """A limit in a file of one cgroup, under the name of systemd's property.

    `value` is in bytes, bytes per second, I/Os per second, or percent of one CPU. `maj_min` is the
    limited disk, None for memory and CPU.
    """

    name: str
    value: float
    cgroup: Cgroup
    file: Path
    maj_min: str | None = None


def shown_value(name: str, value: float) -> str:
    """Return a limit's value with its unit."""
    if name == "CPUQuota":
        return f"{value:g} %"
    if "IOPS" in name:
        return f"{value:,.0f}"
    return exact_size(round(value), " ") + ("/s" if "Bandwidth" in name else "")


def limits_of(cgroup: Cgroup) -> Iterator[LimitInForce]:
    """Yield the limits that are set on one cgroup itself, by the names of version 2.

    `max` is no limit.
    """
    files = LimitFiles(cgroup)
    try:
        held = files.read("")
        on_disks = {disk: files.read(disk) for disk in limited_disks(cgroup)}
    finally:
        files.close()
    for name, file_name in MEMORY_FILE.items():
        value = _number(held.get(file_name, ""))
        if value is not None:
            yield from _limit(name, value, cgroup, file_name)
    quota, _, period = held.get("cpu.max", "").partition(" ")
    numbers = _number(quota), _number(period)
    if numbers[0] is not None and numbers[1]:
        yield from _limit("CPUQuota", 100 * numbers[0] / numbers[1], cgroup, "cpu.max")
    for maj_min, limits in on_disks.items():
        for name, key in IO_MAX_KEY.items():
            value = _number(limits.get(f"io.max.{key}", ""))
            if value is not None:
                yield from _limit(name, value, cgroup, f"io.max.{key}", maj_min)


def _limit(
    name: str, value: float, cgroup: Cgroup, key: str, maj_min: str | None = None
) -> Iterator[LimitInForce]:
    if (file := limit_file(cgroup, key)) is not None:
        yield LimitInForce(name, value, cgroup, file, maj_min)


def _number(text: str) -> int | None:
    """Return a number of the kernel's; None for `max` and anything else."""
    return int(text) if text.isascii() and text.isdigit() else None


def all_limits(cgroups: Sequence[Cgroup]) -> list[LimitInForce]:
    """Return the limits of a cgroup and of those whose limits hold for it, in their order.

    In version 1 the swappiness of a parent, or a machine without swap, is no limit of the parent
    (mm/vmscan.c, mem_cgroup_swappiness).
    """
    return [
        limit
        for number, cgroup in enumerate(cgroups)
        for limit in limits_of(cgroup)
        if number == 0 or limit.file.name not in _NOT_SHARED
    ]


def tightest(limits: Iterable[LimitInForce]) -> list[LimitInForce]:
    """Return the effective limit of each name and disk, in the order of NAMES.

    Of equal limits the first is returned, which is the nearest.
    """
    found: dict[tuple[str, str | None], LimitInForce] = {}
    for limit in limits:
        key = limit.name, limit.maj_min
        if key not in found or limit.value < found[key].value:
            found[key] = limit
    return sorted(found.values(), key=lambda limit: (NAMES.index(limit.name), limit.maj_min or ""))
