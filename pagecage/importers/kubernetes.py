"""Pods of Kubernetes, with their claims, storage classes and Memory QoS."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pagecage.errors import PagecageError
from pagecage.importers.cloud_disks import aws_volume
from pagecage.importers.document import (
    Document,
    cpu_percent,
    kubernetes_quantity,
    plain,
    rows,
    table,
    whole_bytes,
)
from pagecage.importers.result import (
    NO_SUCH_LIMIT,
    DescribedVolume,
    ImportedLimit,
    ImportResult,
    Selection,
    UnsupportedLimit,
)
from pagecage.units import GIB, MIB, exact_size

Parameters = Mapping[str, str]
_AZURE_TYPES = {
    "premium_lrs": "premium-ssd",
    "premium_zrs": "premium-ssd",
    "premiumv2_lrs": "premium-ssd-v2",
    "standardssd_lrs": "standard-ssd",
    "standardssd_zrs": "standard-ssd",
    "standard_lrs": "standard-hdd",
    "ultrassd_lrs": "ultra",
}
_AZURE_WITHOUT_CACHE = ("premium-ssd-v2", "ultra")


def described_volume(driver: str, parameters: Parameters, size_bytes: int) -> DescribedVolume:
    """Return the volume that a driver makes. Sizes are rounded up to GiB, as each driver does.

    Raises PagecageError for a driver or a type whose limits are not known.
    """
    make = _DRIVERS.get(driver)
    if make is None:
        raise PagecageError(
            f"the storage driver {driver!r} states no limits that pagecage knows",
            "remove its claim from the file, and import a probe of the volume",
        )
    return make(_lower(parameters), -(-size_bytes // GIB))


def behaviour(
    driver: str, parameters: Parameters, volume: DescribedVolume
) -> Iterator[UnsupportedLimit]:
    """Yield what a volume's parameters say that a cage cannot do."""
    kind = volume.name.removeprefix("azure-")
    if driver == "disk.csi.azure.com" and not kind.startswith(_AZURE_WITHOUT_CACHE):
        mode = _lower(parameters).get("cachingmode", "ReadOnly")
        if mode.lower() != "none":
            reason = "a cache on the machine answers some reads above the disk's limits"
            yield UnsupportedLimit(f"cachingMode = {mode}", reason)


def _aws(parameters: Parameters, gib: int) -> DescribedVolume:
    iops = parameters.get("iops")
    if iops is None and "iopspergb" in parameters:
        iops = str(int(Decimal(parameters["iopspergb"]) * gib))
    return aws_volume(
        {
            "VolumeType": parameters.get("type", "gp3"),
            "Size": gib,
            "Iops": iops,
            "Throughput": parameters.get("throughput"),
        }
    )


