"""Resource properties of systemd units (systemd.resource-control(5))."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from pagecage.errors import PagecageError
from pagecage.importers.document import (
    NO_LIMIT,
    Document,
    cpu_percent,
    systemd_bytes,
    systemd_seconds,
)
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
)
from pagecage.units import exact_size

_MEMORY_BASE, _IO_BASE = 1024, 1000
# Deprecated names of the same limits, some of them of cgroup v1 (systemd.resource-control(5)).
_NEW_NAMES = {
    "MemoryLimit": "MemoryMax",
    "BlockIOReadBandwidth": "IOReadBandwidthMax",
    "BlockIOWriteBandwidth": "IOWriteBandwidthMax",
}
_BLOCK = ("IOReadBandwidthMax", "IOWriteBandwidthMax", "IOReadIOPSMax", "IOWriteIOPSMax")
_SUPPORTED = ("MemoryMax", "MemoryHigh", "MemorySwapMax", "CPUQuota", *_BLOCK)
_UNSUPPORTED = {
    "MemoryMin": PROTECTION,
    "MemoryLow": PROTECTION,
    "MemoryZSwapMax": "a cage has no limit for compressed swap",
    "CPUWeight": WEIGHT,
    "CPUShares": WEIGHT,
    "IOWeight": WEIGHT,
    "IODeviceWeight": WEIGHT,
    "IODeviceLatencyTargetSec": (
        "a cage has no latency target, which protects a unit and does not slow it down"
    ),
    "AllowedCPUs": CPU_LIST,
    "CPUAffinity": CPU_LIST,
    "TasksMax": PROCESSES,
    "ManagedOOMMemoryPressure": "systemd-oomd does not manage a cage",
}


@dataclass
class UnitProperties:
    """The assignments of one unit: I/O limits by property and device, and the last of others."""

    single: dict[str, str] = field(default_factory=dict)
    block: dict[tuple[str, str], str] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)

    def assign(self, key: str, value: str) -> None:
        """Apply one line `key=value`. An empty value removes the earlier ones."""
        key = _NEW_NAMES.get(key, key)
        if key in _BLOCK and not value:
            self.block = {pair: rate for pair, rate in self.block.items() if pair[0] != key}
        elif key in _BLOCK:
            device, _, rate = value.rpartition(" ")
            if not device.strip():
                hint = "name the device, as in IOReadBandwidthMax=/dev/vdb 20M"
                raise PagecageError(f"{key}={value} has no device", hint)
            self.block[key, device.strip()] = rate.strip()
        elif key in _SUPPORTED or key in _UNSUPPORTED:
            self.single[key] = value
        elif key not in self.ignored:
            self.ignored.append(key)


_SECTIONS = ("Service", "Slice", "Scope", "Socket", "Mount", "Swap")
_SECTION = re.compile(r"^\[([A-Za-z-]+)\]$")
_FILE = re.compile(r"^# (/\S.*)$")
_UNIT = re.compile(r"/([^/]+\.(?:service|slice|scope|socket|mount|swap))(?:\.d/[^/]+\.conf)?$")


def read_unit(document: Document, selection: Selection) -> ImportResult:
    """Read the limits of one unit from a unit file, or from `systemctl cat UNIT`.

    The latter prints the file and its drop-ins in the order in which they apply
    (systemd.syntax(7)).
    """
    units: dict[str, UnitProperties] = {}
    name, section = "the unit", ""
    for line in _joined_lines(document.text):
        if file := _FILE.match(line):
            unit = _UNIT.search(file[1])
            name = unit[1] if unit else name
        elif header := _SECTION.match(line):
            section = header[1]
        elif section in _SECTIONS and "=" in line and not line.startswith(("#", ";")):
            key, _, value = line.partition("=")
            units.setdefault(name, UnitProperties()).assign(key.strip(), value.strip())
    return _result(units or {name: UnitProperties()}, "a systemd unit", selection)


def _joined_lines(text: str) -> list[str]:
    """Return the stripped lines; a backslash joins the next line that is not a comment."""
    lines: list[str] = []
    start = ""
    for raw in text.splitlines():
        line = raw.strip()
        if start and line.startswith(("#", ";")):
            continue
        line = start + line
        start = ""
        if line.endswith("\\") and not line.startswith("#"):
            start = line[:-1] + " "
        elif line:
            lines.append(line)
    return [*lines, start.strip()] if start.strip() else lines


# `systemctl show` prints some properties under another name than the one in a unit file.
_SHOWN_NAMES = {
    "CPUQuotaPerSecUSec": "CPUQuota",
    "IODeviceLatencyTargetUSec": "IODeviceLatencyTargetSec",
}
_NOT_SET = ("", "infinity", "[not set]", str(NO_LIMIT), "no", "auto")
_ZERO_BY_DEFAULT = ("MemoryMin", "MemoryLow")
_SET_BY_DEFAULT = ("TasksMax",)
_SHOWN_LIMITS = {
    *("MemoryMax", "MemoryHigh", "MemorySwapMax", "CPUQuotaPerSecUSec", "MemoryCurrent"),
    *(*_NEW_NAMES, *_BLOCK),
}


def is_show(document: Document) -> bool:
    """Return whether this is `systemctl show UNIT...` with a unit's limits (systemctl(1))."""
    if not document.is_properties:
        return False
    return not _SHOWN_LIMITS.isdisjoint(
        line.partition("=")[0] for line in document.text.splitlines()
    )


