"""A cage: limits on memory and on each disk, with their rates, layers and latencies."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from pagecage.model import json_codec
from pagecage.model.json_codec import Json, JsonView
from pagecage.units import page_floor_bytes

FILL = {"full": 1.0, "half": 0.5, "drained": 0.0}
"""Level of a bucket at a trial's start, by its name in a cage."""
HORIZON_SECONDS = 0.5
"""A limit is set only if the credits cover it for this long: five slices of blk-throttle."""
STEP = 1.25
"""Limits between base and burst differ by this factor or more, so that io.max is not rewritten for
every I/O."""


@dataclass(frozen=True)
class TokenBucket:
    """A bucket: `base` and `rate` per second, `capacity` and `credits`, in I/Os or in bytes.

    Negative `credits` are I/O that was admitted before the limit was lowered; they are paid back
    first. A bucket without capacity, whose rate does not exceed the base, is a plain limit.
    """

    base: float
    rate: float
    capacity: float
    credits: float

    def after(self, used: float, seconds: float) -> TokenBucket:
        return replace(self, credits=min(self.capacity, self.credits + self.base * seconds - used))

    @property
    def cap(self) -> int:
        """The limit to set now: the burst rate while credits last, then steps down to the base."""
        covered = self.base + max(0.0, self.credits) / HORIZON_SECONDS
        if covered >= self.rate:
            return round(self.rate)
        return round(self.base * STEP ** math.floor(math.log(covered / self.base, STEP)))

    def least_seconds(self, amount: float) -> float:
        """Return the least time in seconds in which `amount` can be transferred from now on."""
        left = max(0.0, self.credits)
        if self.rate <= self.base:
            return amount / self.base
        burst_seconds = left / (self.rate - self.base)
        if amount <= self.rate * burst_seconds:
            return amount / self.rate
        return (amount - left) / self.base


def filled(base: float, rate: float, capacity: float, start: str) -> TokenBucket:
    """Return a bucket at a trial's start: `full`, `half` or `drained`."""
    return TokenBucket(base, rate, capacity, FILL[start] * capacity)


HEADROOM = 1.25
"""A direction keeps its recent use times this factor, so that it can grow."""
PARTS = 16
"""Shares are multiples of 1/PARTS of the limit, so that io.max is not rewritten for every I/O."""


def split(limit: float, used: Mapping[str, float]) -> dict[str, int]:
    """Return each direction's part of a shared limit, from its recent use per second.

    A direction that becomes active may exceed it until the next split (`less_debt`).
    """
    total = sum(used.values())
    return {
        name: max(1, int(_share(limit, 1 - HEADROOM * ((total - own) / limit))))
        for name, own in used.items()
    }


def less_debt(limit: float, debt: float, horizon_seconds: float) -> float:
    """Return the limit reduced to pay back the debt within the horizon; at least half of it."""
    return _share(limit, 1 - debt / horizon_seconds / limit)


