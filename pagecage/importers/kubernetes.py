"""`kubectl get pod -o yaml` or `-o json`; any object with a pod's template serves too (Kubernetes API, PodSpec).

The kubelet turns limits into memory.max and cpu.max. It limits no disk I/O at all: that lies in the volume behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pagecage.errors import PagecageError
from pagecage.importers.document import Document, rows, table
from pagecage.importers.quantities import cpu_percent, kubernetes_quantity, plain, whole_bytes
from pagecage.importers.result import ImportedLimit, ImportResult, Selection, UnsupportedLimit
from pagecage.units import exact_size

_TEMPLATES = ((), ("template", "spec"), ("jobTemplate", "spec", "template", "spec"))
_CLAIM = "a claim does not say what its disk gives: import the volume too (aws ec2 describe-volumes and the like)"
_NO_SUCH = "a cage has no such limit"


def recognise(document: Document) -> bool:
    """Whether every document in it is a Kubernetes object."""
    found = rows(document.tree)
    return bool(found) and all("apiVersion" in row and "kind" in row for row in found)


def read(document: Document, picks: Selection) -> ImportResult:
    """The limits of one container of one pod."""
    pods = dict(_pods(document))
    if not pods:
        kinds = ", ".join(sorted({str(row["kind"]) for row in rows(document.tree)}))
        raise PagecageError(f"there is no pod in it ({kinds})", "kubectl get pod NAME -o yaml")
    name = picks.choose("pod", list(pods))
    spec = pods[name]
    containers = {str(row.get("name")): row for row in rows(spec.get("containers") or [])}
    container = containers[picks.choose("container", list(containers))] if containers else {}
    limits = table(container, "resources", "limits")
    whole = table(spec, "resources", "limits")
    lost = (*_lost_limits("resources.limits", limits), *_lost_volumes(spec), *_lost_neighbours(containers, container))
    return ImportResult(
        "a pod of Kubernetes", "The limits of a customer's pod, from kubectl get pod.",
        tuple(_carried(limits, whole)), lost, tuple(_ignored(spec, container)),
    )  # fmt: skip


def _pods(document: Document) -> Iterator[tuple[str, dict[str, Any]]]:
    items = [item for row in rows(document.tree) for item in rows(row.get("items") or row)]
    for item in items:
        name = str(table(item, "metadata").get("name") or item.get("kind"))
        found = [table(item, "spec", *path) for path in _TEMPLATES]
        yield from ((name, spec) for spec in found if "containers" in spec)


def _carried(limits: dict[str, Any], whole: dict[str, Any]) -> Iterator[ImportedLimit]:
    """The container's limit, or the tighter one that the pod has as a whole (Kubernetes 1.32)."""
    for key in ("memory", "cpu"):
        places = (("resources.limits", limits), ("spec.resources.limits", whole))
        given = [(where, found[key]) for where, found in places if found.get(key) is not None]
        if not given:
            continue
        where, written = min(given, key=lambda pair: kubernetes_quantity(pair[1]))
        amount = kubernetes_quantity(written)
        if key == "memory" and amount:
            yield ImportedLimit("MemoryMax", exact_size(whole_bytes(amount)), f"{where}.memory = {written}")
        elif amount:
            yield ImportedLimit("CPUQuota", cpu_percent(amount), f"{where}.cpu = {written} ({plain(amount)} CPUs)")


def _lost_limits(where: str, limits: dict[str, Any]) -> Iterator[UnsupportedLimit]:
    why = {"ephemeral-storage": "a cage limits no disk space"}
    for key in limits:
        if key not in ("memory", "cpu"):
            yield UnsupportedLimit(f"{where}.{key} = {limits[key]}", why.get(key, _NO_SUCH))


def _lost_volumes(spec: dict[str, Any]) -> Iterator[UnsupportedLimit]:
    for row in rows(spec.get("volumes") or []):
        if "persistentVolumeClaim" in row or "ephemeral" in row:
            yield UnsupportedLimit(f"volume {row.get('name')}", _CLAIM)
        elif table(row, "emptyDir").get("medium") == "Memory":
            yield UnsupportedLimit(
                f"volume {row.get('name')} in memory", "what is written there counts as the container's memory"
            )


def _lost_neighbours(containers: dict[str, dict[str, Any]], taken: dict[str, Any]) -> Iterator[UnsupportedLimit]:
    for name, container in containers.items():
        if container is not taken:
            yield UnsupportedLimit(f"container {name}", "it runs beside this one, with limits of its own")


def _ignored(spec: dict[str, Any], container: dict[str, Any]) -> Iterator[str]:
    yield from (f"spec.{key}" for key in spec if key not in ("containers", "volumes", "resources"))
    yield from (f"container.{key}" for key in container if key not in ("name", "resources"))
    if table(container, "resources", "requests"):
        yield "container.resources.requests"
