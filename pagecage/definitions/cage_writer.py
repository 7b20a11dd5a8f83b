"""The writer of cage files; a written file reads back as the same cage."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from pagecage.model.cage import (
    BurstCredits,
    Cage,
    CloudVolume,
    CreditBucket,
    DiskLimits,
    IoAccounting,
    LatencyFloor,
    LatencyQuantiles,
    LayerLimit,
    VolumeSimulation,
)
from pagecage.units import exact_size, percent_text

_COUNTS = {"IOReadIOPSMax", "IOWriteIOPSMax", "CPUQuota"}


def cage_to_toml(cage: Cage, comments: Sequence[str] = ()) -> str:
    """Return the text of a file of cgroups/, with `comments` at its top.

    Sizes have the unit that states them exactly. A file without MemorySwapMax turns swap off, so
    only another value is written.
    """
    about = str(cage.provenance.get("about", cage.name))
    lines = ["#:schema ../docs/schema/cage.schema.json", *(f"# {comment}" for comment in comments)]
    lines += [*_assignments({"about": about}), *_limits(cage.properties)]
    if cage.is_volume or cage.simulation or any(one.simulation for one in cage.disks.values()):
        lines += _assignments({"enforced_by": cage.enforced_by})
    for name, table in _tables(cage).items():
        lines += [f"[{name}]", *_assignments(table)]
    text = "\n".join(lines) + "\n"
    return text + "".join(disk_to_toml(name, disk) for name, disk in cage.disks.items())


def disk_to_toml(disk: str, limits: DiskLimits) -> str:
    """Return the tables of a disk beside the data directory's, to be appended to a cage file."""
    lines = [f"[disks.{disk}]", *_amounts(limits.properties)]
    for name, table in _volume_tables(limits).items():
        lines += [f"[disks.{disk}.{name}]", *_assignments(table)]
    return "\n".join(lines) + "\n"


def _limits(properties: Mapping[str, int]) -> Iterator[str]:
    yield from _amounts(properties)
    if "MemorySwapMax" not in properties:
        yield 'MemorySwapMax = "infinity"'


def _amounts(properties: Mapping[str, int]) -> Iterator[str]:
    for name, value in properties.items():
        if name in _COUNTS:
            yield f"{name} = {value}"
        elif value:
            yield f'{name} = "{exact_size(value)}"'


def _tables(cage: Cage) -> dict[str, dict[str, Any]]:
    source = cage.provenance.get("source")
    given = {key: value for key, value in source.items() if value} if source else None
    return ({} if given is None else {"source": given}) | _volume_tables(cage)


def _volume_tables(cage: Cage | DiskLimits) -> dict[str, dict[str, Any]]:
    tables = {
        "volume": _volume(cage.volume) if cage.volume else None,
        "burst": _burst(cage.burst) if cage.burst else None,
        "accounting": _accounting(cage.accounting) if cage.accounting else None,
        "latency": _latency(cage.latency) if cage.latency else None,
        "simulation": _simulation(cage.simulation) if cage.simulation else None,
    }
    return {name: table for name, table in tables.items() if table is not None}


def _volume(volume: CloudVolume) -> dict[str, Any]:
    return {
        "provider": volume.provider,
        "type": volume.type,
        "size": _size(volume.size_bytes),
        "iops": volume.iops,
        "throughput": _size(volume.throughput_bytes_per_second),
        "instance": volume.instance,
        "scale": volume.scale if volume.scale != 1 else None,
    }


def _burst(burst: BurstCredits) -> dict[str, Any]:
    iops, bandwidth = burst.iops, burst.bandwidth
    return {
        "start": burst.start,
        "iops": {"rate": iops.rate, "credits": iops.credits} if iops else None,
        "bandwidth": _bytes_bucket(bandwidth) if bandwidth else None,
    }


def _bytes_bucket(bucket: CreditBucket) -> dict[str, Any]:
    return {"rate": exact_size(bucket.rate), "credits": exact_size(bucket.credits)}


def _accounting(accounting: IoAccounting) -> dict[str, Any]:
    size = _size(accounting.io_size_bytes)
    return {"io_size": size, "merged": accounting.merged, "combined": accounting.combined}


def _latency(latency: LatencyFloor) -> dict[str, Any]:
    return {"read_us": latency.read_us, "write_us": latency.write_us}


def _simulation(simulation: VolumeSimulation) -> dict[str, Any]:
    restore = simulation.restore
    return {
        "limits": [_layer_limit(limit) for limit in simulation.limits] or None,
        "read_latency": [_quantiles(one) for one in simulation.read_latency] or None,
        "write_latency": [_quantiles(one) for one in simulation.write_latency] or None,
        "restore": {
            "rate": _bytes(restore.bytes_per_second),
            "block": exact_size(restore.block_bytes),
        }
        if restore
        else None,
        "events": [
            {key: _number(value) for key, value in vars(event).items()}
            for event in simulation.events
        ]
        or None,
    }


def _layer_limit(limit: LayerLimit) -> dict[str, Any]:
    name, written = ("bandwidth", _bytes) if limit.unit == "bytes" else ("iops", _number)
    table: dict[str, Any] = {"layer": limit.layer, "of": limit.of, name: written(limit.per_second)}
    if limit.burst_per_second is not None and limit.credits is not None:
        bucket = {"rate": written(limit.burst_per_second), "credits": written(limit.credits)}
        table[f"{name}_burst"] = bucket
    return table


def _quantiles(latency: LatencyQuantiles) -> dict[str, Any]:
    percentiles = {percent_text(p): _number(us) for p, us in latency.quantiles}
    return {"size": exact_size(latency.size_bytes), "percentiles_us": percentiles}


def _number(value: Any) -> Any:
    """Return a whole float as an int, because a person would write it so."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _bytes(count: float) -> str:
    """Return a size that reads back as the same float."""
    return exact_size(int(count)) if count.is_integer() else f"{Decimal(repr(count)):f}B"


def _size(count: int | None) -> str | None:
    return None if count is None else exact_size(count)


def _assignments(table: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a table, without keys whose value is None."""
    for key, value in table.items():
        if value is not None:
            name = key if key.replace("_", "").isalpha() else json.dumps(key)
            yield f"{name} = {_value(value)}"


def _value(value: Any) -> str:
    """Return a value in TOML.

    Strings, numbers and booleans are written alike in JSON and TOML; objects are not.
    """
    if isinstance(value, Mapping):
        return f"{{ {', '.join(_assignments(value))} }}"
    if isinstance(value, list):
        return "[\n" + "".join(f"  {_value(item)},\n" for item in value) + "]"
    return json.dumps(value, ensure_ascii=False)
