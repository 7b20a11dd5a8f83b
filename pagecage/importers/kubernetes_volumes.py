"""The volume of a container of Kubernetes, from the claim and the classes beside its pod."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pagecage.importers.csi_drivers import behaviour, described_volume
from pagecage.importers.document import rows, table
from pagecage.importers.quantities import kubernetes_quantity, whole_bytes
from pagecage.importers.result import DescribedVolume, Selection, UnsupportedLimit

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
