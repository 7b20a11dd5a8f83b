"""`memory.high` of Memory QoS, which the kubelet computes from a pod's requests and limits.

KEP-2570: floor[(request + factor * (limit - request)) / page] * page for each container of a pod
that is not Guaranteed. Without a limit the node's allocatable memory takes its place. The feature
gate MemoryQoS is off unless the kubelets' configuration turns it on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from pagecage.errors import PagecageError
from pagecage.importers.document import rows, table
from pagecage.importers.quantities import kubernetes_quantity, plain, whole_bytes
from pagecage.importers.result import ImportedLimit, UnsupportedLimit
from pagecage.units import exact_size

DEFAULT_FACTOR = Decimal("0.9")
"""`memoryThrottlingFactor` of KubeletConfiguration since Kubernetes 1.27."""
PAGE_BYTES = 4096
_QOS_RESOURCES = ("cpu", "memory")
Found = tuple[tuple[ImportedLimit, ...], tuple[UnsupportedLimit, ...]]


def memory_high(request: Decimal, limit: Decimal, factor: Decimal) -> int | None:
    """Return memory.high in bytes; None if the kubelet sets none, at a request of the limit."""
    high = int((request + factor * (limit - request)) // PAGE_BYTES) * PAGE_BYTES
    return high if high > request else None


def throttling_factor(objects: Sequence[Mapping[str, Any]], given: float | None) -> Decimal | None:
    """Return the factor that the user gives, or that of a KubeletConfiguration with the feature.

    None without Memory QoS. Raises PagecageError for a factor that the kubelet refuses.
    """
    factor = None if given is None else Decimal(str(given))
    for one in objects if given is None else ():
        is_on = table(one, "featureGates").get("MemoryQoS") is True
        if one.get("kind") == "KubeletConfiguration" and is_on:
            factor = Decimal(str(one.get("memoryThrottlingFactor") or DEFAULT_FACTOR))
    if factor is not None and not 0 < factor <= 1:
        raise PagecageError(
            f"{factor} is not a memory throttling factor", "give one above 0 and at most 1"
        )
    return factor


def memory_qos(
    spec: Mapping[str, Any],
    container: Mapping[str, Any],
    objects: Sequence[Mapping[str, Any]],
    given: float | None,
) -> Found:
    """Return MemoryHigh of a container, or why it is not known; neither if there is none."""
    factor = throttling_factor(objects, given)
    request, limit = _request(container, "memory"), _limit(container, "memory")
    if _is_guaranteed(spec) or (factor is None and request == limit):
        return (), ()
    if factor is None:
        reason = "only the kubelets' configuration states it; if it is on: --memory-qos 0.9"
        return (), (UnsupportedLimit("memory.high of Memory QoS", reason),)
    where = "limit"
    if limit is None:
        limit, where = _allocatable(objects), "allocatable memory of the node"
    if limit is None:
        reason = "without a limit it follows from the memory of the node; add kubectl get node"
        return (), (UnsupportedLimit("memory.high of Memory QoS", reason),)
    high = memory_high(request or Decimal(0), limit, factor)
    if high is None:
        return (), ()
    basis = (
        f"Memory QoS: request {exact_size(whole_bytes(request or Decimal(0)))} + {plain(factor)} of"
        f" the rest to the {where} {exact_size(whole_bytes(limit))}"
    )
    return (ImportedLimit("MemoryHigh", exact_size(high), basis),), ()


def _limit(container: Mapping[str, Any], resource: str) -> Decimal | None:
    found = table(container, "resources", "limits").get(resource)
    return None if found is None else kubernetes_quantity(found)


def _request(container: Mapping[str, Any], resource: str) -> Decimal | None:
    """Return a request. The API server sets a missing one to the limit."""
    found = table(container, "resources", "requests").get(resource)
    return _limit(container, resource) if found is None else kubernetes_quantity(found)


def _is_guaranteed(spec: Mapping[str, Any]) -> bool:
    """Return whether requests are limits throughout (Kubernetes, "Pod Quality of Service Classes").

    Resources of the whole pod decide, if it has any (Kubernetes 1.32).
    """
    every = [*rows(spec.get("containers") or []), *rows(spec.get("initContainers") or [])]
    bearers = [spec] if table(spec, "resources") else every
    return all(
        (limit := _limit(one, name)) and limit == _request(one, name)
        for one in bearers
        for name in _QOS_RESOURCES
    )


def _allocatable(objects: Sequence[Mapping[str, Any]]) -> Decimal | None:
    """Return the allocatable memory of the only node in the file; None without one."""
    nodes = [one for one in objects if one.get("kind") == "Node"]
    found = [table(node, "status", "allocatable").get("memory") for node in nodes]
    return kubernetes_quantity(found[0]) if len(found) == 1 and found[0] is not None else None
