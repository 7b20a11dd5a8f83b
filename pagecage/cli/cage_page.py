"""Cages and the catalogue, as pages of the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pagecage.cloud.catalogue import BurstRule, Provider, VolumeType
from pagecage.cloud.formulas import Formula, LimitLayer, RatePeriod, rate_periods
from pagecage.cloud.notes import notes
from pagecage.cloud.profile import (
    LimitProfile,
    cage_of,
    instance_names,
    latency_sources,
    profile_of_cage,
)
from pagecage.cloud.volume_request import in_unit
from pagecage.definitions.reader import Definitions
from pagecage.errors import PagecageError
from pagecage.model.cage import LatencyQuantiles, cage_to_json
from pagecage.model.json_codec import JsonView
from pagecage.model.volume_model import latency_at
from pagecage.planning.cage_choice import cage_profile
from pagecage.units import (
    exact_size,
    format_both_rates,
    format_bytes,
    format_hours,
    format_microseconds,
    percent_text,
)

_SHOWN = ("50", "90", "95", "99", "99.9", "99.99")
_WIDE = 150  # columns of a terminal that has room for the descriptions


def console() -> Console:
    """Return a console on standard output, as wide as the terminal, and not wrapped in a pipe."""
    return Console(highlight=False, emoji=False, width=None if sys.stdout.isatty() else 1000)


def plain_table(*heads: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for head in heads:
        table.add_column(head, overflow="fold")
    return table


def print_rows(
    out: Console, heads: Sequence[str], rows: Iterable[Sequence[str]], *, has_names: bool = False
) -> None:
    """Print a plain table of texts; the first column is bold if it has names."""
    table = plain_table(*heads)
    for row in rows:
        first, *others = map(escape, row)
        table.add_row(f"[bold]{first}[/]" if has_names else first, *others)
    print_table(out, table)


def print_table(out: Console, table: Table) -> None:
    """Print a table without trailing spaces."""
    with out.capture() as captured:
        out.print(table)
    for line in captured.get().splitlines():
        out.file.write(line.rstrip() + "\n")


def print_heading(out: Console, name: str, description: str) -> None:
    out.print(f"[bold]{escape(name)}[/]{f'  {escape(description)}' if description else ''}")


def print_paragraphs(out: Console, texts: list[str]) -> None:
    if texts:
        out.print()
    grid = Table.grid(padding=(0, 1, 0, 0))
    for text in texts:
        grid.add_row("·", escape(" ".join(text.split())))
    print_table(out, grid)


def show_profile(profile: LimitProfile, description: str) -> None:
    out = console()
    print_heading(out, profile.name, description)
    out.print(f"[dim]{escape(profile.about)}[/]")
    disks = {"limit": profile}
    disks |= {f"disk {name}": disk for name, disk in disk_profiles(profile).items()}
    for title, disk in disks.items():
        out.print()
        print_rows(out, (title, "rate", "set by", "lasts"), _limit_rows(disk))
        if rows := latency_rows(disk):
            out.print()
            print_rows(out, ("latency", "size", "percentiles", "measured by", "load"), rows)
    print_paragraphs(out, [*notes(profile), *profile.remarks])
    out.print()
    for cited in (*profile.sources, *latency_sources(profile)):
        source = cited.source
        line = f"{cited.of}: {source.title}, {source.date or 'undated'}  {source.url}"
        out.print(f"[dim]{escape(line.rstrip())}[/]", soft_wrap=True)


def latency_rows(profile: LimitProfile) -> list[tuple[str, str, str, str, str]]:
    """Return direction, size, percentiles, source and load of each distribution."""
    simulation = profile.simulation
    if simulation is None:
        return []
    rows = []
    origins = {
        (one.direction, one.size_bytes): (one.source.title, one.load)
        for one in reversed(profile.measured)
        if one.use == "distribution"
    }
    both = {"read": simulation.read_latency, "write": simulation.write_latency}
    for direction, sizes in both.items():
        for one in sizes:
            origin = origins.get((direction, one.size_bytes), ("", ""))
            size = exact_size(one.size_bytes, " ")
            rows.append((direction, size, percentiles_text(one), *origin))
        if not sizes:
            rows.append((direction, "", "not published" if profile.is_offer else "none", "", ""))
    return rows if any(percentiles != "not published" for _, _, percentiles, _, _ in rows) else []


def percentiles_text(latency: LatencyQuantiles) -> str:
    """Return the usual percentiles in one line, with the highest below the maximum."""
    given = {percent_text(p): us for p, us in latency.quantiles}
    names = [name for name in given if name in _SHOWN]
    if names:
        names += [name for name in given if name != "100"][-1:]
        shown = {name: us for name, us in given.items() if name in names}
    else:
        lowest, highest = latency.quantiles[0][0], latency.quantiles[-1][0]
        shown = {
            name: latency_at(latency.quantiles, float(name) / 100)
            for name in _SHOWN
            if lowest <= float(name) / 100 <= highest
        } or given
    return ", ".join(f"p{name} {format_microseconds(us)}" for name, us in shown.items())


def disk_profiles(profile: LimitProfile) -> dict[str, LimitProfile]:
    """Return the limits of each disk that a cage names in addition to the data directory's."""
    cage = profile.cage
    return {name: profile_of_cage(cage.on_disk(name), None) for name in cage.disks} if cage else {}