def _google(parameters: Parameters, gib: int) -> DescribedVolume:
    """Return a persistent disk or a Hyperdisk, whose throughput is a quantity such as 250Mi."""
    iops = parameters.get("iops") or parameters.get("provisioned-iops-on-create")
    rate = parameters.get("throughput") or parameters.get("provisioned-throughput-on-create")
    throughput = None if rate is None else int(-(-kubernetes_quantity(rate) // MIB))
    kind = parameters.get("type", "pd-standard")
    return DescribedVolume(f"gcp-{kind}", gib * GIB, _whole(iops), throughput)


def _azure(parameters: Parameters, gib: int) -> DescribedVolume:
    sku = parameters.get("skuname") or parameters.get("storageaccounttype") or "StandardSSD_LRS"
    kind = _AZURE_TYPES.get(sku.lower())
    if kind is None:
        raise PagecageError(f"the catalogue has no disk of type {sku!r}", "pagecage cage list")
    if kind == "premium-ssd" and parameters.get("enablebursting", "").lower() == "true":
        kind = "premium-ssd-on-demand"
    elif kind == "premium-ssd" and parameters.get("enableperformanceplus", "").lower() == "true":
        kind = "premium-ssd-performance-plus"
    iops, megabytes = parameters.get("diskiopsreadwrite"), parameters.get("diskmbpsreadwrite")
    return DescribedVolume(f"azure-{kind}", gib * GIB, _whole(iops), _whole(megabytes))


def _whole(text: str | None) -> int | None:
    return int(text) if text else None


def _lower(parameters: Parameters) -> dict[str, str]:
    return {str(key).lower(): str(value) for key, value in parameters.items()}


_DRIVERS: Mapping[str, Callable[[Parameters, int], DescribedVolume]] = {
    "ebs.csi.aws.com": _aws,
    "ebs.csi.eks.amazonaws.com": _aws,
    "kubernetes.io/aws-ebs": lambda parameters, gib: _aws({"type": "gp2", **parameters}, gib),
    "pd.csi.storage.gke.io": _google,
    "kubernetes.io/gce-pd": _google,
    "disk.csi.azure.com": _azure,
    "kubernetes.io/azure-disk": _azure,
}


_IS_DEFAULT = "storageclass.kubernetes.io/is-default-class"
_CLAIM = (
    "a claim does not state the limits of its disk; add it and its storage class to the file"
    " (kubectl get pvc,storageclass), or import the volume (for example aws ec2 describe-volumes)"
)
Object = Mapping[str, Any]


@dataclass(frozen=True)
class ClaimedVolume:
    """A volume of a container with its claim; `storage_class` is that of the claim, or None."""

    name: str
    claim: Object
    storage_class: Object
    attributes: Object | None

    @property
    def driver(self) -> str:
        """The CSI driver, or the in-tree provisioner, that makes the volume."""
        return str(self.storage_class["provisioner"])

    @property
    def parameters(self) -> dict[str, str]:
        """The parameters of the storage class, replaced by those of a VolumeAttributesClass."""
        given = table(self.storage_class, "parameters")
        return {**given, **(table(self.attributes, "parameters") if self.attributes else {})}

    def described(self) -> DescribedVolume:
        """Return the volume as its provider describes it."""
        size = table(self.claim, "spec", "resources", "requests")["storage"]
        size_bytes = whole_bytes(kubernetes_quantity(size))
        return described_volume(self.driver, self.parameters, size_bytes)


def volume_of(
    spec: Object,
    templates: Object,
    container: Object,
    objects: Sequence[Object],
    selection: Selection,
) -> tuple[DescribedVolume | None, tuple[UnsupportedLimit, ...]]:
    """Return the volume of a container, None without a known one, and the volumes left out.

    `templates` are the claims of a StatefulSet by name. A cage limits one disk: the user picks one
    of several.
    """
    mounted = {str(row.get("name")) for row in rows(container.get("volumeMounts") or [])}
    claims = dict(_claims(spec, templates, objects))
    known = {
        name: found
        for name, claim in claims.items()
        if name in mounted and claim and (found := _claimed(name, claim, objects))
    }
    left_out = [UnsupportedLimit(f"volume {name}", _CLAIM) for name in claims if name not in known]
    if not known:
        return None, tuple(left_out)
    chosen = known[selection.choose("volume", list(known))]
    others = (name for name in known if name != chosen.name)
    reason = f"a cage limits one disk, and {chosen.name} was picked"
    left_out += [UnsupportedLimit(f"volume {name}", reason) for name in others]
    volume = chosen.described()
    return volume, (*left_out, *behaviour(chosen.driver, chosen.parameters, volume))


def claim_templates(controller: Object) -> dict[str, Any]:
    """Return the claims of a StatefulSet by the names of their volumes."""
    found = rows(table(controller, "spec").get("volumeClaimTemplates") or [])
    return {str(table(row, "metadata").get("name")): row for row in found}


def _claims(
    spec: Object, templates: Object, objects: Sequence[Object]
) -> Iterator[tuple[str, Object | None]]:
    """Yield each claimed volume of a pod with its claim, None if it is not in the file."""
    own = {str(row.get("name")) for row in rows(spec.get("volumes") or [])}
    yield from ((name, claim) for name, claim in templates.items() if name not in own)
    for row in rows(spec.get("volumes") or []):
        name = str(row.get("name"))
        if "ephemeral" in row:
            yield name, table(row, "ephemeral", "volumeClaimTemplate")
        elif "persistentVolumeClaim" in row:
            claim = table(row, "persistentVolumeClaim").get("claimName")
            yield name, _named(objects, "PersistentVolumeClaim", claim)


def _claimed(name: str, claim: Object, objects: Sequence[Object]) -> ClaimedVolume | None:
    """Return a volume with its classes; None if one of them is not in the file."""
    spec = table(claim, "spec")
    wanted = spec.get("storageClassName")
    attributes = spec.get("volumeAttributesClassName")
    storage_class = (
        _default_class(objects) if wanted is None else _named(objects, "StorageClass", wanted)
    )
    changed = _named(objects, "VolumeAttributesClass", attributes) if attributes else None
    if storage_class is None or (attributes and changed is None):
        return None
    return ClaimedVolume(name, claim, storage_class, changed)


def _named(objects: Sequence[Object], kind: str, name: object) -> Object | None:
    found = (one for one in objects if one.get("kind") == kind)
    return next((one for one in found if table(one, "metadata").get("name") == name), None)


def _default_class(objects: Sequence[Object]) -> Object | None:
    found = (one for one in objects if one.get("kind") == "StorageClass")
    return next(
        (
            one
            for one in found
            if str(table(one, "metadata", "annotations").get(_IS_DEFAULT)).lower() == "true"
        ),
        None,
    )


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
