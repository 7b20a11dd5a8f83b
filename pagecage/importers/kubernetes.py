"""Pods of Kubernetes, from `kubectl get pod -o yaml` or `-o json` (Kubernetes API, PodSpec).

Any other object with a pod template works as well. The kubelet turns limits into memory.max and
cpu.max, and with Memory QoS into memory.high. It does not limit disk I/O; the limits of the volume
do, which follow from its claim and its classes in the same file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pagecage.errors import PagecageError
from pagecage.importers.document import Document, rows, table
from pagecage.importers.kubernetes_volumes import claim_templates, volume_of
from pagecage.importers.memory_qos import memory_qos
from pagecage.importers.quantities import cpu_percent, kubernetes_quantity, plain, whole_bytes
from pagecage.importers.result import (
    NO_SUCH_LIMIT,
    ImportedLimit,
    ImportResult,
    Selection,
    UnsupportedLimit,
)
from pagecage.units import exact_size

ORIGIN = "a pod of Kubernetes"
_TEMPLATES = ((), ("template", "spec"), ("jobTemplate", "spec", "template", "spec"))


@dataclass(frozen=True)
class _Pod:
    """A pod or a pod template, with the claims of its controller by name."""

    spec: dict[str, Any]
    templates: dict[str, Any]


def recognise(document: Document) -> bool:
    """Return whether every document in it is a Kubernetes object."""
    objects = rows(document.tree)
    return bool(objects) and all("apiVersion" in row and "kind" in row for row in objects)


def read(document: Document, selection: Selection) -> ImportResult:
    """Read the limits of one container of one pod, and of its volume."""
    objects = _objects(document)
    pods = dict(_pods(objects))
    if not pods:
        kinds = ", ".join(sorted({str(row["kind"]) for row in rows(document.tree)}))
        raise PagecageError(
            f"the file does not contain a pod ({kinds})", "kubectl get pod NAME -o yaml"
        )
    pod = pods[selection.choose("pod", list(pods))]
    spec = pod.spec
    containers = {str(row.get("name")): row for row in rows(spec.get("containers") or [])}
    container = containers[selection.choose("container", list(containers))] if containers else {}
    limits = table(container, "resources", "limits")
    pod_limits = table(spec, "resources", "limits")
    throttle, unknown = memory_qos(spec, container, objects, selection.memory_qos)
    volume, left_out = volume_of(spec, pod.templates, container, objects, selection)
    return ImportResult(
        ORIGIN,
        "The limits of a customer's pod, from kubectl get pod.",
        (*_limits(limits, pod_limits), *throttle),
        (
            *_unsupported_limits(limits),
            *unknown,
            *left_out,
            *_memory_volumes(spec),
            *_other_containers(containers, container),
        ),
        tuple(_ignored(spec, container)),
        volume,
    )


def _objects(document: Document) -> list[dict[str, Any]]:
    """Return the objects of all documents, and of lists among them."""
    return [item for row in rows(document.tree) for item in rows(row.get("items") or row)]


def _pods(objects: list[dict[str, Any]]) -> Iterator[tuple[str, _Pod]]:
    for item in objects:
        name = str(table(item, "metadata").get("name") or item.get("kind"))
        specs = [table(item, "spec", *path) for path in _TEMPLATES]
        yield from (
            (name, _Pod(spec, claim_templates(item))) for spec in specs if "containers" in spec
        )


def _limits(limits: dict[str, Any], pod_limits: dict[str, Any]) -> Iterator[ImportedLimit]:
    """Yield the tighter of the container's limit and that of the whole pod (Kubernetes 1.32)."""
    for key in ("memory", "cpu"):
        tables = (("resources.limits", limits), ("spec.resources.limits", pod_limits))
        given = [(where, found[key]) for where, found in tables if found.get(key) is not None]
        if not given:
            continue
        where, written = min(given, key=lambda pair: kubernetes_quantity(pair[1]))
        amount = kubernetes_quantity(written)
        if key == "memory" and amount:
            yield ImportedLimit(
                "MemoryMax", exact_size(whole_bytes(amount)), f"{where}.memory = {written}"
            )
        elif amount:
            yield ImportedLimit(
                "CPUQuota", cpu_percent(amount), f"{where}.cpu = {written} ({plain(amount)} CPUs)"
            )


def _unsupported_limits(limits: dict[str, Any]) -> Iterator[UnsupportedLimit]:
    for key, value in limits.items():
        if key not in ("memory", "cpu"):
            reason = (
                "a cage does not limit disk space" if key == "ephemeral-storage" else NO_SUCH_LIMIT
            )
            yield UnsupportedLimit(f"resources.limits.{key} = {value}", reason)


def _memory_volumes(spec: dict[str, Any]) -> Iterator[UnsupportedLimit]:
    for row in rows(spec.get("volumes") or []):
        if table(row, "emptyDir").get("medium") == "Memory":
            reason = "its files count as memory of the container"
            yield UnsupportedLimit(f"volume {row.get('name')} in memory", reason)


def _other_containers(
    containers: dict[str, dict[str, Any]], picked: dict[str, Any]
) -> Iterator[UnsupportedLimit]:
    for name, container in containers.items():
        if container is not picked:
            yield UnsupportedLimit(
                f"container {name}", "it runs beside the picked one, with limits of its own"
            )


def _ignored(spec: dict[str, Any], container: dict[str, Any]) -> Iterator[str]:
    yield from (f"spec.{key}" for key in spec if key not in ("containers", "volumes", "resources"))
    known = ("name", "resources", "volumeMounts")
    yield from (f"container.{key}" for key in container if key not in known)
    if "cpu" in table(container, "resources", "requests"):
        yield "container.resources.requests.cpu"