def _limit_rows(profile: LimitProfile) -> Iterator[tuple[str, str, str, str]]:
    for quantity, name in (("iops", "IOPS"), ("bandwidth", "bandwidth")):
        sides = {
            f"{side} {name}": getattr(profile.limits, f"{side}_{quantity}")
            for side in ("read", "write")
        }
        reads, writes = sides.values()
        for title, layers in ({name: reads} if reads == writes else sides).items():
            yield from _speeds(title, layers, profile.start)
    if memory := _memory(profile):
        yield "memory", memory, profile.memory_by, ""
    high = profile.cage.properties.get("MemoryHigh") if profile.cage else None
    if high is not None:
        yield "memory, throttled above", format_bytes(high), profile.memory_by, ""


def _memory(profile: LimitProfile) -> str:
    if profile.memory_share is not None:
        return f"{profile.memory_share * 100:g} % of the dataset"
    return "" if profile.memory_bytes is None else format_bytes(profile.memory_bytes)


def _speeds(
    name: str, layers: tuple[LimitLayer, ...], start: str
) -> Iterator[tuple[str, str, str, str]]:
    if not layers:
        yield name, "no limit", "", ""
    is_bandwidth = name.endswith("bandwidth")
    for period in rate_periods(layers, start):
        rate, seconds = float(period.rate), period.seconds
        lasts = "indefinitely"
        if seconds is not None:
            whose = "" if period.credits_of == period.by else f", credits of {period.credits_of}"
            lasts = f"{format_hours(float(seconds))} from {start}{whose}"
        yield name, format_both_rates(rate) if is_bandwidth else f"{rate:.6g}", period.by, lasts
        name = ""


def profile_to_json(profile: LimitProfile) -> JsonView:
    """Return the page as data (docs/FORMAT.md)."""
    try:
        cage = profile.cage or cage_of(profile, profile.name, profile.about)
    except PagecageError:
        cage = None  # the scale makes a limit smaller than 1
    return {
        "name": profile.name,
        "about": profile.about,
        "start": profile.start,
        "limits": {
            name: {
                "layers": list(map(_figures, layers)),
                "phases": list(map(_figures, rate_periods(layers, profile.start))),
            }
            for name, layers in vars(profile.limits).items()
        },
        "memory_bytes": profile.memory_bytes,
        "memory_dataset_fraction": profile.memory_share,
        "published_latency": profile.published.model_dump() if profile.published else None,
        "measured_latency": [
            {**asdict(one), "source": one.source.model_dump()} for one in profile.measured
        ],
        "notes": list(notes(profile)),
        "remarks": list(profile.remarks),
        "sources": [{"of": cited.of, **cited.source.model_dump()} for cited in profile.sources],
        "cage": cage and cage_to_json(cage),
    }


def _figures(one: LimitLayer | RatePeriod) -> JsonView:
    return {
        key: float(value) if isinstance(value, Fraction) else value
        for key, value in asdict(one).items()
    }


@dataclass(frozen=True)
class CatalogueFilter:
    """Filters of the listing; None does not filter."""

    provider: str | None
    type: str | None
    min_iops: int | None

    def passes(self, name: str, most_iops: Fraction | None) -> bool:
        is_fast = self.min_iops is None or most_iops is None or most_iops >= self.min_iops
        return is_fast and (self.type is None or self.type.lower() in name)


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
    types = (kind for provider in offered for kind in provider.types)
    instances = [(provider.name, name) for provider in offered for name in instance_names(provider)]
    names = [] if filters.provider else defined.cage_names()

    def most_reads(cage: LimitProfile) -> Fraction | None:
        return max((layer.burst or layer.base for layer in cage.limits.read_iops), default=None)

    cages = [cage_profile(defined, name) for name in names]
    fast = (
        kind for kind in types if filters.passes(kind.name, _most(kind.read_iops, kind.iops_burst))
    )
    return CatalogueListing(
        tuple(fast),
        tuple(instances if filters.type is None and filters.min_iops is None else ()),
        tuple(cage for cage in cages if filters.passes(cage.name, most_reads(cage))),
    )


