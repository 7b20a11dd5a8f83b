"""Cages for programs on a host or in containers.

The kubelet turns a pod's limits into memory.max and cpu.max, and with Memory QoS (KEP-2570) into
memory.high. It does not limit disk I/O; a volume does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pagecage.exporters.export import (
    Export,
    LostLimit,
    io_limits,
    lost_behaviour,
    lost_properties,
)
from pagecage.model.cage import IO_MAX_KEY, Cage, CloudVolume
from pagecage.units import MIB, exact_size

YamlTable = dict[str, object]
_BLKIO = {
    "IOReadBandwidthMax": "device_read_bps",
    "IOWriteBandwidthMax": "device_write_bps",
    "IOReadIOPSMax": "device_read_iops",
    "IOWriteIOPSMax": "device_write_iops",
}
_ENGINE = ("MemoryMax", "CPUQuota", *IO_MAX_KEY)


def drop_in(cage: Cage, device: str) -> Export:
    """Return a drop-in for a service: UNIT.d/limits.conf."""
    lines = ["[Service]"]
    for name, value in cage.properties.items():
        if name in IO_MAX_KEY:
            lines.append(f"{name}={device} {value}")
        else:
            lines.append(f"{name}={value}{'%' if name == 'CPUQuota' else ''}")
    if "MemorySwapMax" not in cage.properties:
        lines.append("MemorySwapMax=infinity")
    return Export("\n".join(lines), tuple(lost_behaviour(cage)))


def engine_command(engine: str, cage: Cage, device: str) -> Export:
    """Return the command of docker-run(1) or podman-run(1)."""
    from pagecage.agent.drivers.container import limit_options  # late: it loads the drivers

    words = [f"{engine} run", *limit_options(cage, device), "IMAGE"]
    return Export(" \\\n    ".join(words), tuple(_lost_by_engine(cage)))


def compose(cage: Cage, device: str) -> Export:
    service: YamlTable = {"image": "IMAGE"}
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


def _yaml(*documents: Mapping[str, object]) -> str:
    import yaml  # imported late: it is slow, and other exporters do without

    return str(yaml.safe_dump_all(documents, sort_keys=False))


_AWS_TYPES = ("gp2", "gp3", "io1", "io2", "st1", "sc1")
_NAME = "pagecage-volume"
_MEMORY_QOS = "in force only if the kubelet has the feature gate MemoryQoS, at its factor of 0.9"


def pod(cage: Cage, _device: str) -> Export:
    """Return a pod, with a claim of the volume and its storage class if it can be bought."""
    limits: YamlTable = {}
    if (memory := cage.properties.get("MemoryMax")) is not None:
        limits["memory"] = str(memory)
    if (quota := cage.properties.get("CPUQuota")) is not None:
        limits["cpu"] = f"{quota * 10}m"
    resources: YamlTable = {"limits": limits}
    if (request := _throttling_request(cage)) is not None:
        resources["requests"] = {"memory": str(request)}
    container: YamlTable = {"name": "app", "image": "IMAGE", "resources": resources}
    spec: YamlTable = {"containers": [container]}
    documents: list[YamlTable] = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "app"}, "spec": spec}
    ]
    if (volume := cage.volume) and _is_offered(volume):
        documents += _claim_and_class(volume)
        container["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": _NAME}}]
    return Export(_yaml(*documents), tuple(_lost_by_kubelet(cage)))


def _claim_and_class(volume: CloudVolume) -> list[YamlTable]:
    claim: YamlTable = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": _NAME},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": _NAME,
            "resources": {"requests": {"storage": str(volume.size_bytes)}},
        },
    }
    parameters = {"type": str(volume.type)}
    if volume.iops is not None:
        parameters["iops"] = str(volume.iops)
    if volume.throughput_bytes_per_second is not None:
        parameters["throughput"] = str(volume.throughput_bytes_per_second // MIB)
    storage_class: YamlTable = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": _NAME},
        "provisioner": "ebs.csi.aws.com",
        "parameters": parameters,
    }
    return [claim, storage_class]


def _throttling_request(cage: Cage) -> int | None:
    """Return the request at which the kubelet's factor of 9/10 sets MemoryHigh, or None."""
    high, limit = (cage.properties.get(name) for name in ("MemoryHigh", "MemoryMax"))
    if high is None or limit is None:
        return None
    request = 10 * high - 9 * limit
    return request if 0 <= request < limit else None


def _is_offered(volume: CloudVolume) -> bool:
    """Return whether the storage driver of the provider can make this volume."""
    is_known = volume.provider == "aws" and volume.type in _AWS_TYPES
    return is_known and volume.scale == 1 and volume.size_bytes is not None


def _lost_by_kubelet(cage: Cage) -> Iterator[LostLimit]:
    # Without MemorySwap of the kubelet a container has no swap, as a cage by default.
    kept = ["MemoryMax", "CPUQuota"]
    if not cage.properties.get("MemorySwapMax"):
        kept.append("MemorySwapMax")
    if _throttling_request(cage) is not None:
        kept.append("MemoryHigh")
        said = f"MemoryHigh = {exact_size(cage.properties['MemoryHigh'])}"
        yield LostLimit(said, _MEMORY_QOS)
    if cage.volume and _is_offered(cage.volume):
        yield from lost_properties(cage, (*kept, *IO_MAX_KEY), "the kubelet has no such limit")
        return
    yield from lost_properties(cage, kept, "the kubelet does not limit disk I/O; a volume does")
    yield from lost_behaviour(cage)
