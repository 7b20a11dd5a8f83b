"""A cage: a named set of limits in systemd's own property names, and what the kernel must say once it is in force."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pagecage.units import page_floor_bytes

# systemd property -> key in io.max (systemd.resource-control(5); kernel cgroup-v2.rst, "IO Interface Files").
IO_MAX_KEY = {
    "IOReadBandwidthMax": "rbps",
    "IOWriteBandwidthMax": "wbps",
    "IOReadIOPSMax": "riops",
    "IOWriteIOPSMax": "wiops",
}
# systemd property -> cgroup file.
MEMORY_FILE = {"MemoryMax": "memory.max", "MemorySwapMax": "memory.swap.max"}
PROPERTIES = (*MEMORY_FILE, *IO_MAX_KEY, "CPUQuota")
UNCAGED = "uncaged"


@dataclass(frozen=True)
class Cage:
    """Limits with every value resolved: bytes, bytes per second, I/Os per second, and percent of one CPU.

    An absent property is no limit. `provenance` says where the figures come from (provider, source_url, date).
    """

    name: str
    properties: Mapping[str, int]
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def limits_io(self) -> bool:
        """Whether any I/O property is set, so that the `io` controller is needed."""
        return any(name in self.properties for name in IO_MAX_KEY)


def property_arguments(cage: Cage, device_node: str) -> list[str]:
    """`systemctl set-property` arguments for the cage's slice, with plain numbers.

    One spelling of the device for all I/O properties: systemd writes all four keys for every path it is given, and two
    spellings of one disk overwrite each other. Accounting is switched on so that totals exist without limits too.
    """
    arguments = ["MemoryAccounting=yes", "IOAccounting=yes", "CPUAccounting=yes"]
    for name, value in cage.properties.items():
        if name in IO_MAX_KEY:
            arguments.append(f"{name}={device_node} {value}")
        else:
            arguments.append(f"{name}={value}%" if name == "CPUQuota" else f"{name}={value}")
    return arguments


def expected_read_back(cage: Cage) -> dict[str, str]:
    """What the cgroup files must say: {"memory.max": "...", "io.max.rbps": "...", "cpu.max": "..."}.

    Memory limits are rounded down to a page by the kernel; CPUQuota is a share of systemd's default 100 ms period.
    """
    expected: dict[str, str] = {}
    for name, value in cage.properties.items():
        if name in MEMORY_FILE:
            expected[MEMORY_FILE[name]] = str(page_floor_bytes(value))
        elif name in IO_MAX_KEY:
            expected[f"io.max.{IO_MAX_KEY[name]}"] = str(value)
        else:
            expected["cpu.max"] = f"{value * 1000} 100000"
    return expected


def limits_not_in_force(
    expected: Mapping[str, str], read_back: Mapping[str, str], ancestors: Mapping[str, Mapping[str, str]]
) -> list[str]:
    """What the cgroup files contradict: a limit that is not there, one that nobody asked for, a tighter one above."""
    wrong = [f"{k} is {read_back.get(k, 'missing')}, not {v}" for k, v in expected.items() if read_back.get(k) != v]
    wrong += [f"{k} is {v}, unasked" for k, v in read_back.items() if k not in expected and not v.startswith("max")]
    for name, limits in ancestors.items():
        shadowing = [key for key, value in limits.items() if _is_tighter(value, expected.get(key, "max"))]
        wrong += [f"{name} has a tighter {key} ({limits[key]})" for key in shadowing]
    return wrong


def _is_tighter(above: str, ours: str) -> bool:
    """Whether a limit of an ancestor binds before ours; "max" is none. cpu.max is a quota and a period."""
    if above.startswith("max"):
        return False
    return ours.startswith("max") or _share(above) < _share(ours)


def _share(limit: str) -> float:
    quota, _, period = limit.partition(" ")
    return float(quota) / float(period or 1)


def cage_to_json(cage: Cage) -> dict[str, Any]:
    """The cage as it travels to a host and stands in a plan."""
    return {"name": cage.name, "properties": dict(cage.properties), "provenance": dict(cage.provenance)}


def cage_from_json(data: Mapping[str, Any]) -> Cage:
    """The inverse of `cage_to_json`."""
    return Cage(data["name"], dict(data["properties"]), dict(data.get("provenance", {})))
