"""`az disk show`: Azure tells the limits themselves, reads and writes together (Azure Compute REST API, Disk).

Megabytes are 10**6 bytes there. Credits for bursting follow from the size and stand in the catalogue.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pagecage.importers.document import Document, rows, table
from pagecage.importers.result import ImportedLimit, ImportResult, Selection, UnsupportedLimit
from pagecage.units import exact_size

_READ = ("name", "sku", "diskSizeGb", "diskIopsReadWrite", "diskMBpsReadWrite", "burstingEnabled", "tier", "managedBy")
_MACHINE = "its own limits may be tighter, and have credits of their own (az vm show)"
_CREDITS = "credits for bursting, where the disk has them, stand in the catalogue: pagecage cage list --provider azure"


def recognise(document: Document) -> bool:
    """Whether it is managed disks of Azure's."""
    found = [_lowered(row) for row in rows(document.tree)]
    return bool(found) and all("disksizegb" in row and "sku" in row for row in found)


def read(document: Document, picks: Selection) -> ImportResult:
    """The limits of one disk."""
    disks = {str(row.get("name") or f"disk {number}"): row for number, row in enumerate(rows(document.tree), 1)}
    disk = disks[picks.choose("disk", list(disks))]
    known = {key.lower() for key in _READ}
    about = f"The limits of a customer's disk ({table(disk, 'sku').get('name', 'unknown type')}), from az disk show."
    ignored = tuple(key for key in disk if key.lower() not in known)
    return ImportResult("az disk show", about, tuple(_carried(_lowered(disk))), tuple(_lost(_lowered(disk))), ignored)


def _lowered(row: dict[str, Any]) -> dict[str, Any]:
    """Keys in small letters: the tool and the API beneath spell them with other capitals."""
    return {str(key).lower(): value for key, value in row.items()}


def _carried(disk: dict[str, Any]) -> Iterator[ImportedLimit]:
    iops, megabytes = disk.get("diskiopsreadwrite"), disk.get("diskmbpsreadwrite")
    for way in ("Read", "Write"):
        if megabytes:
            said = f"diskMBpsReadWrite = {megabytes} (MB of 10**6 bytes)"
            yield ImportedLimit(f"IO{way}BandwidthMax", exact_size(int(megabytes) * 1000**2), said)
        if iops:
            yield ImportedLimit(f"IO{way}IOPSMax", int(iops), f"diskIopsReadWrite = {iops}")
    if iops or megabytes:
        yield ImportedLimit("accounting.combined", True, "one limit for reads and writes together")


def _lost(disk: dict[str, Any]) -> Iterator[UnsupportedLimit]:
    if str(table(disk, "sku").get("name", "")).startswith(("Premium_", "StandardSSD_")):
        yield UnsupportedLimit("bursting", _CREDITS)
    if disk.get("managedby"):
        yield UnsupportedLimit("the machine that it is attached to", _MACHINE)
