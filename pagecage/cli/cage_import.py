"""`pagecage cage import`, and cages that are saved: from other systems, counters and volumes."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from pagecage.checkout import OWN
from pagecage.cli.cage_page import latency_sources
from pagecage.cli.output import Json, shown, writing
from pagecage.cloud.catalogue import catalogue_names
from pagecage.cloud.profile import LimitProfile
from pagecage.definitions.cage_file import cage_of_tables, check_disk_name
from pagecage.definitions.cage_writer import cage_to_toml, disk_to_toml
from pagecage.errors import EXIT_OK, PagecageError
from pagecage.importers.result import (
    DIGITS,
    ImportResult,
    Rounding,
    Selection,
)
from pagecage.model.cage import IO_MAX_KEY, UNCAGED, Cage, DiskLimits
from pagecage.planning.cage_choice import (
    KnownVolume,
    described_volume,
    named_profile,
    offers,
    profile_cage,
    read_text,
)
from pagecage.planning.options import Duration, Positive, Share, VolumeOptions, definitions, whole
from pagecage.units import exact_size

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


def source_comments(profile: LimitProfile) -> list[str]:
    return [
        f"{cited.of}: {cited.source.title}, {cited.source.date or 'undated'}"
        for cited in (*profile.sources, *latency_sources(profile))
    ]


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
