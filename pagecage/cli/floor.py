"""`pagecage floor`: the least time that limits allow, before anything runs."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

from cyclopts import Parameter
from rich.markup import escape

from pagecage.cli.cage import CATALOGUE
from pagecage.cli.cage_options import VolumeOptions, describe_volume
from pagecage.cli.cage_page import console, plain_table, print_heading, print_table
from pagecage.cli.named_profile import named_profile
from pagecage.cli.numbers import Positive
from pagecage.cli.output import Json
from pagecage.cloud.catalogue import read_offers
from pagecage.cloud.profile import LimitProfile
from pagecage.cloud.time_floor import IoAmount, LimitFloor, time_floors
from pagecage.errors import EXIT_OK, PagecageError
from pagecage.units import format_bytes, format_seconds, parse_size_bytes

Amount = Annotated[str | None, Parameter(metavar="SIZE")]


def floor(
    name: str,
    volume: VolumeOptions = VolumeOptions(),  # noqa: B008 - frozen
    *,
    read_bytes: Annotated[str | None, Parameter(name="--bytes", metavar="SIZE")] = None,
    reads: Positive | None = None,
    written_bytes: Amount = None,
    writes: Positive | None = None,
    depth: Positive | None = None,
    as_json: Json = False,
) -> int:
    """Compute the least time that the limits of a volume or a cage allow.

    No program is faster than the longest of these times. Each limit of the volume and of the
    instance has its own.

    Parameters
    ----------
    name
        Volume type (aws-gp3), named size (azure-p10), or cage (see `pagecage cage list`)
    read_bytes
        Bytes that the program reads, for example 28GB
    reads
        Number of read requests
    written_bytes
        Bytes that the program writes
    writes
        Number of write requests
    depth
        Requests in flight; with it, the least latency counts too
    """
    if not any((read_bytes, reads, written_bytes, writes)):
        raise PagecageError("there is no amount of I/O", "--bytes 28GB --reads 220000")
    profile, _ = named_profile(read_offers(CATALOGUE), name, volume)
    sizes = _size(read_bytes, "--bytes"), _size(written_bytes, "--written-bytes")
    floors = time_floors(profile, IoAmount(sizes[0], reads or 0, sizes[1], writes or 0, depth))
    (_print_json if as_json else _show)(profile, floors)
    return EXIT_OK


def _size(text: str | None, option: str) -> int:
    return 0 if text is None else parse_size_bytes(text, option)


def _print_json(profile: LimitProfile, floors: list[LimitFloor]) -> None:
    print(json.dumps({"name": profile.name, "floors": [asdict(one) for one in floors]}))


def _show(profile: LimitProfile, floors: list[LimitFloor]) -> None:
    out = console()
    print_heading(out, profile.name, describe_volume(profile.volume))
    if not floors:
        out.print("No limit applies to this amount.")
        return
    out.print(f"at least {format_seconds(floors[0].seconds)}, because of {floors[0].limit}")
    out.print()
    table = plain_table("limit", "set by", "amount", "at least")
    for one in floors:
        amount = format_bytes(one.amount) if "bandwidth" in one.limit else f"{one.amount:,}"
        table.add_row(*map(escape, (one.limit, one.by, amount, format_seconds(one.seconds))))
    print_table(out, table)
