"""`pagecage cage floor`: the least time that limits allow, before anything runs."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Annotated

from cyclopts import Parameter

from pagecage.cli.cage_choice import named_profile
from pagecage.cli.cage_page import console, print_heading, print_paragraphs, print_rows
from pagecage.cli.options import Positive, VolumeOptions
from pagecage.cli.output import Json, notify
from pagecage.cloud.comparison import IoAmount, LimitFloor, counting_notes, time_floors
from pagecage.cloud.profile import LimitProfile, describe_volume, profile_of_cage
from pagecage.errors import EXIT_OK, PagecageError, nearest
from pagecage.units import format_bytes, format_seconds, parse_size_bytes

Amount = Annotated[str | None, Parameter(metavar="SIZE")]


def floor(
    name: str,
    /,
    volume: VolumeOptions = VolumeOptions(),  # noqa: B008 - frozen
    *,
    read_bytes: Annotated[str | None, Parameter(name="--bytes", metavar="SIZE")] = None,
    reads: Positive | None = None,
    written_bytes: Amount = None,
    writes: Positive | None = None,
    depth: Positive | None = None,
    on_disk: Annotated[str | None, Parameter(metavar="NAME")] = None,
    as_json: Json = False,
) -> int:
    """Compute the least time that the limits of a volume or a cage allow.

    No program is faster than the longest of these times. Each limit of the volume and of the
    instance has its own.

    Parameters
    ----------
    name
        Cage, its file, volume of the catalogue (aws-gp3, azure-p10) or file to import
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
    on_disk
        Another disk of the cage, such as wal; by default that of the data
    """
    read, written = _size(read_bytes, "--bytes"), _size(written_bytes, "--written-bytes")
    profile = _profile(name, volume, on_disk)
    amount = IoAmount(read, reads or 0, written, writes or 0, depth)
    _print(profile, amount, as_json)
    return EXIT_OK


def _floors(profile: LimitProfile, amount: IoAmount) -> list[LimitFloor]:
    if amount == IoAmount(depth=amount.depth):
        raise PagecageError("there is no amount of I/O", "--bytes 28GB --reads 220000")
    return time_floors(profile, amount)


def _size(text: str | None, option: str) -> int:
    return 0 if text is None else parse_size_bytes(text, option)


def _profile(name: str, volume: VolumeOptions, disk: str | None) -> LimitProfile:
    profile, _ = named_profile(name, volume)
    disks = profile.cage.disks if profile.cage else {}
    if disk is None:
        if disks:
            notify(f"note: this is the disk of the data; --on-disk {min(disks)} is another one")
        return profile
    if profile.cage is None or disk not in disks:
        known = nearest(disk, sorted(disks)) if disks else "leave out --on-disk"
        raise PagecageError(f"{name} names no disk {disk!r}", known)
    return replace(profile_of_cage(profile.cage.on_disk(disk), None), name=f"{name}, disk {disk}")


def _print(profile: LimitProfile, amount: IoAmount, as_json: bool) -> None:
    floors = _floors(profile, amount)
    if as_json:
        print(json.dumps({"name": profile.name, "floors": [asdict(one) for one in floors]}))
        return
    out = console()
    print_heading(out, profile.name, describe_volume(profile.volume))
    if not floors:
        out.print("No limit applies to this amount.")
        return
    out.print(f"at least {format_seconds(floors[0].seconds)}, because of {floors[0].limit}")
    out.print()
    rows = []
    for one in floors:
        counted = format_bytes(one.amount) if "bandwidth" in one.limit else f"{one.amount:,}"
        rows.append((one.limit, one.by, counted, format_seconds(one.seconds)))
    print_rows(out, ("limit", "set by", "amount", "at least"), rows)
    print_paragraphs(out, list(counting_notes(profile, amount)))
