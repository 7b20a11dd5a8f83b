"""The limits that the kernel enforces on a cgroup and its ancestors, read from cgroup files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pagecage.agent.system.kernel_text import parse_limits, read_text
from pagecage.model.cage import IO_MAX_KEY, MEMORY_FILE
from pagecage.units import exact_size

NAMES = (*IO_MAX_KEY, *MEMORY_FILE, "CPUQuota")


@dataclass(frozen=True)
class LimitInForce:
    """A limit in a file of one cgroup, under the name of systemd's property.

    `value` is in bytes, bytes per second, I/Os per second, or percent of one CPU. `maj_min` is the
    limited disk, None for memory and CPU.
    """

    name: str
    value: float
    cgroup: Path
    file: Path
    maj_min: str | None = None


def shown_value(name: str, value: float) -> str:
    """Return a limit's value with its unit."""
    if name == "CPUQuota":
        return f"{value:g} %"
    if "IOPS" in name:
        return f"{value:,.0f}"
    return exact_size(round(value), " ") + ("/s" if "Bandwidth" in name else "")


def limits_of(cgroup: Path) -> Iterator[LimitInForce]:
    """Yield the limits that are set on one cgroup itself (Documentation/admin-guide/cgroup-v2.rst).

    `max` is no limit.
    """
    for name, file_name in MEMORY_FILE.items():
        file = cgroup / file_name
        value = _number((read_text(file) or "").strip())
        if value is not None:
            yield LimitInForce(name, value, cgroup, file)
    quota, _, period = (read_text(cgroup / "cpu.max") or "").strip().partition(" ")
    numbers = _number(quota), _number(period)
    if numbers[0] is not None and numbers[1]:
        percent = 100 * numbers[0] / numbers[1]
        yield LimitInForce("CPUQuota", percent, cgroup, cgroup / "cpu.max")
    for maj_min, limits in parse_limits(read_text(cgroup / "io.max") or "").items():
        for name, key in IO_MAX_KEY.items():
            value = _number(limits.get(key, "max"))
            if value is not None:
                yield LimitInForce(name, value, cgroup, cgroup / "io.max", maj_min)


def _number(text: str) -> int | None:
    """Return a number of the kernel's; None for `max` and anything else."""
    return int(text) if text.isascii() and text.isdigit() else None


def all_limits(cgroups: Iterable[Path]) -> list[LimitInForce]:
    """Return the limits of several cgroups, in the order of the cgroups."""
    return [limit for cgroup in cgroups for limit in limits_of(cgroup)]


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
