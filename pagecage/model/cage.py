"""A cage: a named set of limits in systemd's own property names, and what the kernel must say once it is in force."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pagecage.units import page_floor_bytes

# systemd property -> key in io.max (systemd.resource-control(5); kernel cgroup-v2.rst, "IO Interface Files").
IO_MAX_KEY = {
    "IOReadBandwidthMax": "rbps",
    "IOWriteBandwidthMax": "wbps",
    "IOReadIOPSMax": "riops",
    "IOWriteIOPSMax": "wiops",
}
# systemd property -> the key of io.stat that it caps.
IO_STAT_KEY = {
    "IOReadBandwidthMax": "rbytes",
    "IOReadIOPSMax": "rios",
    "IOWriteBandwidthMax": "wbytes",
    "IOWriteIOPSMax": "wios",
}
BOTH_WAYS = {
    "iops": ("IOReadIOPSMax", "IOWriteIOPSMax"),
    "bandwidth": ("IOReadBandwidthMax", "IOWriteBandwidthMax"),
}
"""The caps that reads and writes share where a provider combines them, by what they count."""
# systemd property -> cgroup file.
MEMORY_FILE = {"MemoryMax": "memory.max", "MemorySwapMax": "memory.swap.max"}
PROPERTIES = (*MEMORY_FILE, *IO_MAX_KEY, "CPUQuota")
UNCAGED = "uncaged"

IOPS_GRAIN = 10
"""blk-throttle lets whole I/Os through in slices of 100 ms, and drops what is left of each (throtl_trim_slice)."""


def let_through(name: str, cap: float) -> float:
    """What the kernel makes of a cap: 38 I/Os a second were seen to be 30; bytes are as they were asked for."""
    return cap // IOPS_GRAIN * IOPS_GRAIN if "IOPS" in name and cap >= IOPS_GRAIN else cap


@dataclass(frozen=True)
class CloudVolume:
    """The cloud volume that a cage's limits were made from, and what they were multiplied by; None is not told."""

    provider: str | None = None
    type: str | None = None
    size_bytes: int | None = None
    iops: int | None = None
    throughput_bytes_per_second: int | None = None
    instance: str | None = None
    scale: float = 1.0


@dataclass(frozen=True)
class CreditBucket:
    """A token bucket: `rate` a second while its `credits` last, in I/Os or in bytes.

    It drains by what is used above the base (the cage's own limit) and refills by what is left of the base.
    """

    rate: int
    credits: int


@dataclass(frozen=True)
class BurstCredits:
    """The buckets over a cage's limits, and how full they are when a trial begins: full, half or drained."""

    start: str
    iops: CreditBucket | None = None
    bandwidth: CreditBucket | None = None


@dataclass(frozen=True)
class IoAccounting:
    """How the provider counts I/Os; None where that is not known.

    An I/O above `io_size_bytes` counts as several; `merged` is whether neighbours are merged before they are counted,
    `combined` whether reads and writes share one limit. io.max merges nothing and shares nothing.
    """

    io_size_bytes: int | None = None
    merged: bool | None = None
    combined: bool | None = None


@dataclass(frozen=True)
class LatencyFloor:
    """The least time of an I/O at the provider, which io.max cannot give; None where there is no floor."""

    read_us: int | None = None
    write_us: int | None = None


@dataclass(frozen=True)
class Cage:
    """Limits with every value resolved: bytes, bytes per second, I/Os per second, and percent of one CPU.

    An absent property is no limit. `provenance` says what the cage is and where its figures come from (about, source).
    `volume`, `burst`, `accounting` and `latency` are what a cloud does besides, and None where the cage is silent.
    """

    name: str
    properties: Mapping[str, int]
    provenance: Mapping[str, Any] = field(default_factory=dict)
    volume: CloudVolume | None = None
    burst: BurstCredits | None = None
    accounting: IoAccounting | None = None
    latency: LatencyFloor | None = None

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
    """The cage as it travels to a host and stands in a plan; null for what it does not say."""
    return {
        "name": cage.name, "properties": dict(cage.properties), "provenance": dict(cage.provenance),
        **{key: asdict(value) if value else None for key, value in _cloud(cage).items()},
    }  # fmt: skip


def cage_from_json(data: Mapping[str, Any]) -> Cage:
    """The inverse of `cage_to_json`; a plan from before clouds has none of theirs."""
    burst, told = data.get("burst"), {"volume": CloudVolume, "accounting": IoAccounting, "latency": LatencyFloor}
    return Cage(
        data["name"], dict(data["properties"]), dict(data.get("provenance", {})),
        burst=BurstCredits(burst["start"], _bucket(burst["iops"]), _bucket(burst["bandwidth"])) if burst else None,
        **{key: kind(**data[key]) for key, kind in told.items() if data.get(key)},
    )  # fmt: skip


def cloud_to_json(cage: Cage) -> dict[str, Any]:
    """What a cloud does besides the limits, as it stands in a record; nothing where the cage is silent."""
    return {key: asdict(value) for key, value in _cloud(cage).items() if value}


def _cloud(cage: Cage) -> dict[str, Any]:
    return {"volume": cage.volume, "burst": cage.burst, "accounting": cage.accounting, "latency": cage.latency}


def _bucket(data: Mapping[str, int] | None) -> CreditBucket | None:
    return CreditBucket(**data) if data else None
