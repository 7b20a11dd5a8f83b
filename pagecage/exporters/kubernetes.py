"""Cages for Kubernetes: a pod with its limits, and the volume that brings the I/O limits.

The kubelet turns limits into memory.max and cpu.max. It does not limit disk I/O; a volume does.
With Memory QoS it sets memory.high as well (KEP-2570): request + 0.9 * (limit - request).
"""

from __future__ import annotations

from collections.abc import Iterator

from pagecage.exporters.export import Export, LostLimit, lost_behaviour, lost_properties
from pagecage.model.cage import IO_MAX_KEY, Cage, CloudVolume
from pagecage.units import exact_size

YamlTable = dict[str, object]
_MIB = 1 << 20
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
    import yaml  # imported late: it is slow, and other exporters do without

    return Export(yaml.safe_dump_all(documents, sort_keys=False), tuple(_lost(cage)))


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
        parameters["throughput"] = str(volume.throughput_bytes_per_second // _MIB)
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


def _lost(cage: Cage) -> Iterator[LostLimit]:
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
