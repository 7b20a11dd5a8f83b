"""Cages for container engines and managers: Docker, podman, Compose and Incus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pagecage.exporters.export import (
    Export,
    LostLimit,
    io_limits,
    lost_behaviour,
    lost_properties,
)
from pagecage.model.cage import IO_MAX_KEY, Cage
from pagecage.units import exact_size

_BLKIO = {
    "IOReadBandwidthMax": "device_read_bps",
    "IOWriteBandwidthMax": "device_write_bps",
    "IOReadIOPSMax": "device_read_iops",
    "IOWriteIOPSMax": "device_write_iops",
}
_ENGINE = ("MemoryMax", "CPUQuota", *IO_MAX_KEY)


def engine_command(engine: str, cage: Cage, device: str) -> Export:
    """Return the command of docker-run(1) or podman-run(1)."""
    from pagecage.agent.drivers.container import limit_options  # late: it loads the drivers

    words = [f"{engine} run", *limit_options(cage, device), "IMAGE"]
    return Export(" \\\n    ".join(words), tuple(_lost_by_engine(cage)))


def compose(cage: Cage, device: str) -> Export:
    """Return a service of a Compose file."""
    service: dict[str, object] = {"image": "IMAGE"}
    memory, swap = cage.properties.get("MemoryMax"), cage.properties.get("MemorySwapMax")
    if memory is not None:  # the engine's limit of swap includes the memory
        service["mem_limit"] = memory
        service["memswap_limit"] = -1 if swap is None else memory + swap
    if (quota := cage.properties.get("CPUQuota")) is not None:
        service["cpus"] = quota / 100
    blkio = {
        _BLKIO[name]: [{"path": device, "rate": rate}] for name, rate in io_limits(cage).items()
    }
    if blkio:
        service["blkio_config"] = blkio
    return Export(_yaml({"services": {"app": service}}), tuple(_lost_by_engine(cage)))


def _lost_by_engine(cage: Cage) -> Iterator[LostLimit]:
    has_memory = "MemoryMax" in cage.properties
    kept = (*_ENGINE, "MemorySwapMax") if has_memory else _ENGINE
    yield from lost_properties(cage, kept, "the engine has no option for it alone")
    yield from lost_behaviour(cage)


def incus(cage: Cage, _device: str) -> Export:
    """Return the configuration of an instance, for `incus config edit`."""
    properties, config = cage.properties, dict[str, str]()
    if (memory := properties.get("MemoryMax")) is not None:
        config["limits.memory"] = exact_size(memory)
    if properties.get("MemorySwapMax") == 0:
        config["limits.memory.swap"] = "false"
    if (quota := properties.get("CPUQuota")) is not None:
        config["limits.cpu.allowance"] = f"{quota}ms/100ms"
    limits = {}
    for side in ("Read", "Write"):  # a rate of I/Os or of bytes, not both
        iops, rate = properties.get(f"IO{side}IOPSMax"), properties.get(f"IO{side}BandwidthMax")
        if iops is not None or rate is not None:
            limit = exact_size(rate or 0) if iops is None else f"{iops}iops"
            limits[f"limits.{side.lower()}"] = limit
    body = {"config": config} | ({"devices": {"root": limits}} if limits else {})
    return Export(_yaml(body), tuple(_lost_by_incus(cage)))


def _lost_by_incus(cage: Cage) -> Iterator[LostLimit]:
    kept = ["MemoryMax", "CPUQuota", "IOReadIOPSMax", "IOWriteIOPSMax"]
    for side in ("Read", "Write"):
        rate = cage.properties.get(f"IO{side}BandwidthMax")
        kept.append(f"IO{side}BandwidthMax")
        if rate is not None and f"IO{side}IOPSMax" in cage.properties:
            key = f"limits.{side.lower()}"
            reason = f"{key} is either I/Os or bytes; {exact_size(rate)} would replace the I/Os"
            yield LostLimit(f"IO{side}BandwidthMax = {exact_size(rate, ' ')}", reason)
    if not cage.properties.get("MemorySwapMax"):
        kept.append("MemorySwapMax")
    yield from lost_properties(cage, kept, "an instance has no such limit")
    yield from lost_behaviour(cage)


def _yaml(data: Mapping[str, object]) -> str:
    import yaml  # imported late: it is slow, and other exporters do without

    return str(yaml.safe_dump(dict(data), sort_keys=False))
