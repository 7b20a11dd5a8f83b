"""The writer of cage files; a written file reads back as the same cage."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from decimal import Decimal
from typing import Any

from pagecage.model.cage import (
    CLOUD_PARTS,
    BurstCredits,
    Cage,
    CloudVolume,
    CreditBucket,
    DiskLimits,
    LatencyQuantiles,
    LayerLimit,
)
from pagecage.units import exact_size, percent_text

_COUNTS = {"IOReadIOPSMax", "IOWriteIOPSMax", "CPUQuota"}
_SIZES = {
    "size_bytes": "size",
    "throughput_bytes_per_second": "throughput",
    "io_size_bytes": "io_size",
    "bytes_per_second": "rate",
    "block_bytes": "block",
}
"""Keys of a cage file whose values are sizes with a unit, by the field of the model."""
TomlTable = dict[str, object]


def cage_to_toml(cage: Cage, comments: Sequence[str] = ()) -> str:
    """Return the text of a file of cgroups/, with `comments` at its top.

    Sizes have the unit that states them exactly. A file without MemorySwapMax turns swap off, so
    only another value is written.
    """
    about = str(cage.provenance.get("about", cage.name))
    lines = [f"# {comment}" for comment in comments]
    lines += [*_assignments({"about": about}), *_amounts(cage.properties)]
    if "MemorySwapMax" not in cage.properties:
        lines.append('MemorySwapMax = "infinity"')
    if cage.is_volume or cage.simulation or any(one.simulation for one in cage.disks.values()):
        lines += _assignments({"enforced_by": cage.enforced_by})
    source = cage.provenance.get("source")
    cited = {"source": {key: value for key, value in source.items() if value}} if source else {}
    for name, table in (cited | _volume_tables(cage)).items():
        lines += [f"[{name}]", *_assignments(table)]
    text = "\n".join(lines) + "\n"
    return text + "".join(disk_to_toml(name, disk) for name, disk in cage.disks.items())


def disk_to_toml(disk: str, limits: DiskLimits) -> str:
    """Return the tables of a disk beside the data directory's, to be appended to a cage file."""
    lines = [f"[disks.{disk}]", *_amounts(limits.properties)]
    for name, table in _volume_tables(limits).items():
        lines += [f"[disks.{disk}.{name}]", *_assignments(table)]
    return "\n".join(lines) + "\n"


def _amounts(properties: Mapping[str, int]) -> Iterator[str]:
    for name, value in properties.items():
        if name in _COUNTS:
            yield f"{name} = {value}"
        elif value:
            yield f'{name} = "{exact_size(value)}"'


def _volume_tables(cage: Cage | DiskLimits) -> dict[str, TomlTable]:
    parts = {name: getattr(cage, name) for name in CLOUD_PARTS}
    return {name: _table(part) for name, part in parts.items() if part}


def _table(part: Any) -> TomlTable:
    """Return a part of a cage as the table of its file; None stands for a key that is left out."""
    match part:
        case LayerLimit():
            return _layer_limit(part)
        case LatencyQuantiles(size_bytes, quantiles):
            percentiles_us = {percent_text(p): _number(us) for p, us in quantiles}
            return {"size": exact_size(size_bytes), "percentiles_us": percentiles_us}
    table = {_SIZES.get(name, name): _entry(name, value) for name, value in vars(part).items()}
    match part:
        case CloudVolume(scale=scale):
            table["scale"] = None if scale == 1 else scale
        case BurstCredits(bandwidth=CreditBucket(rate, credits_)):
            table["bandwidth"] = {"rate": exact_size(rate), "credits": exact_size(credits_)}
    return table


def _entry(name: str, value: Any) -> Any:
    if isinstance(value, tuple):
        return [_table(one) for one in value] or None
    if is_dataclass(value):
        return _table(value)
    return _bytes(value) if name in _SIZES and value is not None else _number(value)


def _layer_limit(limit: LayerLimit) -> TomlTable:
    name, written = ("bandwidth", _bytes) if limit.unit == "bytes" else ("iops", _number)
    table: TomlTable = {"layer": limit.layer, "of": limit.of, name: written(limit.per_second)}
    if limit.burst_per_second is not None and limit.credits is not None:
        bucket = {"rate": written(limit.burst_per_second), "credits": written(limit.credits)}
        table[f"{name}_burst"] = bucket
    return table


def _number(value: Any) -> Any:
    """Return a whole float as an int, because a person would write it so."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _bytes(count: float) -> str:
    """Return a size that reads back as the same float."""
    return exact_size(int(count)) if count == int(count) else f"{Decimal(repr(count)):f}B"


def _assignments(table: Mapping[str, object]) -> Iterator[str]:
    for key, value in table.items():
        if value is not None:
            name = key if key.replace("_", "").isalpha() else json.dumps(key)
            yield f"{name} = {_value(value)}"


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(_assignments(value))} }}"
    if isinstance(value, list):
        return "[\n" + "".join(f"  {_value(item)},\n" for item in value) + "]"
    return json.dumps(value, ensure_ascii=False)  # TOML writes these values as JSON does
