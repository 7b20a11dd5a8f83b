"""Disks as the tools of three cloud providers describe them.

Amazon and Google describe the type and the provisioned values of a disk; its limits follow from
the catalogue. Azure describes the limits.
"""

from __future__ import annotations

from collections.abc import Iterator

from pagecage.errors import PagecageError
from pagecage.importers.document import Document, Table, rows, table
from pagecage.importers.result import (
    DescribedVolume,
    ImportedLimit,
    Importer,
    ImportResult,
    Selection,
    UnsupportedLimit,
)
from pagecage.units import GIB, exact_size

_AWS_TYPES = {"gp2", "gp3", "io1", "io2", "st1", "sc1"}
_MOST_IOPS_OF_IO2 = 64_000
_AWS_KEYS = ("VolumeId", "VolumeType", "Size", "Iops", "Throughput", "Attachments")
_AWS_INSTANCE = (
    "the limits of the instance may be tighter; add --instance TYPE (aws ec2 describe-instances)"
)
_GCLOUD_KEYS = ("name", "type", "sizeGb", "provisionedIops", "provisionedThroughput", "users")
_GCLOUD_MACHINE = "disks of one type share the limits of the machine; add --instance TYPE"
_AZURE_KEYS = (
    *("name", "sku", "disksizegb", "diskiopsreadwrite", "diskmbpsreadwrite"),
    *("burstingenabled", "tier", "managedby"),
)
_AZURE_MACHINE = (
    "the limits of the machine may be tighter and have credits of their own (az vm show)"
)
_AZURE_CREDITS = "the catalogue has the credits of each size: pagecage cage list --provider azure"


def is_aws(document: Document) -> bool:
    """Return whether this is `aws ec2 describe-volumes` (Amazon EC2 API, Volume)."""
    volumes = rows(table(document.tree).get("Volumes"))
    return bool(volumes) and all("VolumeType" in volume and "Size" in volume for volume in volumes)


def read_aws(document: Document, selection: Selection) -> ImportResult:
    volume = _one_of(rows(document.tree["Volumes"]), "VolumeId", "volume", selection)
    attached = rows(volume.get("Attachments") or [])
    unsupported = (
        (UnsupportedLimit("the instance with this volume", _AWS_INSTANCE),) if attached else ()
    )
    ignored = tuple(f"Volumes.{key}" for key in volume if key not in _AWS_KEYS)
    about = "The limits of a customer's volume, from aws ec2 describe-volumes."
    return ImportResult(
        "aws ec2 describe-volumes", about, (), unsupported, ignored, aws_volume(volume)
    )


def aws_volume(volume: Table) -> DescribedVolume:
    """Return the volume without values that follow from its type.

    The API also lists the IOPS of gp2, which follow from its size. Only gp3 has a provisioned
    throughput. The API calls io2 and io2 Block Express alike; only the latter has more than 64,000
    IOPS.
    """
    kind = str(volume["VolumeType"])
    if kind not in _AWS_TYPES:
        raise PagecageError(f"the catalogue has no volume of type {kind!r}", "pagecage cage list")
    has_iops = kind in ("gp3", "io1", "io2")
    iops = int(volume["Iops"]) if has_iops and volume.get("Iops") else None
    throughput = int(volume["Throughput"]) if kind == "gp3" and volume.get("Throughput") else None
    kind = "io2-block-express" if kind == "io2" and (iops or 0) > _MOST_IOPS_OF_IO2 else kind
    return DescribedVolume(f"aws-{kind}", int(volume["Size"]) * GIB, iops, throughput)


def is_gcloud(document: Document) -> bool:
    """Return whether this is `gcloud compute disks describe` (Compute Engine API, Disk)."""
    disks = rows(document.tree)
    return bool(disks) and all(
        "sizeGb" in disk and "/diskTypes/" in str(disk.get("type")) for disk in disks
    )


def read_gcloud(document: Document, selection: Selection) -> ImportResult:
    """Read the type and the provisioned values of one disk. The unit of `sizeGb` is GiB."""
    disk = _one_of(rows(document.tree), "name", "disk", selection)
    kind = str(disk["type"]).rpartition("/")[2]
    provisioned = (
        int(disk[key]) if disk.get(key) else None
        for key in ("provisionedIops", "provisionedThroughput")
    )
    unsupported = (
        (UnsupportedLimit("the machine with this disk", _GCLOUD_MACHINE),)
        if disk.get("users")
        else ()
    )
    ignored = tuple(key for key in disk if key not in _GCLOUD_KEYS)
    about = "The limits of a customer's disk, from gcloud compute disks describe."
    volume = DescribedVolume(f"gcp-{kind}", int(disk["sizeGb"]) * GIB, *provisioned)
    return ImportResult("gcloud compute disks describe", about, (), unsupported, ignored, volume)


def is_azure(document: Document) -> bool:
    """Return whether this is `az disk show` (Azure Compute REST API, Disk)."""
    disks = [_with_lower_keys(row) for row in rows(document.tree)]
    return bool(disks) and all("disksizegb" in disk and "sku" in disk for disk in disks)


def read_azure(document: Document, selection: Selection) -> ImportResult:
    """Read the limits of one disk, which reads and writes share; Azure's MB is 10**6 bytes.

    The catalogue has the burst credits, which follow from the size.
    """
    disk = _one_of(rows(document.tree), "name", "disk", selection)
    ignored = tuple(key for key in disk if key.lower() not in _AZURE_KEYS)
    about = (
        f"The limits of a customer's disk ({table(disk, 'sku').get('name', 'unknown type')}), from"
        " az disk show."
    )
    disk = _with_lower_keys(disk)
    unsupported = []
    if str(table(disk, "sku").get("name", "")).startswith(("Premium_", "StandardSSD_")):
        unsupported.append(UnsupportedLimit("burst credits of the disk", _AZURE_CREDITS))
    if disk.get("managedby"):
        unsupported.append(UnsupportedLimit("the machine with this disk", _AZURE_MACHINE))
    return ImportResult(
        "az disk show", about, tuple(_azure_limits(disk)), tuple(unsupported), ignored
    )


def _with_lower_keys(row: Table) -> Table:
    return {str(key).lower(): value for key, value in row.items()}


def _azure_limits(disk: Table) -> Iterator[ImportedLimit]:
    iops, megabytes = disk.get("diskiopsreadwrite"), disk.get("diskmbpsreadwrite")
    for direction in ("Read", "Write"):
        if megabytes:
            basis = f"diskMBpsReadWrite = {megabytes} (MB of 10**6 bytes)"
            yield ImportedLimit(
                f"IO{direction}BandwidthMax", exact_size(int(megabytes) * 1000**2), basis
            )
        if iops:
            yield ImportedLimit(f"IO{direction}IOPSMax", int(iops), f"diskIopsReadWrite = {iops}")
    if iops or megabytes:
        yield ImportedLimit("accounting.combined", True, "reads and writes share one limit")


def _one_of(disks: list[Table], key: str, kind: str, selection: Selection) -> Table:
    by_name = {
        str(disk.get(key) or f"{kind} {number}"): disk for number, disk in enumerate(disks, 1)
    }
    return by_name[selection.choose(kind, list(by_name))]


IMPORTERS = (
    Importer(is_aws, read_aws),
    Importer(is_gcloud, read_gcloud),
    Importer(is_azure, read_azure),
)
