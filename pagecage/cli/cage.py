"""`pagecage cage`: list, show and export cages, and the least time that their limits allow."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Annotated

from cyclopts import App, Parameter

from pagecage.cli import cage_page
from pagecage.cli.cage_import import import_cage, save_profile
from pagecage.cli.output import Json, examples, shown
from pagecage.cloud.catalogue import offered_providers
from pagecage.cloud.profile import LimitProfile, cage_of, describe_volume, profile_of_cage
from pagecage.errors import EXIT_OK, PagecageError, exclusive, nearest
from pagecage.exporters.export import DEVICE, LostLimit, lost_disks
from pagecage.exporters.formats import EXPORTERS, ToolName
from pagecage.planning.cage_choice import fixed_limits, named_profile, offers
from pagecage.planning.options import Positive, VolumeOptions, definitions
from pagecage.terminal import complain, notify
from pagecage.units import format_bytes, format_seconds, parse_size_bytes

app = App(
    name="cage",
    help="List, show and import cages and volumes of the catalogue.",
    help_epilogue=examples("cage"),
)
app.command(import_cage, name="import", help_epilogue=examples("cage import"))
Amount = Annotated[str | None, Parameter(metavar="SIZE")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Options of a cage in another tool's language.

    Parameters
    ----------
    tool
        Write the limits for another tool; a comment names each limit that is lost there
    device
        Disk of the limits in the other tool's text, for example /dev/nvme1n1
    """

    tool: Annotated[ToolName | None, Parameter(name="--as", metavar="TOOL")] = None
    device: Annotated[str | None, Parameter(metavar="NODE")] = None

    def check(self, *, as_json: bool) -> None:
        if self.device is not None and not self.tool:
            raise PagecageError("--device applies only to --as", "--as docker")
        if as_json and self.tool:
            raise exclusive("--as", "--json")
        device = self.device or DEVICE
        if not device.startswith("/") or any(map(str.isspace, device)):
            message = f"--device: {device!r} is not the path of a block device"
            raise PagecageError(message, "lsblk --paths")

    def text(self, profile: LimitProfile, tool: ToolName) -> str:
        """Return the text for a tool, below comments that name every limit which is lost there."""
        cage = profile.cage or cage_of(profile, profile.name, profile.about)
        export = EXPORTERS[tool](cage, self.device or DEVICE)
        for lost in reversed(list(lost_disks(cage))):
            export = export.with_lost(lost)
        if profile.memory_share is not None:
            what = f"MemoryMax = {profile.memory_share * 100:g} % of the dataset"
            export = export.with_lost(LostLimit(what, "a share; give the other tool the bytes"))
        return export.text(f"{profile.name}: {cage.provenance.get('about') or profile.about}")


@app.command(help_epilogue=examples("cage floor"))
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
    read = 0 if read_bytes is None else parse_size_bytes(read_bytes, "--bytes")
    written = 0 if written_bytes is None else parse_size_bytes(written_bytes, "--written-bytes")
    profile = _profile_of_disk(name, volume, on_disk)
    _print_floors(profile, as_json, (read, reads or 0, written, writes or 0, depth))
    return EXIT_OK


def _print_floors(
    profile: LimitProfile, as_json: bool, figures: tuple[int, int, int, int, int | None]
) -> None:
    from pagecage.cloud.comparison import (  # late: for this alone
        IoAmount,
        counting_notes,
        time_floors,
    )

    amount = IoAmount(*figures)
    if amount == IoAmount(depth=amount.depth):
        raise PagecageError("there is no amount of I/O", "--bytes 28GB --reads 220000")
    floors = time_floors(profile, amount)
    if as_json:
        print(json.dumps({"name": profile.name, "floors": [asdict(one) for one in floors]}))
        return
    out = cage_page.console()
    cage_page.print_heading(out, profile.name, describe_volume(profile.volume))
    if not floors:
        out.print("No limit applies to this amount.")
        return
    out.print(f"at least {format_seconds(floors[0].seconds)}, because of {floors[0].limit}\n")
    rows = []
    for one in floors:
        counted = format_bytes(one.amount) if "bandwidth" in one.limit else f"{one.amount:,}"
        rows.append((one.limit, one.by, counted, format_seconds(one.seconds)))
    cage_page.print_rows(out, ("limit", "set by", "amount", "at least"), rows)
    cage_page.print_paragraphs(out, list(counting_notes(profile, amount)))


def _profile_of_disk(name: str, volume: VolumeOptions, disk: str | None) -> LimitProfile:
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


@app.command(name="list", help_epilogue=examples("cage list"))
def list_(
    *,
    provider: Annotated[str | None, Parameter(metavar="NAME")] = None,
    type: Annotated[str | None, Parameter(metavar="TEXT")] = None,  # noqa: A002 - the option's name
    min_iops: Positive | None = None,
    as_json: Json = False,
) -> int:
    """List cloud volumes, instance types and cages.

    Parameters
    ----------
    provider
        Only volumes of this provider: aws, azure, digitalocean or gcp; no cages
    type
        Only volume types and cages whose name contains this text
    min_iops
        Only volumes and cages that allow at least so many reads a second
    """
    offered_providers(offers(), provider)
    filters = cage_page.CatalogueFilter(provider, type, min_iops)
    listing = cage_page.select(offers(), definitions(), filters)
    if as_json:
        print(json.dumps(cage_page.listing_to_json(listing)))
    else:
        cage_page.show_listing(listing)
    return EXIT_OK


@app.command(help_epilogue=examples("cage show"))
def show(
    name: str,
    /,
    volume: VolumeOptions = VolumeOptions(),  # noqa: B008 - frozen
    export: ExportOptions = ExportOptions(),
    *,
    save: Annotated[str | None, Parameter(metavar="NAME")] = None,
    as_disk: Annotated[str | None, Parameter(metavar="NAME")] = None,
    force: bool = False,
    as_json: Json = False,
) -> int:
    """Show the limits of a cage or a volume: their values, bursts, and who sets each.

    Parameters
    ----------
    name
        Cage, its file, volume of the catalogue (aws-gp3, azure-p10) or file to import
    save
        Write the limits to the cage file cgroups/NAME.toml
    as_disk
        With --save: add the volume to an existing cage as a further disk of this name
    force
        Overwrite an existing cage
    """
    if save is not None and name in definitions().cage_names():
        raise fixed_limits(name)
    profile, description = named_profile(name, volume)
    if save is None and as_disk is not None:
        raise PagecageError("--as-disk applies only to --save", "--save NAME --as-disk wal")
    if save is not None:
        path = save_profile(profile, description, save, as_disk, force=force)
        complain(f"saved: {shown(path)}")
    export.check(as_json=as_json)
    if export.tool:
        print(export.text(profile, export.tool), end="")
    elif as_json:
        print(json.dumps(cage_page.profile_to_json(profile)))
    else:
        cage_page.show_profile(profile, description)
    return EXIT_OK
