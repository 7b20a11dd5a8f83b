"""Volumes as the storage classes of three cloud providers' CSI drivers describe them.

Sources: docs/parameters.md of aws-ebs-csi-driver, docs/driver-parameters.md of azuredisk-csi-driver
and the parameters of gcp-compute-persistent-disk-csi-driver. Keys are compared without regard to
case. The in-tree provisioners have the parameters of the drivers that replaced them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal

from pagecage.errors import PagecageError
from pagecage.importers.cloud_disks import aws_volume
from pagecage.importers.quantities import kubernetes_quantity
from pagecage.importers.result import DescribedVolume, UnsupportedLimit
from pagecage.units import GIB, MIB

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
