"""Cages and the catalogue, as pages of the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pagecage.cli.options import VolumeOptions, definitions, describe_volume, profile_for
from pagecage.cloud.catalogue import BurstRule, Provider, VolumeType
from pagecage.cloud.formulas import Formula, LimitLayer, RatePeriod, rate_periods
from pagecage.cloud.notes import notes
from pagecage.cloud.profile import (
    LabelledSource,
    LimitProfile,
    cage_of,
    instance_names,
    profile_of_cage,
)
from pagecage.cloud.volume_request import in_unit
from pagecage.definitions.reader import Definitions
from pagecage.errors import PagecageError
from pagecage.model.cage import LatencyQuantiles, cage_to_json
from pagecage.model.volume_model import latency_at
from pagecage.units import (
    exact_size,
    format_both_rates,
    format_bytes,
    format_hours,
    format_microseconds,
    percent_text,
)

_SHOWN = ("50", "90", "95", "99", "99.9", "99.99")


def latency_rows(profile: LimitProfile) -> list[tuple[str, str, str, str, str]]:
    """Return direction, size, percentiles, source and load of each distribution.

    A direction without one has a row if the other has one. A distribution of a cage has no source.
    """
    rows = list(_rows(profile))
    return rows if any(percentiles != "not published" for _, _, percentiles, _, _ in rows) else []


def _rows(profile: LimitProfile) -> Iterator[tuple[str, str, str, str, str]]:
    simulation = profile.simulation
    if simulation is None:
        return
    for direction, sizes in (
        ("read", simulation.read_latency),
        ("write", simulation.write_latency),
    ):
        for one in sizes:
            source, load = _origin(profile, direction, one)
            yield direction, exact_size(one.size_bytes, " "), percentiles_text(one), source, load
        if not sizes:
            yield direction, "", "not published" if profile.is_offer else "none", "", ""


def _origin(profile: LimitProfile, direction: str, drawn: LatencyQuantiles) -> tuple[str, str]:
    """Return the title of the source and the load; "" for a distribution of a cage."""
    for one in profile.measured:
        key = (one.use, one.direction, one.size_bytes)
        if key == ("distribution", direction, drawn.size_bytes):
            return one.source.title, one.load
    return "", ""


def percentiles_text(latency: LatencyQuantiles) -> str:
    """Return the usual percentiles in one line, with the highest below the maximum.

    "p50 440 us, p95 720 us". If none of them is given, they are interpolated between the others.
    """
    given = {percent_text(p): us for p, us in latency.quantiles}
    names = [name for name in given if name in _SHOWN]
    if names:
        names += [name for name in given if name != "100"][-1:]
        shown = {name: us for name, us in given.items() if name in names}
    else:
        shown = _interpolated(latency) or given
    return ", ".join(f"p{name} {format_microseconds(us)}" for name, us in shown.items())


def _interpolated(latency: LatencyQuantiles) -> dict[str, float]:
    lowest, highest = latency.quantiles[0][0], latency.quantiles[-1][0]
    probabilities = {name: float(name) / 100 for name in _SHOWN}
    return {
        name: latency_at(latency.quantiles, p)
        for name, p in probabilities.items()
        if lowest <= p <= highest
    }


def latency_sources(profile: LimitProfile) -> list[LabelledSource]:
    """Return the sources of the distributions, each once."""
    used = [one for one in profile.measured if one.use == "distribution"]
    cited = [LabelledSource(f"{one.direction} latency", one.source) for one in used]
    return list({one.source.url: one for one in reversed(cited)}.values())[::-1]


def measured_json(profile: LimitProfile) -> list[dict[str, Any]]:
    """Return all measured latencies of a type, those at its limits too (docs/FORMAT.md)."""
    return [{**asdict(one), "source": one.source.model_dump()} for one in profile.measured]


_NAMES = {"iops": "IOPS", "bandwidth": "bandwidth"}


def console() -> Console:
    """Return a console on standard output, as wide as the terminal, and not wrapped in a pipe."""
    return Console(highlight=False, emoji=False, width=None if sys.stdout.isatty() else 1000)


def plain_table(*heads: str) -> Table:
    """Return a table without lines."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for head in heads:
        table.add_column(head, overflow="fold")
    return table


def show_profile(profile: LimitProfile, description: str) -> None:
    """Print the page."""
    out = console()
    print_heading(out, profile.name, description)
    out.print(f"[dim]{escape(profile.about)}[/]")
    out.print()
    table = plain_table("limit", "rate", "set by", "lasts")
    for row in _limit_rows(profile):
        table.add_row(*(escape(cell) for cell in row))
    print_table(out, table)
    _show_latencies(out, profile)
    _show_disks(out, profile)
    print_paragraphs(out, [*notes(profile), *profile.remarks])
    out.print()
    for cited in (*profile.sources, *latency_sources(profile)):
        source = cited.source
        line = f"{cited.of}: {source.title}, {source.date or 'undated'}  {source.url}"
        out.print(f"[dim]{escape(line.rstrip())}[/]", soft_wrap=True)


def _show_latencies(out: Console, profile: LimitProfile) -> None:
    rows = latency_rows(profile)
    if not rows:
        return
    table = plain_table("latency", "size", "percentiles", "measured by", "load")
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    out.print()
    print_table(out, table)


def _show_disks(out: Console, profile: LimitProfile) -> None:
    """Print the limits of each disk beside the data directory's."""
    for name, disk in disk_profiles(profile).items():
        table = plain_table(f"disk {name}", "rate", "set by", "lasts")
        for row in _limit_rows(disk):
            table.add_row(*(escape(cell) for cell in row))
        out.print()
        print_table(out, table)
        _show_latencies(out, disk)


