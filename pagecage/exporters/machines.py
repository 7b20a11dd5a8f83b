"""Cages for virtual machines and network disks: libvirt and nbdkit."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree

from pagecage.exporters.export import (
    Export,
    LostLimit,
    burst_seconds,
    lost_behaviour,
    lost_properties,
    lost_timing,
)
from pagecage.model.cage import IO_MAX_KEY, SHARED_PROPERTIES, Cage, CreditBucket
from pagecage.units import exact_size

_QUANTITIES = (("bytes", "bandwidth"), ("iops", "iops"))
_PERIOD_US = 100_000
_BITS = 8


def libvirt(cage: Cage, device: str) -> Export:
    """Return elements of a domain (libvirt's domain XML), whose disk QEMU throttles."""
    domain = ElementTree.Element("domain")
    if (memory := cage.properties.get("MemoryMax")) is not None:
        ElementTree.SubElement(domain, "memory", unit="bytes").text = str(memory)
    if (quota := cage.properties.get("CPUQuota")) is not None:
        tune = ElementTree.SubElement(domain, "cputune")
        ElementTree.SubElement(tune, "global_period").text = str(_PERIOD_US)
        ElementTree.SubElement(tune, "global_quota").text = str(quota * _PERIOD_US // 100)
    if any(name in cage.properties for name in IO_MAX_KEY):
        devices = ElementTree.SubElement(domain, "devices")
        disk = ElementTree.SubElement(devices, "disk", type="block", device="disk")
        ElementTree.SubElement(disk, "source", dev=device)
        iotune = ElementTree.SubElement(disk, "iotune")
        for name, value in _iotune(cage):
            ElementTree.SubElement(iotune, name).text = str(value)
    ElementTree.indent(domain)
    body = ElementTree.tostring(domain, encoding="unicode")
    return Export(body, tuple(_lost_by_libvirt(cage)), "<!-- ", " -->")


def _iotune(cage: Cage) -> Iterator[tuple[str, int]]:
    is_shared = bool(cage.accounting and cage.accounting.combined)
    for unit, quantity in _QUANTITIES:
        read, write = (cage.properties.get(name) for name in SHARED_PROPERTIES[quantity])
        bucket = getattr(cage.burst, quantity) if cage.burst else None
        if is_shared and read is not None and read == write:
            yield from _throttle(f"total_{unit}_sec", read, bucket)
            continue
        yield from _throttle(f"read_{unit}_sec", read, bucket)
        yield from _throttle(f"write_{unit}_sec", write, bucket)
    if cage.accounting and cage.accounting.io_size_bytes:
        yield "size_iops_sec", cage.accounting.io_size_bytes


def _throttle(
    name: str, rate: int | None, bucket: CreditBucket | None
) -> Iterator[tuple[str, int]]:
    if rate is None:
        return
    yield name, rate
    if bucket and bucket.rate > rate:
        yield f"{name}_max", bucket.rate
        yield f"{name}_max_length", burst_seconds(bucket, rate)


def _lost_by_libvirt(cage: Cage) -> Iterator[LostLimit]:
    if "MemoryMax" in cage.properties:
        reason = "it becomes the machine's memory, of which the guest's kernel takes a part"
        yield LostLimit("MemoryMax as the limit of one program", reason)
    kept = ["MemoryMax", "CPUQuota", *IO_MAX_KEY]
    if not cage.properties.get("MemorySwapMax"):
        kept.append("MemorySwapMax")  # a guest without a swap device has none
    yield from lost_properties(cage, kept, "the guest's own system decides it")
    if cage.burst and cage.burst.start != "full":
        reason = f"QEMU starts with full buckets, the cage with {cage.burst.start} ones"
        yield LostLimit("level of the credits at the start", reason)
    yield from lost_timing(cage)


def nbdkit(cage: Cage, _device: str) -> Export:
    """Return a command that serves a file with the filters for rates and delays (nbdkit(1))."""
    rates = [rate for rate in _bandwidths(cage) if rate is not None]
    delays = [f"{name}={ms}ms" for name, ms in _delays_ms(cage) if ms]
    words = [
        "nbdkit",
        *(["--filter=delay"] if delays else []),
        *(["--filter=rate"] if rates else []),
        "file disk.raw",
        *([f"rate={min(rates) * _BITS}"] if rates else []),
        *delays,
    ]
    return Export(" \\\n    ".join(words), tuple(_lost_by_nbdkit(cage)))


def _bandwidths(cage: Cage) -> tuple[int | None, ...]:
    return tuple(cage.properties.get(name) for name in SHARED_PROPERTIES["bandwidth"])


def _delays_ms(cage: Cage) -> Iterator[tuple[str, int]]:
    if cage.latency:
        yield "rdelay", round((cage.latency.read_us or 0) / 1000)
        yield "wdelay", round((cage.latency.write_us or 0) / 1000)


def _lost_by_nbdkit(cage: Cage) -> Iterator[LostLimit]:
    read, write = _bandwidths(cage)
    if read != write:
        shown = [exact_size(rate, " ") + "/s" if rate else "no limit" for rate in (read, write)]
        reason = "the filter has one rate, which each direction gets; here the lower one"
        yield LostLimit(f"{shown[0]} for reads and {shown[1]} for writes", reason)
    kept = SHARED_PROPERTIES["bandwidth"]
    yield from lost_properties(cage, kept, "nbdkit's filters limit bandwidth only")
    is_kept = any(ms for _, ms in _delays_ms(cage))
    for lost in lost_behaviour(cage):
        if lost.what != "least latency":
            yield lost
        elif not is_kept:
            yield LostLimit(lost.what, "the filter has whole milliseconds")
