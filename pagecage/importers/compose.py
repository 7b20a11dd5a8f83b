"""Services of a Compose file (Compose Specification, "services" and "deploy")."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from pagecage.importers.document import Document, rows, table
from pagecage.importers.quantities import cpu_percent, docker_bytes, kubernetes_quantity
from pagecage.importers.result import (
    BANDWIDTH,
    CPU_LIST,
    NO_SUCH_LIMIT,
    PROCESSES,
    PROTECTION,
    WEIGHT,
    BlockLimit,
    ImportedLimit,
    ImportResult,
    Selection,
    UnsupportedLimit,
    limits_of_one_device,
)
from pagecage.units import exact_size

_BLOCK = {
    "device_read_bps": "IOReadBandwidthMax",
    "device_write_bps": "IOWriteBandwidthMax",
    "device_read_iops": "IOReadIOPSMax",
    "device_write_iops": "IOWriteIOPSMax",
}
_UNSUPPORTED = {
    "cpu_shares": WEIGHT,
    "cpuset": CPU_LIST,
    "cpu_rt_runtime": "a cage has no real-time quota",
    "mem_reservation": PROTECTION,
    "mem_swappiness": "a cage leaves swappiness to the host",
    "oom_kill_disable": "the kernel kills a program that exceeds a cage's MemoryMax",
    "pids_limit": PROCESSES,
}
_SUPPORTED = (
    "mem_limit",
    "memswap_limit",
    "cpus",
    "cpu_quota",
    "cpu_period",
    "blkio_config",
    "deploy",
)
_VARIABLE = re.compile(r"\$\{?[A-Za-z_]")


def recognise(document: Document) -> bool:
    """Return whether this has services, each of them a table."""
    services = table(document.tree, "services")
    return bool(services) and all(isinstance(service, dict) for service in services.values())


def read(document: Document, selection: Selection) -> ImportResult:
    """Read the limits of one service. A variable without a value is unsupported, not guessed."""
    services = table(document.tree, "services")
    service, variables = _without_variables(services[selection.choose("service", list(services))])
    limits = table(service, "deploy", "resources", "limits")
    blocks, other_devices = limits_of_one_device(
        list(_block_limits(table(service, "blkio_config"))), selection
    )
    ignored = tuple(key for key in service if key not in _UNSUPPORTED and key not in _SUPPORTED)
    return ImportResult(
        "a docker compose file",
        "The limits of a customer's service, from a docker compose file.",
        (*_memory(service, limits), *_cpu(service, limits), *blocks),
        (*_unsupported(service), *variables, *other_devices),
        ignored,
    )


def _without_variables(tree: Any) -> tuple[Any, list[UnsupportedLimit]]:
    """Return the service without values that contain a variable, and those values."""
    if not isinstance(tree, dict):
        return tree, []
    kept, variables = {}, []
    for key, value in tree.items():
        if (
            isinstance(value, str)
            and _VARIABLE.search(value)
            and key in (*_SUPPORTED, *_UNSUPPORTED, "memory", "pids")
        ):
            reason = "it contains a variable; import the output of `docker compose config` instead"
            variables.append(UnsupportedLimit(f"{key} = {value}", reason))
        else:
            kept[key], inner = _without_variables(value)
            variables += inner
    return kept, variables


def _unsupported(service: dict[str, Any]) -> Iterator[UnsupportedLimit]:
    for key, reason in _UNSUPPORTED.items():
        if key in service:
            yield UnsupportedLimit(f"{key} = {service[key]}", reason)
    for key in table(service, "blkio_config"):
        if key.startswith("weight"):
            yield UnsupportedLimit(f"blkio_config.{key}", WEIGHT)
    resources = table(service, "deploy", "resources")
    for key, value in table(resources, "limits").items():
        if key not in ("memory", "cpus"):
            yield UnsupportedLimit(f"deploy.resources.limits.{key} = {value}", NO_SUCH_LIMIT)
    if "reservations" in resources:
        yield UnsupportedLimit(
            "deploy.resources.reservations", "a reservation protects and does not limit"
        )


def _memory(service: dict[str, Any], limits: dict[str, Any]) -> Iterator[ImportedLimit]:
    """Read the memory limit and memswap_limit.

    The latter is memory and swap, by default twice the memory.
    """
    is_old = "mem_limit" in service
    key, written = ("mem_limit", service["mem_limit"]) if is_old else _limit("memory", limits)
    if not written or not (memory := docker_bytes(written)):
        return
    yield ImportedLimit("MemoryMax", exact_size(memory), f"{key} = {written} (powers of 1024)")
    total = service.get("memswap_limit")
    if total in (-1, "-1"):
        yield ImportedLimit("MemorySwapMax", "infinity", "memswap_limit = -1, which is no limit")
        return
    swap = (docker_bytes(total) if total else 2 * memory) - memory
    if swap > 0:
        given = f"memswap_limit = {total}, memory and swap together"
        basis = given if total else "memswap_limit is not set, so swap equals memory"
        yield ImportedLimit("MemorySwapMax", exact_size(swap), basis)


def _cpu(service: dict[str, Any], limits: dict[str, Any]) -> Iterator[ImportedLimit]:
    for key, written in (("cpus", service.get("cpus")), _limit("cpus", limits)):
        if written and (cpus := kubernetes_quantity(written)):
            yield ImportedLimit("CPUQuota", cpu_percent(cpus), f"{key} = {written}")
            return
    if (quota := int(service.get("cpu_quota") or 0)) > 0:
        period = int(service.get("cpu_period") or 100_000)
        basis = f"cpu_quota = {quota} us of every {period} us"
        yield ImportedLimit("CPUQuota", cpu_percent(Decimal(quota) / period), basis)


def _limit(key: str, limits: dict[str, Any]) -> tuple[str, Any]:
    """Return a limit of `deploy` with its full name."""
    return f"deploy.resources.limits.{key}", limits.get(key)


def _block_limits(blkio: dict[str, Any]) -> Iterator[BlockLimit]:
    for key, name in _BLOCK.items():
        for row in rows(blkio.get(key) or []):
            written = row.get("rate", 0)
            rate = docker_bytes(written) if name in BANDWIDTH else int(written)
            yield BlockLimit(
                name,
                str(row.get("path")),
                rate,
                f"blkio_config.{key} of {row.get('path')} = {written}",
            )