def read_show(document: Document, selection: Selection) -> ImportResult:
    """Read the limits of one unit. Values are plain numbers, and an empty line separates units.

    systemd prints every property that it knows, so those that are not set are left out.
    """
    units: dict[str, UnitProperties] = {}
    for number, block in enumerate(document.text.strip().replace("\r\n", "\n").split("\n\n"), 1):
        lines = [line.partition("=")[::2] for line in block.splitlines() if "=" in line]
        name = dict(lines).get("Id") or f"unit {number}"
        units[name] = shown_properties(lines)
    return _result(units, "systemctl show", selection)


def shown_properties(lines: list[tuple[str, str]]) -> UnitProperties:
    """Return the properties that are set. A deprecated name yields to the new one."""
    assignments = []
    for key, value in lines:
        is_default = (
            value in _NOT_SET
            or key in _SET_BY_DEFAULT
            or (value == "0" and key in _ZERO_BY_DEFAULT)
        )
        if value != "" if key == "MemorySwapMax" else not is_default:
            assignments.append((_SHOWN_NAMES.get(key, key), value))
    names = {key for key, _ in assignments}
    properties = UnitProperties()
    for key, value in assignments:
        if _NEW_NAMES.get(key) not in names:
            properties.assign(key, value)
    return properties


def _result(units: dict[str, UnitProperties], origin: str, selection: Selection) -> ImportResult:
    properties = units[selection.choose("unit", list(units))]
    blocks, other_devices = limits_of_one_device(list(block_limits(properties)), selection)
    limits, shares = single_limits(properties.single)
    unsupported = [
        UnsupportedLimit(f"{key}={value}", _UNSUPPORTED[key])
        for key, value in properties.single.items()
        if key in _UNSUPPORTED and value
    ]
    return ImportResult(
        origin,
        f"The limits of a customer's unit, from {origin}.",
        (*limits, *blocks),
        (*unsupported, *shares, *other_devices),
        tuple(properties.ignored),
    )


def single_limits(single: dict[str, str]) -> tuple[list[ImportedLimit], list[UnsupportedLimit]]:
    """Return the limits of memory and CPU, and those that are shares of an unknown size."""
    limits: list[ImportedLimit] = []
    unsupported: list[UnsupportedLimit] = []
    is_limited = False
    for key in ("MemoryMax", "MemoryHigh", "MemorySwapMax"):
        value = single.get(key, "")
        size = None if value.endswith("%") or not value else systemd_bytes(value, _MEMORY_BASE)
        if value.endswith("%"):
            reason = "it is a share of the customer's memory, whose size is not in the file"
            unsupported.append(UnsupportedLimit(f"{key}={value}", reason))
        elif size:
            limits.append(ImportedLimit(key, exact_size(size), f"{key}={value}"))
        elif value and key == "MemorySwapMax" and size is None and is_limited:
            limits.append(ImportedLimit(key, "infinity", f"{key}={value}"))
        # Without a memory limit, unlimited swap is no information.
        is_limited = is_limited or (key == "MemoryMax" and bool(limits))
    if quota := single.get("CPUQuota"):
        # A percentage, or the CPU time per second of `systemctl show` (CPUQuotaPerSecUSec).
        cpus = systemd_seconds(quota.removesuffix("%").strip())
        if cpus and quota.endswith("%"):
            cpus /= 100
        if cpus:
            limits.append(ImportedLimit("CPUQuota", cpu_percent(cpus), f"CPUQuota={quota}"))
    return limits, unsupported


def block_limits(properties: UnitProperties) -> Iterator[BlockLimit]:
    for (key, device), written in properties.block.items():
        rate = systemd_bytes(written, _IO_BASE)
        if rate is not None:
            yield BlockLimit(key, device, rate, f"{key}={device} {written}")


IMPORTERS = (
    Importer(lambda document: document.is_unit, read_unit),
    Importer(is_show, read_show),
)
