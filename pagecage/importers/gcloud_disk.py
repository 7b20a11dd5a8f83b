"""`gcloud compute disks describe`, YAML as it prints it, or JSON (Compute Engine API, Disk)."""

from __future__ import annotations

from pagecage.importers.document import Document, rows
from pagecage.importers.result import DescribedVolume, ImportResult, Selection, UnsupportedLimit
from pagecage.units import GIB

_READ = ("name", "type", "sizeGb", "provisionedIops", "provisionedThroughput", "users")
_MACHINE = "disks of one type share their limits on a machine, which has caps of its own: add --instance TYPE"


def recognise(document: Document) -> bool:
    """Whether it is disks with a type of Google Cloud's."""
    found = rows(document.tree)
    return bool(found) and all("sizeGb" in row and "/diskTypes/" in str(row.get("type")) for row in found)


def read(document: Document, picks: Selection) -> ImportResult:
    """The order that one disk was bought by. Its size is in GiB, whatever its key says."""
    disks = {str(row.get("name") or f"disk {number}"): row for number, row in enumerate(rows(document.tree), 1)}
    disk = disks[picks.choose("disk", list(disks))]
    kind = str(disk["type"]).rpartition("/")[2]
    iops, throughput = (
        int(disk[key]) if disk.get(key) else None for key in ("provisionedIops", "provisionedThroughput")
    )
    lost = (UnsupportedLimit("the machine that it is attached to", _MACHINE),) if disk.get("users") else ()
    ignored = tuple(key for key in disk if key not in _READ)
    order = DescribedVolume(f"gcp-{kind}", int(disk["sizeGb"]) * GIB, iops, throughput)
    about = "The limits of a customer's disk, from gcloud compute disks describe."
    return ImportResult("gcloud compute disks describe", about, (), lost, ignored, order)
