"""A Compose file, or what `docker compose config` makes of it (Compose Specification, "services" and "deploy")."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from pagecage.importers.document import Document, rows, table
from pagecage.importers.quantities import cpu_percent, docker_bytes, kubernetes_quantity
from pagecage.importers.result import (
    BANDWIDTH,
    BlockLimit,
    ImportedLimit,
    ImportResult,
    Selection,
    UnsupportedLimit,
    of_one_device,
)
from pagecage.units import exact_size

_BLOCK = {
    "device_read_bps": "IOReadBandwidthMax",
    "device_write_bps": "IOWriteBandwidthMax",
    "device_read_iops": "IOReadIOPSMax",
    "device_write_iops": "IOWriteIOPSMax",
}
_SHARE = "a share binds only against neighbours, and a cage has none"
_LOST = {
    "cpu_shares": _SHARE,
    "cpuset": "a cage chooses no CPUs",
    "cpu_rt_runtime": "a cage has no real-time quota",
    "mem_reservation": "it protects memory and limits none",
    "mem_swappiness": "a cage leaves swappiness to the host",
    "oom_kill_disable": "a cage kills at its limit",
    "pids_limit": "a cage counts no processes",
}
_READ = ("mem_limit", "memswap_limit", "cpus", "cpu_quota", "cpu_period", "blkio_config", "deploy")
_VARIABLE = re.compile(r"\$\{?[A-Za-z_]")


def recognise(document: Document) -> bool:
    """Whether it has services, each of them a table."""
    services = table(document.tree, "services")
    return bool(services) and all(isinstance(service, dict) for service in services.values())


def read(document: Document, picks: Selection) -> ImportResult:
    """The limits of one service. A variable that nobody filled in is lost, not guessed."""
    services = table(document.tree, "services")
    name = picks.choose("service", list(services))
    service, open_ones = _without_variables(services[name])
    blocks, other_devices = of_one_device(list(_blocks(table(service, "blkio_config"))), picks)
    lost = [UnsupportedLimit(f"{key} = {service[key]}", why) for key, why in _LOST.items() if key in service]
    lost += [
        UnsupportedLimit(f"blkio_config.{key}", _SHARE)
        for key in table(service, "blkio_config")
        if key.startswith("weight")
    ]
    ignored = tuple(key for key in service if key not in _LOST and key not in _READ)
    limits = table(service, "deploy", "resources", "limits")
    return ImportResult(
        "a docker compose file", "The limits of a customer's service, from a docker compose file.",
        (*_memory(service, limits), *_cpu(service, limits), *blocks),
        (*lost, *_lost_limits(limits, table(service, "deploy", "resources")), *open_ones, *other_devices), ignored,
    )  # fmt: skip


def _without_variables(tree: Any) -> tuple[Any, list[UnsupportedLimit]]:
    """The service without values that a variable stands for, and those values."""
    if not isinstance(tree, dict):
        return tree, []
    kept, lost = {}, []
    for key, value in tree.items():
        if isinstance(value, str) and _VARIABLE.search(value) and key in (*_READ, *_LOST, "memory", "pids"):
            lost.append(
                UnsupportedLimit(f"{key} = {value}", "a variable: import what `docker compose config` prints instead")
            )
        else:
            kept[key], inner = _without_variables(value)
            lost += inner
    return kept, lost


def _memory(service: dict[str, Any], limits: dict[str, Any]) -> Iterator[ImportedLimit]:
    key, said = ("mem_limit", "mem_limit") if "mem_limit" in service else ("memory", "deploy.resources.limits.memory")
    written = service.get(key) if key == "mem_limit" else limits.get(key)
    if not written or not (memory := docker_bytes(written)):
        return
    yield ImportedLimit("MemoryMax", exact_size(memory), f"{said} = {written} (powers of 1024)")
    both = service.get("memswap_limit")
    if both in (-1, "-1"):
        yield ImportedLimit("MemorySwapMax", "infinity", "memswap_limit = -1, which is no limit")
        return
    swap = (docker_bytes(both) if both else 2 * memory) - memory
    if swap > 0:
        said = f"memswap_limit = {both}, memory and swap together" if both else "not told, so as much as memory"
        yield ImportedLimit("MemorySwapMax", exact_size(swap), said)


def _cpu(service: dict[str, Any], limits: dict[str, Any]) -> Iterator[ImportedLimit]:
    for where, written in (("cpus", service.get("cpus")), ("deploy.resources.limits.cpus", limits.get("cpus"))):
        if written and (cpus := kubernetes_quantity(written)):
            yield ImportedLimit("CPUQuota", cpu_percent(cpus), f"{where} = {written}")
            return
    if (quota := int(service.get("cpu_quota") or 0)) > 0:
        period = int(service.get("cpu_period") or 100_000)
        said = f"cpu_quota = {quota} us of every {period} us"
        yield ImportedLimit("CPUQuota", cpu_percent(Decimal(quota) / period), said)


def _blocks(blkio: dict[str, Any]) -> Iterator[BlockLimit]:
    for key, name in _BLOCK.items():
        for row in rows(blkio.get(key) or []):
            written = row.get("rate", 0)
            rate = docker_bytes(written) if name in BANDWIDTH else int(written)
            yield BlockLimit(name, str(row.get("path")), rate, f"blkio_config.{key} of {row.get('path')} = {written}")


def _lost_limits(limits: dict[str, Any], resources: dict[str, Any]) -> Iterator[UnsupportedLimit]:
    for key in limits:
        if key not in ("memory", "cpus"):
            yield UnsupportedLimit(f"deploy.resources.limits.{key} = {limits[key]}", "a cage has no such limit")
    if "reservations" in resources:
        yield UnsupportedLimit("deploy.resources.reservations", "it protects and limits nothing")
