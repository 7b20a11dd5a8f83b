"""`pagecage cage import`: limits from a customer's file."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from pagecage.checkout import OWN, TOP
from pagecage.cli.cage_options import VolumeOptions
from pagecage.cli.cage_save import check_new_name, save
from pagecage.cli.imported_volume import KnownVolume, comments, known_volume, volume_cage
from pagecage.cli.numbers import Positive, Seconds, Share, whole
from pagecage.cli.output import Json
from pagecage.cli.paths import shown
from pagecage.cloud.catalogue import read_offers
from pagecage.definitions.cage_file import cage_of_tables
from pagecage.errors import EXIT_OK, PagecageError
from pagecage.importers.document import MOST_BYTES
from pagecage.importers.formats import NamedText, import_files
from pagecage.importers.kubernetes import ORIGIN as KUBERNETES
from pagecage.importers.probe import DIGITS, Rounding
from pagecage.importers.result import DescribedVolume, ImportResult, Selection
from pagecage.units import exact_size

CATALOGUE = TOP / "cgroups/catalogue"
CAGES = OWN / "cgroups"
"""The folder of `--save`."""
_MOST_IGNORED = 12


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
    seconds
        Time between two files of nvme amzn stats, or since the volume was attached
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
    seconds: Seconds | None = None
    volume: Annotated[str | None, Parameter(metavar="NAME")] = None
    size: Annotated[str | None, Parameter(metavar="SIZE")] = None
    iops: Positive | None = None
    throughput: Annotated[str | None, Parameter(metavar="RATE")] = None
    save: Annotated[str | None, Parameter(metavar="NAME")] = None
    force: Annotated[bool, Parameter(negative=())] = False


def import_cage(
    file: Annotated[str, Parameter(allow_leading_hyphen=True)],
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
    _check_volume_options(options)
    imported = _import(
        [NamedText(_name(path), _read_text(path)) for path in (file, *more)], options
    )
    _check_options_of_kinds(imported, options)
    is_needed = options.save is not None or options.volume is not None
    known = _known_volume(imported, options) if is_needed else None
    path = None
    if options.save is not None:
        path = _save(imported, known, options.save, force=options.force)
    if as_json:
        print(json.dumps(_to_json(imported, options.instance, path)))
    else:
        print("\n".join(_lines(imported, options.instance, path)))
    return EXIT_OK


def _check_options_of_kinds(imported: ImportResult, options: ImportOptions) -> None:
    """Raise PagecageError for an option that applies to files of another kind."""
    if options.instance is not None and not (imported.volume or options.volume):
        raise PagecageError(
            "--instance applies only to a cloud volume, and the file has none", "remove --instance"
        )
    if options.memory_qos is not None and imported.origin != KUBERNETES:
        raise PagecageError(
            f"--memory-qos applies to a pod, and this is {imported.origin}", "remove --memory-qos"
        )


def _import(files: list[NamedText], options: ImportOptions) -> ImportResult:
    return import_files(
        files,
        Selection(options.pick, options.memory_qos),
        Rounding(options.digits),
        options.seconds,
        is_described=options.volume is not None,
    )


def _check_volume_options(options: ImportOptions) -> None:
    for name in ("size", "iops", "throughput"):
        if getattr(options, name) is not None and options.volume is None:
            raise PagecageError(
                f"--{name} describes the volume of nvme amzn stats, and --volume names none",
                "--volume aws-gp3",
            )


def _name(file: str) -> str:
    return Path(file).name if file != "-" else "standard input"


def _read_text(file: str) -> str:
    """Return the file's text. Raises PagecageError if it cannot be read or is not UTF-8."""
    try:
        with sys.stdin.buffer if file == "-" else Path(file).open("rb") as source:
            raw = source.read(MOST_BYTES + 1)  # read_document() refuses one byte more
        return raw.decode("utf-8-sig")
    except OSError as error:
        raise PagecageError(
            f"{file} cannot be read: {error.strerror}", f"ls -l {shlex.quote(file)}"
        ) from None
    except UnicodeDecodeError:
        raise PagecageError(
            f"{file} is not text", "give the output of the customer's tool"
        ) from None
    except ValueError:  # the name contains a NUL
        raise PagecageError(f"{file!r} is not a valid path", "ls") from None


