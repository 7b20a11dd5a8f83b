"""`pagecage cage import`: a customer's file becomes a cage, and what could not be carried over is said."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from pagecage.checkout import TOP
from pagecage.cli.cage_options import VolumeOptions, profile_of_order
from pagecage.cli.cage_save import new_name, save, save_profile
from pagecage.cli.numbers import whole
from pagecage.cli.output import Json
from pagecage.cloud.catalogue import read_offers
from pagecage.definitions.cage_file import cage_of_tables
from pagecage.errors import EXIT_OK, PagecageError
from pagecage.importers.formats import import_text
from pagecage.importers.probe import DIGITS, Rounding
from pagecage.importers.result import DescribedVolume, ImportResult, Selection
from pagecage.units import exact_size

CAGES = TOP / "cgroups"
_MOST_IGNORED = 12


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ImportOptions:
    """How to read a customer's file.

    Parameters
    ----------
    pick
        Which container, service, unit, volume or device to take, where the file has several.
    instance
        What a volume is attached to, as m7i.large: its own limits count too.
    digits
        To how many digits a probe's measured figures are rounded.
    save
        Write the limits as the cage cgroups/NAME.toml.
    force
        Write over a cage that is there.
    """

    pick: Annotated[tuple[str, ...], Parameter(negative=())] = ()
    instance: str | None = None
    digits: Annotated[int, whole(1, 9)] = DIGITS
    save: str | None = None
    force: Annotated[bool, Parameter(negative=())] = False


def import_cage(
    file: Annotated[str, Parameter(allow_leading_hyphen=True)],
    how: ImportOptions = ImportOptions(),
    *,
    as_json: Json = False,
) -> int:
    """Read a customer's limits out of what their tools print, and say what could not be carried over.

    It reads kubectl get pod (YAML or JSON), docker inspect, a docker compose file, systemctl show, systemctl cat or a
    unit file, aws ec2 describe-volumes, gcloud compute disks describe, az disk show, and the JSON of a probe.

    Parameters
    ----------
    file
        The file, or - for standard input. Its format is told by its content.
    """
    name = Path(file).name if file != "-" else "standard input"
    found = import_text(_text(file), name, Selection(how.pick), Rounding(how.digits))
    if how.instance is not None and not found.volume:
        raise PagecageError("--instance goes with a volume, and this is none", "leave --instance out")
    path = _save(found, how.instance, how.save, how.force) if how.save is not None else None
    if as_json:
        print(json.dumps(_as_data(found, how.instance, path)))
    else:
        print("\n".join(_lines(found, how.instance, path)))
    return EXIT_OK


def _text(file: str) -> str:
    """The file's text; what is no UTF-8 is no file of these tools."""
    try:
        raw = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return raw.decode("utf-8-sig")
    except OSError as error:
        raise PagecageError(f"{file} cannot be read: {error.strerror}", f"ls -l {shlex.quote(file)}") from None
    except UnicodeDecodeError:
        raise PagecageError(f"{file} is no text", "give it what the customer's tool printed") from None
    except ValueError:  # a NUL in it
        raise PagecageError(f"{file!r} is not a name of a file", "ls") from None


def _save(found: ImportResult, instance: str | None, name: str, force: bool) -> Path:
    """The cage's new file. What limits a volume follows from its type, which the catalogue knows."""
    providers = read_offers(CAGES / "catalogue")
    name = new_name(name, CAGES, providers, force=force)
    if found.volume:
        profile, line = profile_of_order(providers, found.volume.name, _ordered(found.volume, instance), [])
        return save_profile(profile, line, name, CAGES)
    if not found.limits:
        raise PagecageError("there is no limit in it to be saved", "pagecage cage import FILE says what there is")
    return save(cage_of_tables(name, found.cage()), CAGES)


def _ordered(volume: DescribedVolume, instance: str | None) -> VolumeOptions:
    throughput = str(volume.throughput) if volume.throughput is not None else None
    size = exact_size(volume.size_bytes)
    return VolumeOptions(size=size, iops=volume.iops, throughput=throughput, instance=instance)


def _command(volume: DescribedVolume, instance: str | None) -> str:
    """What shows the limits of such a volume."""
    return shlex.join([*volume.command(), *(["--instance", instance] if instance is not None else [])])


def _as_data(found: ImportResult, instance: str | None, path: Path | None) -> dict[str, object]:
    volume = asdict(found.volume) | {"command": _command(found.volume, instance)} if found.volume else None
    return {
        "origin": found.origin, "cage": found.cage(),
        "understood": [{"key": item.key, "value": item.value, "said": item.basis} for item in found.limits],
        "not_carried_over": [asdict(item) for item in found.unsupported],
        "ignored": list(found.ignored), "volume": volume,
        "saved": str(path) if path else None,
    }  # fmt: skip


def _lines(found: ImportResult, instance: str | None, path: Path | None) -> Iterator[str]:
    """Three lists; each is there even where it is empty, because that is an answer too."""
    yield found.origin
    yield from _section("understood", _understood(found))
    yield from _section("could not be carried over", [f"{item.what}: {item.reason}" for item in found.unsupported])
    yield from _section("ignored, being no limits", _ignored(found.ignored))
    if path:
        yield f"\nsaved: {path.relative_to(TOP)}; now: pagecage cage show {path.stem}"
    elif found.volume:
        yield f"\nits limits: {_command(found.volume, instance)}"


def _understood(found: ImportResult) -> list[str]:
    width = max((len(item.key) for item in found.limits), default=0)
    values = [item.value if isinstance(item.value, str) else json.dumps(item.value) for item in found.limits]
    value_width = max(map(len, values), default=0)
    lines = [
        f"{item.key:<{width}}  {value:<{value_width}}  {item.basis}"
        for item, value in zip(found.limits, values, strict=True)
    ]
    return [*lines, _described(found.volume)] if found.volume else lines


def _described(volume: DescribedVolume) -> str:
    told = [volume.name, exact_size(volume.size_bytes, " ")]
    told += [f"{volume.iops} IOPS"] if volume.iops is not None else []
    told += [f"throughput {volume.throughput}, in the provider's unit"] if volume.throughput is not None else []
    return "a volume: " + ", ".join(told)


def _ignored(names: tuple[str, ...]) -> list[str]:
    more = len(names) - _MOST_IGNORED
    shown = ", ".join(names[:_MOST_IGNORED])
    return [f"{shown} and {more} more" if more > 0 else shown] if names else []


def _section(title: str, lines: list[str]) -> Iterator[str]:
    yield f"\n{title}"
    yield from (f"  {line}" for line in lines or ["nothing"])