def _share(limit: float, wanted: float) -> float:
    return limit * max(PARTS // 2, min(PARTS, round(PARTS * wanted))) / PARTS


@dataclass(frozen=True)
class LayerLimit:
    """A limit of one layer, `volume` or `instance`, on reads, writes or both (`of`).

    `unit` is `operations`, counted by the provider's rules, or `bytes`. With `burst_per_second` and
    `credits` it is the base rate of a bucket.
    """

    layer: str
    of: str
    unit: str
    per_second: float
    burst_per_second: float | None = None
    credits: float | None = None


@dataclass(frozen=True)
class LatencyQuantiles:
    """The latency of requests of `size_bytes`: pairs of a probability and microseconds, ascending.

    Between two quantiles the logarithm of the latency is linear in the probability.
    """

    size_bytes: int
    quantiles: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class SnapshotRestore:
    """A volume created from a snapshot: the first touch of each block loads it at this rate."""

    bytes_per_second: float
    block_bytes: int


@dataclass(frozen=True)
class VolumeEvent:
    """An event of `kind` degrade, delay, pause, fail or detach.

    It applies to requests that arrive in its period, in seconds since the start of the measured
    part. Without `until_seconds` it lasts. `share` is that of the rates (degrade), or of the
    requests (delay, fail). A `fail` concerns the bytes from `first_byte` to before `end_byte`.
    """

    kind: str
    from_seconds: float = 0.0
    until_seconds: float | None = None
    share: float | None = None
    latency_us: float | None = None
    first_byte: int | None = None
    end_byte: int | None = None


@dataclass(frozen=True)
class VolumeSimulation:
    """A simulated volume; without `limits`, the cage's own I/O properties are its limits."""

    limits: tuple[LayerLimit, ...] = ()
    read_latency: tuple[LatencyQuantiles, ...] = ()
    write_latency: tuple[LatencyQuantiles, ...] = ()
    restore: SnapshotRestore | None = None
    events: tuple[VolumeEvent, ...] = ()


# systemd property -> key in io.max (systemd.resource-control(5); kernel cgroup-v2.rst, "IO
# Interface Files").
IO_MAX_KEY = {
    "IOReadBandwidthMax": "rbps",
    "IOWriteBandwidthMax": "wbps",
    "IOReadIOPSMax": "riops",
    "IOWriteIOPSMax": "wiops",
}
# systemd property -> the key of io.stat that it limits.
IO_STAT_KEY = {
    "IOReadBandwidthMax": "rbytes",
    "IOReadIOPSMax": "rios",
    "IOWriteBandwidthMax": "wbytes",
    "IOWriteIOPSMax": "wios",
}
SHARED_PROPERTIES = {
    "iops": ("IOReadIOPSMax", "IOWriteIOPSMax"),
    "bandwidth": ("IOReadBandwidthMax", "IOWriteBandwidthMax"),
}
"""The limits that reads and writes share if a provider combines them, by kind."""
# systemd property -> cgroup file.
MEMORY_FILE = {
    "MemoryMax": "memory.max",
    "MemoryHigh": "memory.high",
    "MemorySwapMax": "memory.swap.max",
}
MEMORY_EVENT = {"MemoryMax": "max", "MemoryHigh": "high"}
"""Keys of memory.events that count how often a memory limit was met, by property."""
PROPERTIES = (*MEMORY_FILE, *IO_MAX_KEY, "CPUQuota")
UNCAGED = "uncaged"
DATA_DISK = "data"
"""The name of the data directory's disk, which a cage's own I/O limits are for."""
Enforcer = Literal["cgroup", "volume"]
ENFORCERS: tuple[str, ...] = get_args(Enforcer)
"""Enforcers of a cage's I/O limits: io.max, or a simulated volume. The first is the default."""

IOPS_GRAIN = 10
"""blk-throttle admits whole I/Os per slice of 100 ms and drops the fraction (throtl_trim_slice)."""


def enforced_limit(name: str, cap: float) -> float:
    """Return the limit that the kernel enforces: IOPS are rounded down (38 to 30)."""
    return cap // IOPS_GRAIN * IOPS_GRAIN if "IOPS" in name and cap >= IOPS_GRAIN else cap


@dataclass(frozen=True)
class CloudVolume:
    """The cloud volume from which limits were computed, multiplied by `scale`; None: not given."""

    provider: str | None = None
    type: str | None = None
    size_bytes: int | None = None
    iops: int | None = None
    throughput_bytes_per_second: int | None = None
    instance: str | None = None
    scale: float = 1.0


@dataclass(frozen=True)
class CreditBucket:
    """`rate` per second while `credits` (I/Os or bytes) last. Unused base refills them."""

    rate: int
    credits: int


@dataclass(frozen=True)
class BurstCredits:
    """Credit buckets above a cage's limits, at a trial's `start` full, half or drained."""

    start: str
    iops: CreditBucket | None = None
    bandwidth: CreditBucket | None = None


@dataclass(frozen=True)
class IoAccounting:
    """The provider's rules of counting I/Os. None means unknown.

    An I/O larger than `io_size_bytes` counts as several. If `merged`, adjacent I/Os are merged
    before they are counted. If `combined`, reads and writes share one limit. io.max neither merges
    nor combines.
    """

    io_size_bytes: int | None = None
    merged: bool | None = None
    combined: bool | None = None


@dataclass(frozen=True)
class LatencyFloor:
    """The minimum latency of an I/O at the provider, beyond io.max; None means no minimum."""

    read_us: int | None = None
    write_us: int | None = None

    def __str__(self) -> str:
        sides = (("read", self.read_us), ("write", self.write_us))
        return " and ".join(f"{us / 1000:g} ms a {side}" for side, us in sides if us)


@dataclass(frozen=True)
class DiskLimits:
    """The limits of one disk beside the data directory's: I/O properties, and its cloud volume."""

    properties: Mapping[str, int]
    volume: CloudVolume | None = None
    burst: BurstCredits | None = None
    accounting: IoAccounting | None = None
    latency: LatencyFloor | None = None
    simulation: VolumeSimulation | None = None


@dataclass(frozen=True)
class Cage:
    """Limits as numbers: bytes, bytes per second, I/Os per second, and percent of one CPU.

    An absent property means no limit. `provenance` has a description and the source of the figures
    (about, source). `volume`, `burst`, `accounting`, `latency` and `simulation` describe a cloud
    volume; each may be None. `enforced_by` names what enforces the I/O limits. Rates are already
    divided, and latencies multiplied, by `dilation`. `disks` has the other disks by name; all else
    about I/O is of the data directory's disk.
    """

    name: str
    properties: Mapping[str, int]
    provenance: JsonView = field(default_factory=dict)
    volume: CloudVolume | None = None
    burst: BurstCredits | None = None
    accounting: IoAccounting | None = None
    latency: LatencyFloor | None = None
    simulation: VolumeSimulation | None = None
    enforced_by: str = ENFORCERS[0]
    dilation: float = 1.0
    disks: Mapping[str, DiskLimits] = field(default_factory=dict)

    @property
    def has_limits(self) -> bool:
        """True if any property is set, or another disk is named."""
        return bool(self.properties or self.disks)

    @property
    def limits_io(self) -> bool:
        return bool(self.disks) or any(name in self.properties for name in IO_MAX_KEY)

    @property
    def by_disk(self) -> dict[str, Cage]:
        """The cage of each disk by name, the data directory's first."""
        return {name: self.on_disk(name) for name in (DATA_DISK, *self.disks)}

    def on_disk(self, name: str) -> Cage:
        """Return the cage of a disk; of another than the data's the I/O limits alone."""
        if name == DATA_DISK:
            return self
        return Cage(
            self.name,
            **vars(self.disks[name]),
            enforced_by=self.enforced_by,
            dilation=self.dilation,
        )

    @property
    def is_volume(self) -> bool:
        """True if a simulated volume enforces the I/O limits, and not the cgroup."""
        return self.enforced_by == "volume"

    @property
    def cgroup_part(self) -> Cage:
        """The cage without everything that a simulated volume provides."""
        if not self.is_volume:
            return self
        others = {name: n for name, n in self.properties.items() if name not in IO_MAX_KEY}
        return Cage(self.name, others, self.provenance)


def property_arguments(
    cage: Cage, device_node: str, disk_nodes: Mapping[str, str] | None = None
) -> list[str]:
    """Return the arguments of `systemctl set-property` for the cage's slice.

    All I/O properties name the device by the same path: systemd writes all four keys for every
    path, so two paths of one disk would overwrite each other. A disk without a path in `disk_nodes`
    gets no limit. Accounting is on, so that totals exist without limits too.
    """
    arguments = ["MemoryAccounting=yes", "IOAccounting=yes", "CPUAccounting=yes"]
    for name, value in cage.properties.items():
        if name in IO_MAX_KEY:
            arguments.append(f"{name}={device_node} {value}")
        else:
            arguments.append(f"{name}={value}%" if name == "CPUQuota" else f"{name}={value}")
    for disk, limits in cage.disks.items():
        if node := (disk_nodes or {}).get(disk):
            arguments += [f"{name}={node} {value}" for name, value in limits.properties.items()]
    return arguments


def expected_read_back(cage: Cage, page_bytes: int) -> dict[str, str]:
    """Return the expected content of cgroup files, as {"io.max.rbps": ...}.

    The kernel rounds memory down to a page. CPUQuota is a share of 100 ms.
    """
    expected: dict[str, str] = {}
    for name, value in cage.properties.items():
        if name in MEMORY_FILE:
            expected[MEMORY_FILE[name]] = str(page_floor_bytes(value, page_bytes))
        elif name in IO_MAX_KEY:
            expected[f"io.max.{IO_MAX_KEY[name]}"] = str(value)
        else:
            expected["cpu.max"] = f"{value * 1000} 100000"
    return expected


def limits_not_in_force(
    expected: Mapping[str, str],
    read_back: Mapping[str, str],
    ancestors: Mapping[str, Mapping[str, str]],
) -> list[str]:
    """Return a sentence per missing limit, unrequested limit, and tighter limit of an ancestor."""
    wrong = [
        f"{k} is {read_back.get(k, 'missing')}, not {v}"
        for k, v in expected.items()
        if read_back.get(k) != v
    ]
    wrong += [
        f"{k} is {v}, which was not requested"
        for k, v in read_back.items()
        if k not in expected and not v.startswith("max")
    ]
    for name, limits in ancestors.items():
        shadowing = [
            key for key, value in limits.items() if _is_tighter(value, expected.get(key, "max"))
        ]
        wrong += [f"{name} has a tighter {key} ({limits[key]})" for key in shadowing]
    return wrong


def _is_tighter(above: str, own: str) -> bool:
    """Return whether an ancestor's limit, "max" or a number or cpu.max, binds first."""
    if above.startswith("max"):
        return False
    return own.startswith("max") or _weight_share(above) < _weight_share(own)


def _weight_share(limit: str) -> float:
    quota, _, period = limit.partition(" ")
    return float(quota) / float(period or 1)


CLOUD_PARTS = ("volume", "burst", "accounting", "latency", "simulation")
"""Properties of the cloud volume whose limits a cage, or one of its further disks, has."""


def cage_to_json(cage: Cage) -> Json:
    """Return the cage as JSON data for plans and hosts. Missing parts are null."""
    return dict(json_codec.to_json(cage))


def cage_from_json(data: JsonView) -> Cage:
    """Return the cage of JSON data. Raises PagecageError for an unknown key."""
    return json_codec.from_json(Cage, data, "cage")


def cloud_to_json(cage: Cage) -> Json:
    """Return the cloud's parts of the cage for the record, without those that are None."""
    parts = {name: getattr(cage, name) for name in CLOUD_PARTS}
    return {name: json_codec.to_json(part) for name, part in parts.items() if part}
