"""`aws ec2 describe-volumes`: type, size and what was provisioned (Amazon EC2 API, Volume)."""

from __future__ import annotations

from typing import Any

from pagecage.errors import PagecageError
from pagecage.importers.document import Document, rows, table
from pagecage.importers.result import DescribedVolume, ImportResult, Selection, UnsupportedLimit
from pagecage.units import GIB

_TYPES = {"gp2", "gp3", "io1", "io2", "st1", "sc1"}
_MOST_IOPS_OF_IO2 = 64_000
_READ = ("VolumeId", "VolumeType", "Size", "Iops", "Throughput", "Attachments")
_INSTANCE = "its own limits may be tighter: add --instance TYPE (aws ec2 describe-instances)"


def recognise(document: Document) -> bool:
    """Whether it has a list of volumes with their types."""
    volumes = rows(table(document.tree).get("Volumes"))
    return bool(volumes) and all("VolumeType" in volume and "Size" in volume for volume in volumes)


def read(document: Document, picks: Selection) -> ImportResult:
    """The order that one volume was bought by."""
    volumes = {
        str(row.get("VolumeId") or f"volume {n}"): row for n, row in enumerate(rows(document.tree["Volumes"]), 1)
    }
    volume = volumes[picks.choose("volume", list(volumes))]
    lost = tuple(
        UnsupportedLimit("the instance that it is attached to", _INSTANCE)
        for _ in rows(volume.get("Attachments") or [])[:1]
    )
    ignored = tuple(f"Volumes.{key}" for key in volume if key not in _READ)
    about = "The limits of a customer's volume, from aws ec2 describe-volumes."
    return ImportResult("aws ec2 describe-volumes", about, (), lost, ignored, _order(volume))


def _order(volume: dict[str, Any]) -> DescribedVolume:
    """gp2's IOPS follow from its size, and only gp3 has a throughput of its own."""
    kind = str(volume["VolumeType"])
    if kind not in _TYPES:
        raise PagecageError(f"a volume of type {kind!r} is not in the catalogue", "pagecage cage list")
    bought = kind in ("gp3", "io1", "io2")
    iops = int(volume["Iops"]) if bought and volume.get("Iops") else None
    throughput = int(volume["Throughput"]) if kind == "gp3" and volume.get("Throughput") else None
    # The API has one name for both; only Block Express has more than 64,000 IOPS.
    kind = "io2-block-express" if kind == "io2" and (iops or 0) > _MOST_IOPS_OF_IO2 else kind
    return DescribedVolume(f"aws-{kind}", int(volume["Size"]) * GIB, iops, throughput)
