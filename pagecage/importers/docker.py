"""`docker inspect CONTAINER`: limits are plain numbers in HostConfig (Docker Engine API, ContainerInspect)."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from pagecage.importers.document import Document, rows, table
from pagecage.importers.quantities import cpu_percent
from pagecage.importers.result import (
    BlockLimit,
    ImportedLimit,
    ImportResult,
    Selection,
    UnsupportedLimit,
    of_one_device,
)
from pagecage.units import exact_size

_BLOCK = {
    "BlkioDeviceReadBps": "IOReadBandwidthMax",
    "BlkioDeviceWriteBps": "IOWriteBandwidthMax",
    "BlkioDeviceReadIOps": "IOReadIOPSMax",
    "BlkioDeviceWriteIOps": "IOWriteIOPSMax",
}
_SHARE = "a share binds only against neighbours, and a cage has none"
_LOST = {
    "CpuShares": _SHARE,
    "BlkioWeight": _SHARE,
    "BlkioWeightDevice": _SHARE,
    "MemoryReservation": "it protects memory (memory.low) and limits none",
    "CpusetCpus": "a cage chooses no CPUs",
    "CpusetMems": "a cage chooses no memory nodes",
    "CpuRealtimeRuntime": "a cage has no real-time quota",
    "PidsLimit": "a cage counts no processes",
    "OomKillDisable": "a cage kills at its limit",
    "KernelMemory": "memory.max counts the kernel's share too",
    "StorageOpt": "a cage limits no disk space",
}
_READ = ("Memory", "MemorySwap", "NanoCpus", "CpuQuota", "CpuPeriod", *_BLOCK)


def recognise(document: Document) -> bool:
    """Whether it is what `docker inspect` prints of a container."""
    found = rows(document.tree)
    return bool(found) and all("HostConfig" in row and "Id" in row for row in found)


def read(document: Document, picks: Selection) -> ImportResult:
    """The limits of one container."""
    containers = {_name(row): table(row, "HostConfig") for row in rows(document.tree)}
    name = picks.choose("container", list(containers))
    host = containers[name]
    blocks, other_devices = of_one_device(list(_blocks(host)), picks)
    lost = tuple(
        UnsupportedLimit(f"HostConfig.{key} = {host[key]}", why) for key, why in _LOST.items() if _is_set(host.get(key))
    )
    ignored = tuple(f"HostConfig.{key}" for key in host if key not in _LOST and key not in _READ and _is_set(host[key]))
    return ImportResult(
        "docker inspect", "The limits of a customer's container, from docker inspect.",
        (*_memory(host), *_cpu(host), *blocks), (*lost, *other_devices), ignored,
    )  # fmt: skip


def _name(row: dict[str, Any]) -> str:
    return str(row.get("Name") or row["Id"]).lstrip("/")


def _is_set(value: Any) -> bool:
    return value not in (None, 0, -1, "", [], {}, False)


def _memory(host: dict[str, Any]) -> Iterator[ImportedLimit]:
    memory, both = int(host.get("Memory") or 0), int(host.get("MemorySwap") or 0)
    if memory <= 0:
        return
    yield ImportedLimit("MemoryMax", exact_size(memory), f"HostConfig.Memory = {memory}")
    if both < 0:
        yield ImportedLimit("MemorySwapMax", "infinity", f"HostConfig.MemorySwap = {both}, which is no limit")
    elif swap := (both or 2 * memory) - memory:
        said = f"HostConfig.MemorySwap = {both}, memory and swap together" if both else "not told, so as much as memory"
        yield ImportedLimit("MemorySwapMax", exact_size(swap), said)


def _cpu(host: dict[str, Any]) -> Iterator[ImportedLimit]:
    nano, quota = int(host.get("NanoCpus") or 0), int(host.get("CpuQuota") or 0)
    period = int(host.get("CpuPeriod") or 0) or 100_000
    if nano > 0:
        yield ImportedLimit("CPUQuota", cpu_percent(Decimal(nano) / 10**9), f"HostConfig.NanoCpus = {nano}")
    elif quota > 0:
        said = f"HostConfig.CpuQuota = {quota} us of every {period} us"
        yield ImportedLimit("CPUQuota", cpu_percent(Decimal(quota) / period), said)


def _blocks(host: dict[str, Any]) -> Iterator[BlockLimit]:
    for key, name in _BLOCK.items():
        for row in rows(host.get(key) or []):
            said = f"HostConfig.{key} of {row.get('Path')} = {row.get('Rate')}"
            yield BlockLimit(name, str(row.get("Path")), int(row.get("Rate") or 0), said)
