"""What systemd's resource properties amount to, however they were written (systemd.resource-control(5))."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from pagecage.errors import PagecageError
from pagecage.importers.quantities import cpu_percent, systemd_bytes, systemd_seconds
from pagecage.importers.result import (
    BlockLimit,
    ImportedLimit,
    ImportResult,
    Selection,
    UnsupportedLimit,
    of_one_device,
)
from pagecage.units import exact_size

MEMORY, IO = 1024, 1000
# Older names mean the same (systemd.resource-control(5), "Deprecated Options"); limits of cgroup v1's blkio among them.
OLDER = {
    "MemoryLimit": "MemoryMax",
    "BlockIOReadBandwidth": "IOReadBandwidthMax",
    "BlockIOWriteBandwidth": "IOWriteBandwidthMax",
}
BLOCK = ("IOReadBandwidthMax", "IOWriteBandwidthMax", "IOReadIOPSMax", "IOWriteIOPSMax")
_SHARE = "a weight binds only against neighbours, and a cage has none"
_LOST = {
    "MemoryHigh": "it slows a program down before its limit, and a cage has only the limit",
    "MemoryMin": "it protects memory and limits none",
    "MemoryLow": "it protects memory and limits none",
    "MemoryZSwapMax": "a cage has no limit for compressed swap",
    "CPUWeight": _SHARE,
    "CPUShares": _SHARE,
    "IOWeight": _SHARE,
    "IODeviceWeight": _SHARE,
    "IODeviceLatencyTargetSec": "a cage has no latency target: a target protects, and no floor is given by it",
    "AllowedCPUs": "a cage chooses no CPUs",
    "CPUAffinity": "a cage chooses no CPUs",
    "TasksMax": "a cage counts no processes",
    "ManagedOOMMemoryPressure": "a cage is not watched by systemd-oomd",
}
_READ = ("MemoryMax", "MemorySwapMax", "CPUQuota", *BLOCK)


@dataclass
class UnitProperties:
    """Assignments of one unit; an I/O limit is one for each device, and of anything else the last that was given."""

    single: dict[str, str] = field(default_factory=dict)
    block: dict[tuple[str, str], str] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)

    def assign(self, key: str, value: str) -> None:
        """One line `key=value`; an empty value takes back what was given before."""
        key = OLDER.get(key, key)
        if key in BLOCK:
            self._assign_block(key, value)
        elif key in _READ or key in _LOST:
            self.single[key] = value
        elif key not in self.ignored:
            self.ignored.append(key)

    def _assign_block(self, key: str, value: str) -> None:
        if not value:
            self.block = {place: rate for place, rate in self.block.items() if place[0] != key}
            return
        device, _, rate = value.rpartition(" ")
        if not device.strip():
            raise PagecageError(f"{key}={value} names no device", "as in IOReadBandwidthMax=/dev/vdb 20M")
        self.block[key, device.strip()] = rate.strip()


def imported(properties: UnitProperties, origin: str, picks: Selection) -> ImportResult:
    """The cage's keys of one unit."""
    blocks, others = of_one_device(list(_blocks(properties)), picks)
    lost = [
        UnsupportedLimit(f"{key}={value}", _LOST[key])
        for key, value in properties.single.items()
        if key in _LOST and value
    ]
    limits, unclear = _limits(properties.single)
    return ImportResult(
        origin, f"The limits of a customer's unit, from {origin}.", (*limits, *blocks), (*lost, *unclear, *others),
        tuple(properties.ignored),
    )  # fmt: skip


def _limits(single: dict[str, str]) -> tuple[list[ImportedLimit], list[UnsupportedLimit]]:
    carried: list[ImportedLimit] = []
    lost: list[UnsupportedLimit] = []
    for key in ("MemoryMax", "MemorySwapMax"):
        value = single.get(key, "")
        if value.endswith("%"):
            lost.append(
                UnsupportedLimit(
                    f"{key}={value}", "a share of the customer's memory, whose size the file does not tell"
                )
            )
        elif value:
            carried += _memory(key, value)
    if all(item.key != "MemoryMax" for item in carried):
        carried = [item for item in carried if item.value != "infinity"]  # no limit beside no limit
    if quota := single.get("CPUQuota"):
        carried += _cpu(quota)
    return carried, lost


def _memory(key: str, value: str) -> Iterator[ImportedLimit]:
    size = systemd_bytes(value, MEMORY)
    if size:
        yield ImportedLimit(key, exact_size(size), f"{key}={value}")
    elif key == "MemorySwapMax" and size is None:
        yield ImportedLimit(key, "infinity", f"{key}={value}")


def _cpu(value: str) -> Iterator[ImportedLimit]:
    """A percentage, or the CPU time for each second that `systemctl show` tells (CPUQuotaPerSecUSec)."""
    if value.endswith("%"):
        cpus: Decimal | None = (systemd_seconds(value.removesuffix("%").strip()) or Decimal()) / 100
    else:
        cpus = systemd_seconds(value)
    if cpus:
        yield ImportedLimit("CPUQuota", cpu_percent(cpus), f"CPUQuota={value}")


def _blocks(properties: UnitProperties) -> Iterator[BlockLimit]:
    for (key, device), written in properties.block.items():
        rate = systemd_bytes(written, IO)
        if rate is not None:
            yield BlockLimit(key, device, rate, f"{key}={device} {written}")


def pick_unit(units: dict[str, UnitProperties], picks: Selection) -> UnitProperties:
    """The single unit, or the one that was picked."""
    names: Sequence[str] = list(units)
    return units[picks.choose("unit", names)]
