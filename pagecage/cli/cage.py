"""`pagecage cage`: list, show, import and export cages, and the least time that they allow."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from pagecage.checkout import OWN
from pagecage.cli import cage_page
from pagecage.cli.output import Json, examples, shown, writing
from pagecage.cloud.catalogue import catalogue_names, offered_providers
from pagecage.cloud.profile import (
    LimitProfile,
    cage_of,
    describe_volume,
    profile_of_cage,
    source_comments,
)
from pagecage.definitions.cage_file import cage_of_tables, check_disk_name
from pagecage.definitions.cage_writer import cage_to_toml, disk_to_toml
from pagecage.errors import EXIT_OK, PagecageError, exclusive, nearest
from pagecage.exporters.export import DEVICE, LostLimit, lost_disks
from pagecage.exporters.formats import EXPORTERS, ToolName
from pagecage.importers.result import DIGITS, ImportResult, Rounding, Selection
from pagecage.model.cage import IO_MAX_KEY, UNCAGED, Cage, DiskLimits
from pagecage.planning.cage_choice import (
    KnownVolume,
    described_volume,
    fixed_limits,
    named_profile,
    offers,
    profile_cage,
    read_text,
)
from pagecage.planning.options import Duration, Positive, Share, VolumeOptions, definitions, whole
from pagecage.terminal import complain, notify
from pagecage.units import exact_size, format_bytes, format_seconds, parse_size_bytes

CAGES = OWN / "cgroups"
"""The folder of `--save`."""
_SCHEMA = "../docs/schema/cage.schema.json"
_MOST_IGNORED = 12


def _check_new_name(name: str, force: bool) -> None:
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,60}", name) or name == UNCAGED:
        hint = "use small letters, digits and dashes, as in --save customer-disk"
        raise PagecageError(f"{name!r} is not a valid name for a cage", hint)
    if name in catalogue_names(offers()):
        raise PagecageError(f"{name!r} is a volume type of the catalogue", "choose another name")
    if (CAGES / f"{name}.toml").exists() and not force:
        raise PagecageError(
            f"the cage {name} already exists", "choose another name, or add --force"
        )


def _save(cage: Cage, comments: Sequence[str] = ()) -> Path:
    path = CAGES / f"{cage.name}.toml"
    try:
        CAGES.mkdir(parents=True, exist_ok=True)
        has_schema = (path.parent / _SCHEMA).is_file()  # as in a checkout, but in no project
        head = f"#:schema {_SCHEMA}\n" if has_schema else ""
        path.write_text(head + cage_to_toml(cage, comments))
    except OSError as error:
        raise PagecageError(
            f"{path} cannot be written: {error.strerror}",
            f"ls -ld {CAGES if CAGES.exists() else CAGES.parent}",
        ) from None
    return path


def save_profile(
    profile: LimitProfile, description: str, name: str, disk: str | None = None, *, force: bool
) -> Path:
    """Write limits as a new cage, or as a further disk of an existing one; return the file."""
    if not disk:
        _check_new_name(name, force)
        return _save(profile_cage(profile, description, name), source_comments(profile))
    cage, _ = definitions().cage_without_dataset(name)
    try:
        check_disk_name(disk)
    except ValueError as error:
        raise PagecageError(f"--as-disk: {error}", "--as-disk wal") from None
    if disk in cage.disks:
        raise PagecageError(
            f"the cage {cage.name} has a disk {disk} already", "choose another name"
        )
    volume = profile_cage(profile, description, cage.name)
    limits = DiskLimits(
        {name: value for name, value in volume.properties.items() if name in IO_MAX_KEY},
        **{part.name: getattr(volume, part.name) for part in fields(DiskLimits)[1:]},
    )
    path = CAGES / f"{cage.name}.toml"
    if not path.exists():
        raise PagecageError(f"the cage {cage.name} is not in {CAGES}", "save a cage there first")
    comments = "".join(f"# {comment}\n" for comment in source_comments(profile))
    with writing(path), path.open("a") as file:
        file.write(comments + disk_to_toml(disk, limits))
    return path


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ImportOptions:
    """Options for reading a customer's file.

    Parameters
    ----------
    pick
        Container, service, unit, volume or device to take from a file with several
    instance
        Instance type that a volume is attached to, for example m7i.large; adds its limits
    memory_qos
        Memory throttling factor of Kubernetes' kubelets with Memory QoS; 0.9 is their default
    digits
        Significant digits to which a probe's figures are rounded
    time
        Time between two files of nvme amzn stats, or since the volume was attached: 60s
    volume
        Volume type or cage with the limits of the volume of nvme amzn stats
    size
        Size of that volume, for example 500GiB
    iops
        Provisioned IOPS of that volume
    throughput
        Provisioned throughput of that volume, as in `pagecage cage show`
    save
        Write the limits to the cage file cgroups/NAME.toml
    force
        Overwrite an existing cage
    """

    pick: Annotated[tuple[str, ...], Parameter(negative=(), metavar="NAME")] = ()
    instance: Annotated[str | None, Parameter(metavar="TYPE")] = None
    memory_qos: Share | None = None
    digits: Annotated[int, whole(1, 9)] = DIGITS
    time: Duration | None = None
    volume: Annotated[str | None, Parameter(metavar="NAME")] = None
    size: Annotated[str | None, Parameter(metavar="SIZE")] = None
    iops: Positive | None = None
    throughput: Annotated[str | None, Parameter(metavar="RATE")] = None
    save: Annotated[str | None, Parameter(metavar="NAME")] = None
    force: Annotated[bool, Parameter(negative=())] = False

    def check(self) -> None:
        for name in ("size", "iops", "throughput"):
            if getattr(self, name) is not None and self.volume is None:
                raise PagecageError(
                    f"--{name} describes the volume of nvme amzn stats, and --volume names none",
                    "--volume aws-gp3",
                )

    def check_kind(self, imported: ImportResult) -> None:
        from pagecage.importers.kubernetes import ORIGIN

        if self.instance is not None and not (imported.volume or self.volume):
            message = "--instance applies only to a cloud volume, and the file has none"
            raise PagecageError(message, "remove --instance")
        if self.memory_qos is not None and imported.origin != ORIGIN:
            message = f"--memory-qos applies to a pod, and this is {imported.origin}"
            raise PagecageError(message, "remove --memory-qos")


def import_cage(
    file: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *more: str,
    options: ImportOptions = ImportOptions(),
    as_json: Json = False,
) -> int:
    """Read a customer's limits from a file and report those that cannot be imported.

    Supported: kubectl get pod (YAML or JSON), docker inspect, docker compose files, systemctl show,
    systemctl cat, unit files, aws ec2 describe-volumes, nvme amzn stats, gcloud compute disks
    describe, az disk show, and the JSON of a probe.

    Parameters
    ----------
    file
        File to read, or - for standard input; the format is recognised by its content
    more
        A later file of nvme amzn stats, whose counters are then subtracted, and the description of
        the volume by aws ec2 describe-volumes
    """
    from pagecage.importers.formats import import_files  # late: for this verb alone

    options.check()
    imported = import_files(
        list(map(read_text, (file, *more))),
        Selection(options.pick, options.memory_qos),
        Rounding(options.digits),
        options.time,
        is_described=options.volume is not None,
    )
    options.check_kind(imported)
    _show(imported, options, _saved(imported, options), as_json)
    return EXIT_OK


def _saved(imported: ImportResult, options: ImportOptions) -> Path | None:
    """Save the volume that the options or a file describe, or the limits; None without --save."""
    known = None
    if options.volume is not None:
        names = ("size", "iops", "throughput", "instance")
        choice = VolumeOptions(**{name: getattr(options, name) for name in names})
        known = KnownVolume(*named_profile(options.volume, choice))
        if known.profile.memory_share is not None:
            message = f"{options.volume} has a memory limit that depends on the dataset"
            raise PagecageError(message, "name another cage")
    elif options.save is not None:
        known = described_volume(imported, options.instance)
    if options.save is None:
        return None
    _check_new_name(options.save, options.force)
    if known is not None:
        measured = () if imported.observed else known.profile.measured
        comments = source_comments(replace(known.profile, measured=measured))
        if imported.observed:
            comments.append("latency: nvme amzn stats of the customer's volume")
        return _save(known.cage(imported, options.save), comments)
    if not imported.limits:
        raise PagecageError(
            "the file has no limit to save", "run the command without --save to see its contents"
        )
    return _save(cage_of_tables(options.save, imported.cage()))


def _show(imported: ImportResult, options: ImportOptions, path: Path | None, as_json: bool) -> None:
    volume, instance, command = imported.volume, options.instance, ""
    if volume:
        with_instance = ["--instance", instance] if instance is not None else []
        command = shlex.join([*volume.command(), *with_instance])
    if not as_json:
        print("\n".join(_lines(imported, command, path)))
        return
    document = {
        "origin": imported.origin,
        "cage": imported.cage(),
        "understood": [
            {"key": item.key, "value": item.value, "said": item.basis} for item in imported.limits
        ],
        "not_carried_over": [asdict(item) for item in imported.unsupported],
        "ignored": list(imported.ignored),
        "volume": volume and asdict(volume) | {"command": command},
        "observed": [asdict(item) for item in imported.observed],
        "saved": str(path) if path else None,
    }
    print(json.dumps(document))


def _lines(imported: ImportResult, command: str, path: Path | None) -> Iterator[str]:
    """Yield the lists; an empty one is shown as "nothing"."""
    yield imported.origin
    ignored = ", ".join(imported.ignored[:_MOST_IGNORED])
    if (more := len(imported.ignored) - _MOST_IGNORED) > 0:
        ignored += f" and {more} more"
    sections = {
        "imported": _imported_lines(imported),
        "not imported": [f"{item.what}: {item.reason}" for item in imported.unsupported],
        "observed": [item.text for item in imported.observed],
        "ignored, not limits": [ignored] if ignored else [],
    }
    for title, lines in sections.items():
        if lines or title != "observed":
            yield f"\n{title}"
            yield from (f"  {line}" for line in lines or ["nothing"])
    if path:
        yield f"\nsaved: {shown(path)}; show it: pagecage cage show {path.stem}"
    elif imported.volume:
        yield f"\nlimits of the volume: {command}"


def _imported_lines(imported: ImportResult) -> list[str]:
    width = max((len(item.key) for item in imported.limits), default=0)
    values = [
        item.shown or (item.value if isinstance(item.value, str) else json.dumps(item.value))
        for item in imported.limits
    ]
    value_width = max(map(len, values), default=0)
    lines = [
        f"{item.key:<{width}}  {value:<{value_width}}  {item.basis}"
        for item, value in zip(imported.limits, values, strict=True)
    ]
    if volume := imported.volume:
        parts = [volume.name, exact_size(volume.size_bytes, " ")]
        parts += [f"{volume.iops} IOPS"] if volume.iops is not None else []
        if volume.throughput is not None:
            parts.append(f"throughput {volume.throughput}, in the provider's unit")
        lines.append("a volume: " + ", ".join(parts))
    return lines


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