def disk_profiles(profile: LimitProfile) -> dict[str, LimitProfile]:
    """Return the limits of each disk that a cage names beside the data directory's."""
    cage = profile.cage
    names = cage.disks if cage else ()
    return {name: profile_of_cage(cage.on_disk(name), None) for name in names if cage}


def print_heading(out: Console, name: str, description: str) -> None:
    """Print the name of a profile, and its volume in one line if there is one."""
    out.print(f"[bold]{escape(name)}[/]{f'  {escape(description)}' if description else ''}")


def print_table(out: Console, table: Table) -> None:
    """Print a table without trailing spaces."""
    with out.capture() as captured:
        out.print(table)
    for line in captured.get().splitlines():
        out.file.write(line.rstrip() + "\n")


def print_paragraphs(out: Console, texts: list[str]) -> None:
    """Print a list of sentences below an empty line."""
    if texts:
        out.print()
    grid = Table.grid(padding=(0, 1, 0, 0))
    for text in texts:
        grid.add_row("·", escape(" ".join(text.split())))
    print_table(out, grid)


def _limit_rows(profile: LimitProfile) -> Iterator[tuple[str, str, str, str]]:
    for quantity, name in _NAMES.items():
        reads, writes = (
            getattr(profile.limits, f"{side}_{quantity}") for side in ("read", "write")
        )
        if reads == writes:
            yield from _speeds(name, quantity, reads, profile.start)
        else:
            yield from _speeds(f"read {name}", quantity, reads, profile.start)
            yield from _speeds(f"write {name}", quantity, writes, profile.start)
    if profile.memory_share is not None:
        yield "memory", f"{profile.memory_share * 100:g} % of the dataset", profile.memory_by, ""
    elif profile.memory_bytes is not None:
        yield "memory", format_bytes(profile.memory_bytes), profile.memory_by, ""
    high = profile.cage.properties.get("MemoryHigh") if profile.cage else None
    if high is not None:
        yield "memory, throttled above", format_bytes(high), profile.memory_by, ""


def _speeds(
    name: str, quantity: str, layers: tuple[LimitLayer, ...], start: str
) -> Iterator[tuple[str, str, str, str]]:
    """Yield one row per rate in force: that of a burst, then the one after it."""
    if not layers:
        yield name, "no limit", "", ""
    for period in rate_periods(layers, start):
        yield name, _rate(period.rate, quantity), period.by, _lasts(period, start)
        name = ""


def _rate(rate: Fraction, quantity: str) -> str:
    return format_both_rates(float(rate)) if quantity == "bandwidth" else f"{float(rate):.6g}"


def _lasts(period: RatePeriod, start: str) -> str:
    return (
        "indefinitely"
        if period.seconds is None
        else f"{format_hours(float(period.seconds))} from {start}"
    )


def profile_to_json(profile: LimitProfile) -> dict[str, Any]:
    """Return the page as data (docs/FORMAT.md).

    Figures are not rounded, `seconds` is null for a rate without end, `cage` has the form of plans.
    """
    return {
        "name": profile.name,
        "about": profile.about,
        "start": profile.start,
        "limits": {
            name: _limit(layers, profile.start) for name, layers in vars(profile.limits).items()
        },
        "memory_bytes": profile.memory_bytes,
        "memory_dataset_fraction": profile.memory_share,
        "published_latency": profile.published.model_dump() if profile.published else None,
        "measured_latency": measured_json(profile),
        "notes": list(notes(profile)),
        "remarks": list(profile.remarks),
        "sources": [{"of": cited.of, **cited.source.model_dump()} for cited in profile.sources],
        "cage": _cage(profile),
    }


def _cage(profile: LimitProfile) -> dict[str, Any] | None:
    if profile.cage:
        return cage_to_json(profile.cage)
    try:
        return cage_to_json(cage_of(profile, profile.name, profile.about))
    except PagecageError:
        return None  # the scale makes a limit smaller than 1


def _limit(layers: tuple[LimitLayer, ...], start: str) -> dict[str, Any]:
    return {
        "layers": [
            {key: _number(value) for key, value in asdict(layer).items()} for layer in layers
        ],
        "phases": [
            {key: _number(value) for key, value in asdict(phase).items()}
            for phase in rate_periods(layers, start)
        ],
    }


def _number(value: str | Fraction | None) -> str | float | None:
    return float(value) if isinstance(value, Fraction) else value


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
        name: [_figure(layer.base) for layer in layers]
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
    return _figure(formula.greatest) if formula else None


def _figure(value: Fraction | None) -> float | None:
    return None if value is None else float(value)


def named_profile(
    providers: tuple[Provider, ...], name: str, volume: VolumeOptions
) -> tuple[LimitProfile, str]:
    """Return the limits of a cage or of a volume of the catalogue, and the volume in one line.

    Raises PagecageError for an unknown name, and for options of a volume beside a cage.
    """
    defined = definitions()
    if name not in defined.cage_names():
        return profile_for(providers, name, volume, defined.cage_names())
    if volume != VolumeOptions():
        raise fixed_limits(name)
    profile = cage_profile(defined, name)
    return profile, describe_volume(profile.volume)


def fixed_limits(name: str) -> PagecageError:
    """Return the error for options of a volume beside a cage."""
    return PagecageError(f"{name} is a cage: its limits are fixed", f"pagecage cage show {name}")
