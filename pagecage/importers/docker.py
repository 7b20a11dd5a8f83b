"""Containers as `docker inspect CONTAINER` describes them (Docker Engine API, ContainerInspect)."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from pagecage.importers.document import Document, Table, cpu_percent, rows, table
from pagecage.importers.result import (
    CPU_LIST,
    PROCESSES,
    PROTECTION,
    WEIGHT,
    BlockLimit,
    ImportedLimit,
    Importer,
    ImportResult,
    Selection,
    UnsupportedLimit,
    limits_of_one_device,
    quota_limit,
    swap_limit,
)
from pagecage.units import exact_size

_BLOCK = {
    "BlkioDeviceReadBps": "IOReadBandwidthMax",
    "BlkioDeviceWriteBps": "IOWriteBandwidthMax",
    "BlkioDeviceReadIOps": "IOReadIOPSMax",
    "BlkioDeviceWriteIOps": "IOWriteIOPSMax",
}
_UNSUPPORTED = {
    "CpuShares": WEIGHT,
    "BlkioWeight": WEIGHT,
    "BlkioWeightDevice": WEIGHT,
    "MemoryReservation": PROTECTION,
    "CpusetCpus": CPU_LIST,
    "CpusetMems": "a cage does not select memory nodes",
    "CpuRealtimeRuntime": "a cage has no real-time quota",
    "PidsLimit": PROCESSES,
    "OomKillDisable": "the kernel kills a program that exceeds a cage's MemoryMax",
    "KernelMemory": "memory.max includes the kernel's memory",
    "StorageOpt": "a cage does not limit disk space",
}
_SUPPORTED = ("Memory", "MemorySwap", "NanoCpus", "CpuQuota", "CpuPeriod", *_BLOCK)


def recognise(document: Document) -> bool:
    containers = rows(document.tree)
    return bool(containers) and all("HostConfig" in row and "Id" in row for row in containers)


def read(document: Document, selection: Selection) -> ImportResult:
    containers = {
        str(row.get("Name") or row["Id"]).lstrip("/"): table(row, "HostConfig")
        for row in rows(document.tree)
    }
    config = containers[selection.choose("container", list(containers))]
    blocks, other_devices = limits_of_one_device(list(block_limits(config)), selection)
    unsupported = tuple(
        UnsupportedLimit(f"HostConfig.{key} = {config[key]}", reason)
        for key, reason in _UNSUPPORTED.items()
        if _is_set(config.get(key))
    )
    ignored = (
        key
        for key in config
        if key not in _UNSUPPORTED and key not in _SUPPORTED and _is_set(config[key])
    )
    return ImportResult(
        "docker inspect",
        "The limits of a customer's container, from docker inspect.",
        (*memory_limits(config), *cpu_limits(config), *blocks),
        (*unsupported, *other_devices),
        tuple(f"HostConfig.{key}" for key in ignored),
    )


def _is_set(value: Any) -> bool:
    return value not in (None, 0, -1, "", [], {}, False)


def memory_limits(config: Table) -> Iterator[ImportedLimit]:
    """Read Memory, and MemorySwap, which is memory and swap: by default twice the memory."""
    memory, total = int(config.get("Memory") or 0), int(config.get("MemorySwap") or 0)
    if memory <= 0:
        return
    yield ImportedLimit("MemoryMax", exact_size(memory), f"HostConfig.Memory = {memory}")
    yield from swap_limit(memory, total, "HostConfig.MemorySwap", total)


def cpu_limits(config: Table) -> Iterator[ImportedLimit]:
    """Read NanoCpus, or CpuQuota and CpuPeriod."""
    nano, quota = int(config.get("NanoCpus") or 0), int(config.get("CpuQuota") or 0)
    if nano > 0:
        cpus = cpu_percent(Decimal(nano) / 10**9)
        yield ImportedLimit("CPUQuota", cpus, f"HostConfig.NanoCpus = {nano}")
    else:
        yield from quota_limit("HostConfig.CpuQuota", quota, int(config.get("CpuPeriod") or 0))


def block_limits(config: Table) -> Iterator[BlockLimit]:
    for key, name in _BLOCK.items():
        for row in rows(config.get(key) or []):
            basis = f"HostConfig.{key} of {row.get('Path')} = {row.get('Rate')}"
            yield BlockLimit(name, str(row.get("Path")), int(row.get("Rate") or 0), basis)


IMPORTERS = (Importer(recognise, read),)
