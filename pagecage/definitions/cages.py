"""From a cage's file as it was checked to the cage as the harness has it: every value resolved."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pagecage.cage import UNCAGED, Accounting, Bucket, Burst, Cage, Latency, Volume
from pagecage.definitions.cage_tables import (
    BandwidthBucket,
    BurstTable,
    CageFile,
    Fraction,
    IopsBucket,
    VolumeTable,
)
from pagecage.errors import PagecageError
from pagecage.units import format_bytes, page_floor_bytes


def resolve_cage(name: str, table: CageFile, dataset_bytes: int | None, path: Path) -> Cage:
    """The cage; a MemoryMax that is a share of the dataset needs one, or raises PagecageError."""
    data = table.model_dump()
    limits = {k: data[k] for k in CageFile.model_fields if k[0].isupper() and data[k] is not None}
    if isinstance(table.MemoryMax, Fraction):
        if dataset_bytes is None:
            raise PagecageError(
                f"{path.name}: MemoryMax is a share of a dataset, and there is none",
                "name the data or its size: --cold of replay, --data-size of shell",
            )
        limits["MemoryMax"] = page_floor_bytes(round(dataset_bytes * table.MemoryMax.dataset_fraction))
        if limits["MemoryMax"] == 0:
            share = f"{table.MemoryMax.dataset_fraction:g} of {format_bytes(dataset_bytes)}"
            raise PagecageError(f"{path.name}: MemoryMax would be {share}, less than a page", "name more data")
    # Swap is closed, or anonymous memory would spill instead of being killed; and swap-in passes io.max unthrottled.
    if limits.get("MemorySwapMax") == "infinity":
        del limits["MemorySwapMax"]
    elif name != UNCAGED:
        limits.setdefault("MemorySwapMax", 0)
    count, latency = table.accounting, table.latency
    return Cage(
        name, limits, {key: data[key] for key in ("about", "source") if data[key] is not None},
        volume=_volume(table.volume) if table.volume else None, burst=_burst(table.burst) if table.burst else None,
        accounting=Accounting(count.io_size, count.merged, count.combined) if count else None,
        latency=Latency(latency.read_us, latency.write_us) if latency else None,
    )  # fmt: skip


def cage_of_tables(name: str, tables: Mapping[str, Any]) -> Cage:
    """The cage that tables made by a program are. Raises PagecageError where they are none."""
    try:
        return resolve_cage(name, CageFile.model_validate(dict(tables)), None, Path(f"{name}.toml"))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "file"
        message = first["msg"].removeprefix("Value error, ")
        raise PagecageError(f"that is no cage: {where}: {message}", "leave --save out to see what was read") from None


def _volume(table: VolumeTable) -> Volume:
    return Volume(
        table.provider, table.type, table.size, table.iops, table.throughput, table.instance, table.scale
    )  # fmt: skip


def _burst(table: BurstTable) -> Burst:
    return Burst(table.start, _bucket(table.iops), _bucket(table.bandwidth))


def _bucket(table: IopsBucket | BandwidthBucket | None) -> Bucket | None:
    return Bucket(table.rate, table.credits) if table else None
