"""The page of one limit profile: limits and who sets them, notes, and sources."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from fractions import Fraction
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pagecage.cli.latency_table import latency_rows, latency_sources, measured_json
from pagecage.cloud.notes import notes
from pagecage.cloud.profile import LimitProfile, cage_of, profile_of_cage
from pagecage.cloud.volume_limits import LimitLayer, RatePeriod, rate_periods
from pagecage.errors import PagecageError
from pagecage.model.cage_json import cage_to_json
from pagecage.units import format_both_rates, format_bytes, format_hours

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
    for row in _rows(profile):
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
        for row in _rows(disk):
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


def _rows(profile: LimitProfile) -> Iterator[tuple[str, str, str, str]]:
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
