"""The listing of `pagecage cage list`: volume types, instance types, and cages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from rich.markup import escape

from pagecage.cli.cage_page import console, disk_profiles, plain_table, print_table
from pagecage.cloud.catalogue import BurstRule, Provider, VolumeType
from pagecage.cloud.formulas import Formula
from pagecage.cloud.instances import instance_names
from pagecage.cloud.profile import LimitProfile, profile_of_cage
from pagecage.cloud.volume_request import in_unit
from pagecage.definitions.reader import Definitions
from pagecage.units import exact_size, format_both_rates, format_bytes

_WIDE = 150  # columns of a terminal that has room for the descriptions


@dataclass(frozen=True)
class CatalogueFilter:
    """Filters of the listing; None does not filter."""

    provider: str | None
    type: str | None
    min_iops: int | None


@dataclass(frozen=True)
class CatalogueListing:
    """Volume types, instance types and cages that passed the filters."""

    types: tuple[VolumeType, ...]
    instances: tuple[tuple[str, str], ...]
    cages: tuple[LimitProfile, ...]


def select(
    providers: tuple[Provider, ...], defined: Definitions, filters: CatalogueFilter
) -> CatalogueListing:
    """Return the entries that pass the filters; with a provider, no cages."""
    offered = [provider for provider in providers if filters.provider in (None, provider.name)]
    types = [
        kind
        for provider in offered
        for kind in provider.types
        if _passes(kind.name, _most_iops(kind), filters)
    ]
    instances = [(provider.name, name) for provider in offered for name in instance_names(provider)]
    cages = (
        [] if filters.provider else [cage_profile(defined, name) for name in defined.cage_names()]
    )
    return CatalogueListing(
        tuple(types),
        tuple(instances if filters.type is None and filters.min_iops is None else ()),
        tuple(cage for cage in cages if _passes(cage.name, _read_iops(cage), filters)),
    )


def cage_profile(defined: Definitions, name: str) -> LimitProfile:
    """Return the limits of a cage; a memory limit that is a share of the dataset stays a share."""
    cage, share = defined.cage_without_dataset(name)
    return profile_of_cage(cage, share)


def _passes(name: str, most_iops: Fraction | None, filters: CatalogueFilter) -> bool:
    is_fast = filters.min_iops is None or most_iops is None or most_iops >= filters.min_iops
    return is_fast and (filters.type is None or filters.type.lower() in name)


def _most_iops(kind: VolumeType) -> Fraction | None:
    """Return the most reads a second, bursts included; None if the type sets no limit."""
    return _with_burst(kind.read_iops, kind.iops_burst)


def _with_burst(formula: Formula | None, rule: BurstRule | None) -> Fraction | None:
    base, burst = formula.greatest if formula else None, rule.rate.greatest if rule else None
    return base if base is None or burst is None else max(base, burst)


def _read_iops(cage: LimitProfile) -> Fraction | None:
    return max((layer.burst or layer.base for layer in cage.limits.read_iops), default=None)


def show_listing(listing: CatalogueListing) -> None:
    """Print the volume types, the names of instance types, and the cages."""
    out = console()
    if listing.types:
        heads = ["volume", "size", "read IOPS", "throughput", "burst", "as of", "description"]
        heads = heads if out.width >= _WIDE else heads[:-1]
        table = plain_table(*heads)
        for kind in listing.types:
            name, *rest = list(_type_row(kind))[: len(heads)]
            table.add_row(f"[bold]{escape(name)}[/]", *(escape(cell) for cell in rest))
        print_table(out, table)
    for provider in dict.fromkeys(provider for provider, _ in listing.instances):
        names = " ".join(name for by, name in listing.instances if by == provider)
        out.print(f"\n[dim]--instance of {provider}:[/] {escape(names)}")
    if listing.cages:
        table = plain_table("cage", "memory", "read IOPS", "read bandwidth", "description")
        for cage in listing.cages:
            name, *rest = _cage_row(cage)
            table.add_row(f"[bold]{escape(name)}[/]", *(escape(cell) for cell in rest))
        out.print()
        print_table(out, table)


def _type_row(kind: VolumeType) -> Iterator[str]:
    size = kind.size
    yield kind.name
    yield (
        f"{exact_size(size.least_bytes, ' ')} to {exact_size(size.most_bytes, ' ')}"
        if size
        else "any"
    )
    iops, throughput = _most_iops(kind), _with_burst(kind.read_throughput, kind.throughput_burst)
    yield f"to {int(iops)}" if iops is not None else "by instance"
    yield (
        f"to {in_unit(throughput, kind.throughput_unit_bytes)}"
        if throughput is not None
        else "by instance"
    )
    yield "credits" if _is_limited(kind.iops_burst) else "endless" if kind.iops_burst else "none"
    yield next((source.date for source in reversed(kind.sources) if source.date), None) or "undated"
    yield kind.about


def _is_limited(rule: BurstRule | None) -> bool:
    """Return whether the burst ends, by credits or by time."""
    return rule is not None and (rule.credits is not None or rule.seconds is not None)


def _cage_row(cage: LimitProfile) -> Iterator[str]:
    yield cage.name
    if cage.memory_share is not None:
        yield f"{cage.memory_share * 100:g} % of the dataset"
    else:
        yield format_bytes(cage.memory_bytes) if cage.memory_bytes is not None else ""
    disks = {"": cage, **{f"{name}: ": disk for name, disk in disk_profiles(cage).items()}}
    yield _by_disk({name: _iops(disk) for name, disk in disks.items()})
    yield _by_disk({name: _bandwidth(disk) for name, disk in disks.items()})
    yield cage.about


def _by_disk(cells: Mapping[str, str]) -> str:
    return ", ".join(f"{name}{cell}" for name, cell in cells.items() if cell)


def _iops(disk: LimitProfile) -> str:
    return " ".join(f"{int(layer.base)}" for layer in disk.limits.read_iops)


def _bandwidth(disk: LimitProfile) -> str:
    return " ".join(format_both_rates(float(layer.base)) for layer in disk.limits.read_bandwidth)


def listing_to_json(listing: CatalogueListing) -> dict[str, Any]:
    """Return the listing as data (docs/FORMAT.md); null for a limit that the type does not set."""
    return {
        "types": [_type_json(kind) for kind in listing.types],
        "instances": [{"provider": provider, "name": name} for provider, name in listing.instances],
        "cages": [_cage_json(cage) for cage in listing.cages],
    }


def _type_json(kind: VolumeType) -> dict[str, Any]:
    return {
        "name": kind.name,
        "provider": kind.provider,
        "type": kind.type,
        "about": kind.about,
        "size": kind.size.model_dump() if kind.size else None,
        **{
            f"most_{name}": _greatest(getattr(kind, name))
            for name in ("read_iops", "write_iops", "read_throughput", "write_throughput")
        },
        "most_burst_iops": _greatest(kind.iops_burst.rate) if kind.iops_burst else None,
        "tiers": list(kind.tiers),
        "sources": [source.model_dump() for source in kind.sources],
    }


def _cage_json(cage: LimitProfile) -> dict[str, Any]:
    limits = {
        name: [_number(layer.base) for layer in layers]
        for name, layers in vars(cage.limits).items()
    }
    return {
        "name": cage.name,
        "about": cage.about,
        "memory_bytes": cage.memory_bytes,
        "memory_dataset_fraction": cage.memory_share,
        **{name: bases[0] if bases else None for name, bases in limits.items()},
        "disks": sorted(disk_profiles(cage)),
    }


def _greatest(formula: Formula | None) -> float | None:
    return _number(formula.greatest) if formula else None


def _number(value: Fraction | None) -> float | None:
    return None if value is None else float(value)
