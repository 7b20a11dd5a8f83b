"""Pods of Kubernetes, with their claims, storage classes and Memory QoS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from pagecage.errors import PagecageError
from pagecage.importers.cloud_disks import aws_volume
from pagecage.importers.document import (
    Document,
    Table,
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
    Importer,
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
    given, gib = _lower(parameters), -(-size_bytes // GIB)
    match driver:
        case "ebs.csi.aws.com" | "ebs.csi.eks.amazonaws.com" | "kubernetes.io/aws-ebs":
            usual = "gp2" if driver == "kubernetes.io/aws-ebs" else "gp3"
            iops = given.get("iops")
            if iops is None and "iopspergb" in given:
                iops = str(int(Decimal(given["iopspergb"]) * gib))
            rates = {"Iops": iops, "Throughput": given.get("throughput")}
            return aws_volume({"VolumeType": given.get("type", usual), "Size": gib, **rates})
        case "pd.csi.storage.gke.io" | "kubernetes.io/gce-pd":
            iops = given.get("iops") or given.get("provisioned-iops-on-create")
            # A quantity such as 250Mi, of a Hyperdisk.
            rate = given.get("throughput") or given.get("provisioned-throughput-on-create")
            throughput = None if rate is None else int(-(-kubernetes_quantity(rate) // MIB))
            name = f"gcp-{given.get('type', 'pd-standard')}"
            return DescribedVolume(name, gib * GIB, int(iops) if iops else None, throughput)
        case "disk.csi.azure.com" | "kubernetes.io/azure-disk":
            return _azure(given, gib)
    reason = f"the storage driver {driver!r} states no limits that pagecage knows"
    raise PagecageError(reason, "remove its claim from the file, and import a probe of the volume")


def _azure(parameters: Parameters, gib: int) -> DescribedVolume:
    sku = parameters.get("skuname") or parameters.get("storageaccounttype") or "StandardSSD_LRS"
    kind = _AZURE_TYPES.get(sku.lower())
    if kind is None:
        raise PagecageError(f"the catalogue has no disk of type {sku!r}", "pagecage cage list")
    if kind == "premium-ssd" and parameters.get("enablebursting", "").lower() == "true":
        kind = "premium-ssd-on-demand"
    elif kind == "premium-ssd" and parameters.get("enableperformanceplus", "").lower() == "true":
        kind = "premium-ssd-performance-plus"
    iops, megabytes = (
        int(parameters[key]) if parameters.get(key) else None
        for key in ("diskiopsreadwrite", "diskmbpsreadwrite")
    )
    return DescribedVolume(f"azure-{kind}", gib * GIB, iops, megabytes)


def _lower(parameters: Parameters) -> dict[str, str]:
    return {str(key).lower(): str(value) for key, value in parameters.items()}


_IS_DEFAULT = "storageclass.kubernetes.io/is-default-class"
_CLAIM = (
    "a claim does not state the limits of its disk; add it and its storage class to the file"
    " (kubectl get pvc,storageclass), or import the volume (for example aws ec2 describe-volumes)"
)


@dataclass(frozen=True)
class ClaimedVolume:
    """A volume of a container with its claim; `storage_class` is that of the claim, or None."""

    name: str
    claim: Table
    storage_class: Table
    attributes: Table | None

    def described(self) -> tuple[DescribedVolume, list[UnsupportedLimit]]:
        """Return the volume as its provider describes it, and what a cage cannot do of it.

        Parameters of a VolumeAttributesClass replace those of the storage class.
        """
        driver = str(self.storage_class["provisioner"])
        parameters = dict(table(self.storage_class, "parameters"))
        parameters |= table(self.attributes, "parameters") if self.attributes else {}
        size = table(self.claim, "spec", "resources", "requests")["storage"]
        size_bytes = whole_bytes(kubernetes_quantity(size))
        volume = described_volume(driver, parameters, size_bytes)
        kind = volume.name.removeprefix("azure-")
        mode = _lower(parameters).get("cachingmode", "ReadOnly")
        is_cached = driver == "disk.csi.azure.com" and not kind.startswith(_AZURE_WITHOUT_CACHE)
        if not is_cached or mode.lower() == "none":
            return volume, []
        reason = "a cache on the machine answers some reads above the disk's limits"
        return volume, [UnsupportedLimit(f"cachingMode = {mode}", reason)]


def volume_of(
    spec: Table,
    templates: Table,
    container: Table,
    objects: Sequence[Table],
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
    volume, cached = chosen.described()
    return volume, (*left_out, *cached)


def _claims(
    spec: Table, templates: Table, objects: Sequence[Table]
) -> Iterator[tuple[str, Table | None]]:
    own = {str(row.get("name")) for row in rows(spec.get("volumes") or [])}
    yield from ((name, claim) for name, claim in templates.items() if name not in own)
    for row in rows(spec.get("volumes") or []):
        name = str(row.get("name"))
        if "ephemeral" in row:
            yield name, table(row, "ephemeral", "volumeClaimTemplate")
        elif "persistentVolumeClaim" in row:
            claim = table(row, "persistentVolumeClaim").get("claimName")
            yield name, _named(objects, "PersistentVolumeClaim", claim)


def _claimed(name: str, claim: Table, objects: Sequence[Table]) -> ClaimedVolume | None:
    spec = table(claim, "spec")
    wanted = spec.get("storageClassName")
    attributes = spec.get("volumeAttributesClassName")
    if wanted is None:
        defaults = (
            one
            for one in objects
            if one.get("kind") == "StorageClass"
            and str(table(one, "metadata", "annotations").get(_IS_DEFAULT)).lower() == "true"
        )
        storage_class = next(defaults, None)
    else:
        storage_class = _named(objects, "StorageClass", wanted)
    changed = _named(objects, "VolumeAttributesClass", attributes) if attributes else None
    if storage_class is None or (attributes and changed is None):
        return None
    return ClaimedVolume(name, claim, storage_class, changed)


def _named(objects: Sequence[Table], kind: str, name: object) -> Table | None:
    for one in objects:
        if one.get("kind") == kind and table(one, "metadata").get("name") == name:
            return one
    return None


DEFAULT_FACTOR = Decimal("0.9")
"""`memoryThrottlingFactor` of KubeletConfiguration since Kubernetes 1.27."""
PAGE_BYTES = 4096
_QOS_RESOURCES = ("cpu", "memory")
Found = tuple[tuple[ImportedLimit, ...], tuple[UnsupportedLimit, ...]]


def memory_high(request: Decimal, limit: Decimal, factor: Decimal) -> int | None:
    """Return memory.high in bytes; None if the kubelet sets none, at a request of the limit."""
    high = int((request + factor * (limit - request)) // PAGE_BYTES) * PAGE_BYTES
    return high if high > request else None


def memory_qos(
    spec: Table,
    container: Table,
    objects: Sequence[Table],
    given: float | None,
) -> Found:
    """Return MemoryHigh of a container, or why it is not known; neither if there is none.

    The factor is `given`, or that of a KubeletConfiguration with the feature; without one there is
    no Memory QoS. Raises PagecageError for a factor that the kubelet refuses.
    """
    factor = None if given is None else Decimal(str(given))
    for one in objects if given is None else ():
        is_on = table(one, "featureGates").get("MemoryQoS") is True
        if one.get("kind") == "KubeletConfiguration" and is_on:
            factor = Decimal(str(one.get("memoryThrottlingFactor") or DEFAULT_FACTOR))
    if factor is not None and not 0 < factor <= 1:
        reason = f"{factor} is not a memory throttling factor"
        raise PagecageError(reason, "give one above 0 and at most 1")
    return _memory_high(spec, container, objects, factor)


def _memory_high(
    spec: Table, container: Table, objects: Sequence[Table], factor: Decimal | None
) -> Found:
    request, limit = _request(container, "memory"), _limit(container, "memory")
    if _is_guaranteed(spec) or (factor is None and request == limit):
        return (), ()
    if factor is None:
        reason = "only the kubelets' configuration states it; if it is on: --memory-qos 0.9"
        return (), (UnsupportedLimit("memory.high of Memory QoS", reason),)
    where = "limit"
    if limit is None:
        where = "allocatable memory of the node"
        nodes = [one for one in objects if one.get("kind") == "Node"]
        found = [table(node, "status", "allocatable").get("memory") for node in nodes]
        if len(found) == 1 and found[0] is not None:
            limit = kubernetes_quantity(found[0])
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


def _limit(container: Table, resource: str) -> Decimal | None:
    found = table(container, "resources", "limits").get(resource)
    return None if found is None else kubernetes_quantity(found)


def _request(container: Table, resource: str) -> Decimal | None:
    found = table(container, "resources", "requests").get(resource)
    return _limit(container, resource) if found is None else kubernetes_quantity(found)


def _is_guaranteed(spec: Table) -> bool:
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


ORIGIN = "a pod of Kubernetes"
_TEMPLATES = ((), ("template", "spec"), ("jobTemplate", "spec", "template", "spec"))


def recognise(document: Document) -> bool:
    objects = rows(document.tree)
    return bool(objects) and all("apiVersion" in row and "kind" in row for row in objects)


def read(document: Document, selection: Selection) -> ImportResult:
    objects = [item for row in rows(document.tree) for item in rows(row.get("items") or row)]
    pods: dict[str, tuple[Table, Table]] = {}  # with the claims of a StatefulSet
    for item in objects:
        claims = rows(table(item, "spec").get("volumeClaimTemplates") or [])
        templates = {str(table(row, "metadata").get("name")): row for row in claims}
        name = str(table(item, "metadata").get("name") or item.get("kind"))
        for path in _TEMPLATES:
            if "containers" in (spec := table(item, "spec", *path)):
                pods[name] = (spec, templates)
    if not pods:
        kinds = ", ".join(sorted({str(row["kind"]) for row in rows(document.tree)}))
        reason = f"the file does not contain a pod ({kinds})"
        raise PagecageError(reason, "kubectl get pod NAME -o yaml")
    spec, templates = pods[selection.choose("pod", list(pods))]
    containers = {str(row.get("name")): row for row in rows(spec.get("containers") or [])}
    container = containers[selection.choose("container", list(containers))] if containers else {}
    limits = table(container, "resources", "limits")
    throttle, unknown = memory_qos(spec, container, objects, selection.memory_qos)
    volume, left_out = volume_of(spec, templates, container, objects, selection)
    ignored = [f"spec.{key}" for key in spec if key not in ("containers", "volumes", "resources")]
    known = ("name", "resources", "volumeMounts")
    ignored += [f"container.{key}" for key in container if key not in known]
    if "cpu" in table(container, "resources", "requests"):
        ignored.append("container.resources.requests.cpu")
    return ImportResult(
        ORIGIN,
        "The limits of a customer's pod, from kubectl get pod.",
        (*_limits(limits, table(spec, "resources", "limits")), *throttle),
        tuple(_unsupported(limits, spec, containers, container, (*unknown, *left_out))),
        tuple(ignored),
        volume,
    )


def _unsupported(
    limits: Table,
    spec: Table,
    containers: Mapping[str, Table],
    picked: Table,
    known: Sequence[UnsupportedLimit],
) -> Iterator[UnsupportedLimit]:
    for key, value in limits.items():
        if key not in ("memory", "cpu"):
            reason = (
                "a cage does not limit disk space" if key == "ephemeral-storage" else NO_SUCH_LIMIT
            )
            yield UnsupportedLimit(f"resources.limits.{key} = {value}", reason)
    yield from known
    for row in rows(spec.get("volumes") or []):
        if table(row, "emptyDir").get("medium") == "Memory":
            reason = "its files count as memory of the container"
            yield UnsupportedLimit(f"volume {row.get('name')} in memory", reason)
    for name, container in containers.items():
        if container is not picked:
            reason = "it runs beside the picked one, with limits of its own"
            yield UnsupportedLimit(f"container {name}", reason)


def _limits(limits: Table, pod_limits: Table) -> Iterator[ImportedLimit]:
    """Yield the tighter of the container's limit and that of the whole pod (Kubernetes 1.32)."""
    for key in ("memory", "cpu"):
        tables = (("resources.limits", limits), ("spec.resources.limits", pod_limits))
        given = [(where, found[key]) for where, found in tables if found.get(key) is not None]
        if not given:
            continue
        where, written = min(given, key=lambda pair: kubernetes_quantity(pair[1]))
        amount = kubernetes_quantity(written)
        if key == "memory" and amount:
            basis = f"{where}.memory = {written}"
            yield ImportedLimit("MemoryMax", exact_size(whole_bytes(amount)), basis)
        elif amount:
            basis = f"{where}.cpu = {written} ({plain(amount)} CPUs)"
            yield ImportedLimit("CPUQuota", cpu_percent(amount), basis)


IMPORTERS = (Importer(recognise, read),)