def _most(formula: Formula | None, rule: BurstRule | None) -> Fraction | None:
    """Return the greatest rate, bursts included; None if the volume type sets no limit."""
    base, burst = formula.greatest if formula else None, rule.rate.greatest if rule else None
    return base if base is None or burst is None else max(base, burst)


def show_listing(listing: CatalogueListing) -> None:
    out = console()
    if listing.types:
        heads = ["volume", "size", "read IOPS", "throughput", "burst", "as of", "description"]
        heads = heads if out.width >= _WIDE else heads[:-1]
        rows = (_type_row(kind)[: len(heads)] for kind in listing.types)
        print_rows(out, heads, rows, has_names=True)
    for provider in dict.fromkeys(provider for provider, _ in listing.instances):
        names = " ".join(name for by, name in listing.instances if by == provider)
        out.print(f"\n[dim]--instance of {provider}:[/] {escape(names)}")
    if listing.cages:
        heads = ["cage", "memory", "read IOPS", "read bandwidth", "description"]
        out.print()
        print_rows(out, heads, map(_cage_row, listing.cages), has_names=True)


def _type_row(kind: VolumeType) -> list[str]:
    size, unit_bytes, burst = kind.size, kind.throughput_unit_bytes, kind.iops_burst
    iops, throughput = (
        _most(kind.read_iops, burst),
        _most(kind.read_throughput, kind.throughput_burst),
    )
    has_end = burst is not None and (burst.credits is not None or burst.seconds is not None)
    dates = (source.date for source in reversed(kind.sources) if source.date)
    return [
        kind.name,
        f"{exact_size(size.least_bytes, ' ')} to {exact_size(size.most_bytes, ' ')}"
        if size
        else "any",
        "by instance" if iops is None else f"to {int(iops)}",
        "by instance" if throughput is None else f"to {in_unit(throughput, unit_bytes)}",
        "credits" if has_end else "endless" if burst else "none",
        next(dates, None) or "undated",
        kind.about,
    ]


def _cage_row(cage: LimitProfile) -> list[str]:
    disks = {"": cage, **{f"{name}: ": disk for name, disk in disk_profiles(cage).items()}}
    rates: list[dict[str, str]] = [{}, {}]
    for name, disk in disks.items():
        rates[0][name] = " ".join(f"{int(layer.base)}" for layer in disk.limits.read_iops)
        rates[1][name] = " ".join(
            format_both_rates(float(layer.base)) for layer in disk.limits.read_bandwidth
        )
    cells = (", ".join(f"{name}{rate}" for name, rate in one.items() if rate) for one in rates)
    return [cage.name, _memory(cage), *cells, cage.about]


def listing_to_json(listing: CatalogueListing) -> JsonView:
    """Return the listing as data (docs/FORMAT.md); null for a limit that the type does not set."""
    return {
        "types": [_type_json(kind) for kind in listing.types],
        "instances": [{"provider": provider, "name": name} for provider, name in listing.instances],
        "cages": [
            {
                "name": cage.name,
                "about": cage.about,
                "memory_bytes": cage.memory_bytes,
                "memory_dataset_fraction": cage.memory_share,
                **{
                    name: float(layers[0].base) if layers else None
                    for name, layers in vars(cage.limits).items()
                },
                "disks": sorted(disk_profiles(cage)),
            }
            for cage in listing.cages
        ],
    }


def _type_json(kind: VolumeType) -> JsonView:
    def greatest(formula: Formula | None) -> float | None:
        value = formula.greatest if formula else None
        return None if value is None else float(value)

    return {
        "name": kind.name,
        "provider": kind.provider,
        "type": kind.type,
        "about": kind.about,
        "size": kind.size.model_dump() if kind.size else None,
        **{
            f"most_{name}": greatest(getattr(kind, name))
            for name in ("read_iops", "write_iops", "read_throughput", "write_throughput")
        },
        "most_burst_iops": greatest(kind.iops_burst.rate if kind.iops_burst else None),
        "tiers": list(kind.tiers),
        "sources": [source.model_dump() for source in kind.sources],
    }
