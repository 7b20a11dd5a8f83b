"""The account of each witness of a trial's measured part: requests and bytes, read and written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pagecage.model.record import Record
from pagecage.verdicts.counters import difference, io_difference

WITNESSES = ("fio", "io.stat", "diskstats", "QEMU", "volume")
QUANTITIES = ("read bytes", "reads", "written bytes", "writes")
_SECTOR_BYTES = 512
_IO_STAT = {"read bytes": "rbytes", "reads": "rios", "written bytes": "wbytes", "writes": "wios"}
_QEMU = {
    "read bytes": "rd_bytes",
    "reads": "rd_operations",
    "written bytes": "wr_bytes",
    "writes": "wr_operations",
    "reads merged": "rd_merged",
    "writes merged": "wr_merged",
}
_VOLUME = {
    "read bytes": "total_read_bytes",
    "reads": "total_read_ops",
    "written bytes": "total_write_bytes",
    "writes": "total_write_ops",
}
Account = Mapping[str, float]


def accounts(
    record: Record, blocks: Sequence[Mapping[str, Any]], fio_text: str
) -> dict[str, Account]:
    """Return the account of each witness; the volume's is missing if it did not serve the disk.

    `blocks` are QEMU's statistics of the data disk before and after the measured part.
    """
    found: dict[str, Account] = {
        "fio": of_fio(fio_text),
        "io.stat": {name: io_difference(record, key) or 0 for name, key in _IO_STAT.items()},
        "diskstats": of_device(record),
        "QEMU": {name: blocks[1][key] - blocks[0][key] for name, key in _QEMU.items()},
    }
    served = (record.cage.external or {}).get("account")
    if served:
        found["volume"] = {name: served[key] for name, key in _VOLUME.items()}
    return found


def of_fio(text: str) -> dict[str, float]:
    """Return the sums over fio's jobs, from its JSON."""
    jobs = json.loads(text[text.index("{") :])["jobs"]
    parts = {"read": "read bytes", "write": "written bytes"}
    found: dict[str, float] = {}
    for part, name in parts.items():
        found[name] = sum(job[part]["io_bytes"] for job in jobs)
        found[f"{part}s"] = sum(job[part]["total_ios"] for job in jobs)
    return found


def of_device(record: Record) -> dict[str, float]:
    """Return the disk's line of /proc/diskstats; merged requests stand for themselves."""

    def grown(field: str) -> float:
        return difference(record, "device", field) or 0

    return {
        "read bytes": grown("sectors_read") * _SECTOR_BYTES,
        "reads": grown("reads"),
        "reads merged": grown("reads_merged"),
        "written bytes": grown("sectors_written") * _SECTOR_BYTES,
        "writes": grown("writes"),
        "writes merged": grown("writes_merged"),
        "flushes": grown("flushes"),
    }


def data_disk(answer: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the statistics of the data disk in QEMU's answer to `query-blockstats`."""
    for block in answer:
        if "data-disk" in str(block.get("qdev")):
            stats: Mapping[str, Any] = block["stats"]
            return stats
    raise LookupError(f"QEMU lists no data disk among {[one.get('qdev') for one in answer]}")