def _save(imported: ImportResult, known: KnownVolume | None, name: str, *, force: bool) -> Path:
    """Write the cage file and return its path. A volume's limits come from the catalogue."""
    name = check_new_name(name, CAGES, read_offers(CATALOGUE), force=force)
    if known is not None:
        return save(volume_cage(known, imported, name), CAGES, comments(known, imported))
    if not imported.limits:
        raise PagecageError(
            "the file has no limit to save", "run the command without --save to see its contents"
        )
    return save(cage_of_tables(name, imported.cage()), CAGES)


def _known_volume(imported: ImportResult, options: ImportOptions) -> KnownVolume | None:
    """Return the volume that the options or a file describe; None without one."""
    volume = imported.volume
    if options.volume is not None:
        choice = VolumeOptions(
            size=options.size,
            iops=options.iops,
            throughput=options.throughput,
            instance=options.instance,
        )
        return known_volume(options.volume, choice)
    if volume is None:
        return None
    throughput = str(volume.throughput) if volume.throughput is not None else None
    size = exact_size(volume.size_bytes)
    choice = VolumeOptions(
        size=size, iops=volume.iops, throughput=throughput, instance=options.instance
    )
    return known_volume(volume.name, choice)


def _show_command(volume: DescribedVolume, instance: str | None) -> str:
    """Return the command that shows the limits of such a volume."""
    return shlex.join(
        [*volume.command(), *(["--instance", instance] if instance is not None else [])]
    )


def _to_json(imported: ImportResult, instance: str | None, path: Path | None) -> dict[str, object]:
    volume = imported.volume
    volume_json = asdict(volume) | {"command": _show_command(volume, instance)} if volume else None
    return {
        "origin": imported.origin,
        "cage": imported.cage(),
        "understood": [
            {"key": item.key, "value": item.value, "said": item.basis} for item in imported.limits
        ],
        "not_carried_over": [asdict(item) for item in imported.unsupported],
        "ignored": list(imported.ignored),
        "volume": volume_json,
        "observed": [asdict(item) for item in imported.observed],
        "saved": str(path) if path else None,
    }


def _lines(imported: ImportResult, instance: str | None, path: Path | None) -> Iterator[str]:
    """Yield the lists; an empty one is shown as "nothing"."""
    yield imported.origin
    yield from _section("imported", _imported_lines(imported))
    yield from _section(
        "not imported", [f"{item.what}: {item.reason}" for item in imported.unsupported]
    )
    if imported.observed:
        yield from _section("observed", [item.text for item in imported.observed])
    yield from _section("ignored, not limits", _ignored_lines(imported.ignored))
    if path:
        yield f"\nsaved: {shown(path)}; show it: pagecage cage show {path.stem}"
    elif imported.volume:
        yield f"\nlimits of the volume: {_show_command(imported.volume, instance)}"


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
    return [*lines, _describe(imported.volume)] if imported.volume else lines


def _describe(volume: DescribedVolume) -> str:
    parts = [volume.name, exact_size(volume.size_bytes, " ")]
    parts += [f"{volume.iops} IOPS"] if volume.iops is not None else []
    parts += (
        [f"throughput {volume.throughput}, in the provider's unit"]
        if volume.throughput is not None
        else []
    )
    return "a volume: " + ", ".join(parts)


def _ignored_lines(names: tuple[str, ...]) -> list[str]:
    more = len(names) - _MOST_IGNORED
    shown = ", ".join(names[:_MOST_IGNORED])
    return [f"{shown} and {more} more" if more > 0 else shown] if names else []


def _section(title: str, lines: list[str]) -> Iterator[str]:
    yield f"\n{title}"
    yield from (f"  {line}" for line in lines or ["nothing"])
