"""The account of each witness of a trial's measured part, and by how much two may differ."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

from pagecage.model.record import Record
from pagecage.verdicts.counters import difference, io_difference
from reliability.witnesses.trials import LOADS

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


TOLERANCE = 0.01
SLACK = {"read bytes": 65536, "reads": 4, "written bytes": 65536, "writes": 4}
"""A difference of so little is none: the file system reads a block of its own now and then."""
ABOVE, BELOW = ("fio", "io.stat"), ("diskstats", "QEMU", "volume")
"""Witnesses of the trial's own requests, and of all requests to the disk."""
PAGE_CACHE = "the page cache forms requests of its own (read-ahead, writeback)"
JOURNAL = "ext4's journal and inodes are written by kernel threads outside of the trial's slice"
READ_AHEAD = "read-ahead goes past the last block that fio reads"
HANDED_OVER = (
    "the kernel charges the flush of a file to the cgroup that wrote it before, and hands it over"
    " only after several flushes (cgroup-v2.rst, Writeback)"
)
MERGED_BY_QEMU = "QEMU merged adjacent requests before the volume (turned off since)"
NOT_YET = "the last writes are still in the page cache when the trial ends"
MERGED = "the scheduler merges requests after io.stat has counted them"


@dataclass(frozen=True)
class Difference:
    """Two witnesses of one quantity in one trial. `reason` is why they must differ; None if not.

    `share` is the second's excess over the first.
    """

    pair: tuple[str, str]
    quantity: str
    trial: str
    first: float
    second: float
    reason: str | None

    @property
    def share(self) -> float:
        """The excess of the second over the first, as a share of the first."""
        return self.second / self.first - 1 if self.first else float(self.second != 0)

    @property
    def is_agreement(self) -> bool:
        apart = abs(self.second - self.first)
        return apart <= max(SLACK[self.quantity], TOLERANCE * self.first)


def differences(trial: Mapping[str, Any]) -> Iterator[Difference]:
    """Yield the pairs of witnesses of a stored trial, for what its load moves."""
    load, found = LOADS[trial["load"]], trial["accounts"]
    present = [name for name in WITNESSES if name in found]
    for quantity in QUANTITIES[2:] if load.writes else QUANTITIES[:2]:
        for pair in combinations(present, 2):
            first, second = (
                _amount(found, name, other, quantity)
                for name, other in (pair, tuple(reversed(pair)))
            )
            name = f"{trial['load']}, {trial['cage']}"
            reason = must_differ(pair, quantity, trial)
            yield Difference(pair, quantity, name, first, second, reason)


def _amount(found: Mapping[str, Account], name: str, other: str, quantity: str) -> float:
    """Return what a witness says to be held against another.

    The disk's requests are those that it completed, and against witnesses above it also those that
    were merged into them. QEMU merges once more before the volume.
    """
    account, merged = found[name], f"{quantity} merged"
    if name == "diskstats" and other in ABOVE:
        return account[quantity] + account.get(merged, 0)
    if name == "QEMU" and other == "volume":
        return account[quantity] - account.get(merged, 0)
    return account[quantity]


def must_differ(pair: tuple[str, str], quantity: str, trial: Mapping[str, Any]) -> str | None:
    """Return why two witnesses of a quantity cannot agree; None if they must."""
    load, counts_requests = LOADS[trial["load"]], not quantity.endswith("bytes")
    if "fio" in pair and counts_requests and not load.is_direct:
        return PAGE_CACHE
    if "fio" in pair and load.is_part:
        return READ_AHEAD
    if load.writes and not load.is_direct and not load.makes_file and set(pair) & {*ABOVE}:
        return HANDED_OVER if "io.stat" in pair else NOT_YET
    merged_by_qemu = trial["accounts"]["QEMU"].get(f"{quantity} merged", 0)
    if counts_requests and pair[1] == "volume" and pair[0] != "QEMU" and merged_by_qemu:
        return MERGED_BY_QEMU
    crosses = pair[0] in ABOVE and pair[1] in BELOW
    if crosses and load.writes:
        return JOURNAL
    merged = trial["accounts"]["diskstats"].get(f"{quantity} merged", 0)
    if crosses and counts_requests and pair[1] != "diskstats" and merged:
        return MERGED
    return None


def as_json(one: Difference) -> dict[str, Any]:
    """Return a comparison with its difference, and whether the witnesses agree."""
    return {**asdict(one), "share": round(one.share, 6), "agrees": one.is_agreement}


def unexplained(trials: list[Mapping[str, Any]]) -> list[Difference]:
    """Return the differences beyond the tolerance for which there is no reason."""
    found = (one for trial in trials for one in differences(trial))
    return [one for one in found if one.reason is None and not one.is_agreement]
