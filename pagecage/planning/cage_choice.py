"""Cages as users name them: a cage of the project, a file, a volume of the catalogue, an import."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from pagecage.checkout import TOP
from pagecage.cloud.catalogue import Provider, catalogue_names, read_offers, tier_name
from pagecage.cloud.profile import (
    CageOptions,
    LimitProfile,
    cage_of,
    describe_volume,
    find_instance,
    profile_of,
    profile_of_cage,
)
from pagecage.cloud.volume_request import VolumeRequest, parse_throughput
from pagecage.definitions.cage_file import cage_of_tables
from pagecage.definitions.reader import Definitions, check_name
from pagecage.errors import PagecageError, nearest
from pagecage.importers.document import MOST_BYTES
from pagecage.importers.result import DIGITS, ImportResult, Rounding, Selection
from pagecage.model.cage import Cage, VolumeSimulation
from pagecage.planning.options import OfferOptions, VolumeOptions, definitions
from pagecage.units import exact_size, page_floor_bytes, parse_size_bytes

if TYPE_CHECKING:
    from pagecage.importers.formats import NamedText

_CATALOGUE = TOP / "cgroups/catalogue"


@cache
def offers() -> tuple[Provider, ...]:
    """Return the providers of the catalogue, which is read once. Raises PagecageError."""
    return read_offers(_CATALOGUE)


def choose_cages(
    typed: Sequence[str], volume: VolumeOptions, dataset_bytes: int | None
) -> dict[str, Cage]:
    """Return each cage once, by its name in plans, in the order in which they were typed.

    `dataset_bytes` is the size of the data, for cages that limit memory to a share of it.
    """
    if typed and volume != VolumeOptions() and not any(map(_is_volume, typed)):
        raise fixed_limits(typed[-1])
    chosen = {}
    for one in dict.fromkeys(typed):
        if _is_volume(one):
            profile, description = profile_for(offers(), one, volume)
            cage = cage_of(profile, one.lower(), description)
        elif _is_file(one) and not one.endswith(".toml"):
            cage = _imported(one)
        else:
            cage = definitions().cage(_path(one), dataset_bytes, "")
        chosen[cage_name(one)] = cage
    return chosen


def choose_cage(typed: str, volume: VolumeOptions, dataset_bytes: int | None) -> Cage:
    """Return one cage. Raises PagecageError for an unknown name, and for wrong options of it."""
    return choose_cages([typed], volume, dataset_bytes)[cage_name(typed)]


def cage_name(typed: str) -> str:
    """Return the name of a cage in plans: the stem of a file, a volume's name in small letters."""
    if not _is_file(typed):
        return typed.lower() if _is_volume(typed) else typed
    stem = re.sub(r"[^a-z0-9]+", "-", Path(typed).stem.lower()).strip("-")
    return check_name(stem if Path(typed).suffix != ".toml" else Path(typed).stem, "cage")


def named_profile(typed: str, volume: VolumeOptions) -> tuple[LimitProfile, str]:
    """Return the limits of a cage or of a volume of the catalogue, and the volume in one line."""
    if _is_volume(typed):
        return profile_for(offers(), typed, volume)
    if volume != VolumeOptions():
        raise fixed_limits(typed)
    if _is_file(typed) and not typed.endswith(".toml"):
        profile = profile_of_cage(_imported(typed), None)
    else:
        profile = cage_profile(definitions(), _path(typed))
    return profile, describe_volume(profile.volume)


def cage_profile(defined: Definitions, name: str) -> LimitProfile:
    """Return the limits of a cage; a memory limit that is a share of the dataset stays a share."""
    cage, share = defined.cage_without_dataset(name)
    return profile_of_cage(cage, share)


def fixed_limits(name: str) -> PagecageError:
    return PagecageError(f"{name} is a cage: its limits are fixed", f"pagecage cage show {name}")


def _is_file(typed: str) -> bool:
    return ("/" in typed or "." in typed) and os.path.isfile(typed)  # noqa: PTH113 - Path.is_file() raises for a name that is too long


def _path(typed: str) -> str:
    return os.path.join(".", typed) if _is_file(typed) else typed  # noqa: PTH118 - pathlib drops the dot


def _is_volume(typed: str) -> bool:
    """Return whether a name is a volume's. Raises PagecageError if it names no cage either."""
    cages = definitions().cage_names()
    if typed in cages or _is_file(typed):
        return False
    volumes = catalogue_names(offers())
    if typed.lower() not in volumes:
        hint = nearest(typed, [*cages, *volumes])
        message = f"there is no cage and no volume type {typed!r}"
        raise PagecageError(message, hint if hint.startswith("did") else "pagecage cage list")
    return True


def profile_for(
    providers: tuple[Provider, ...], name: str, volume: VolumeOptions
) -> tuple[LimitProfile, str]:
    """Return the limits of a volume of the catalogue, and the volume in one line."""
    entry = catalogue_names(providers)[name.lower()]
    kind = entry.kind
    size = None if volume.size is None else parse_size_bytes(volume.size, "--size")
    if entry.size_bytes is not None and size is not None:
        raise PagecageError(f"{name} has a fixed size", "remove --size")
    request = VolumeRequest(
        entry.size_bytes if size is None else size,
        Fraction(volume.iops) if volume.iops else None,
        None if volume.throughput is None else parse_throughput(volume.throughput, kind),
    )
    instance = volume.instance
    found = None if instance is None else find_instance(entry.provider, kind, instance)
    memory = None if volume.memory is None else parse_size_bytes(volume.memory, "--memory")
    if memory is not None and page_floor_bytes(memory) == 0:
        raise PagecageError(f"--memory: {volume.memory} is less than a page", "--memory 64MiB")
    profile = profile_of(entry.provider, kind, request, found, cage_options(volume, memory))
    return profile, describe_volume(profile.volume, tier_name(kind, request.size_bytes))


def cage_options(volume: OfferOptions, memory_bytes: int | None = None) -> CageOptions:
    latency_us = None if volume.latency is None else max(1, round(volume.latency * 1e6))
    return CageOptions(volume.start, Fraction(str(volume.scale)), memory_bytes, latency_us)


@dataclass(frozen=True)
class KnownVolume:
    """The limits of a volume, and the volume in one line."""

    profile: LimitProfile
    description: str

    def cage(self, imported: ImportResult, name: str) -> Cage:
        """Return the volume as a cage, with the customer's latencies if the import has any."""
        tables = cage_of_tables(name, imported.cage())
        volume = profile_cage(self.profile, self.description, name)
        cage = replace(volume, properties={**volume.properties, **tables.properties})
        if tables.simulation is None:
            return cage
        simulation = replace(
            cage.simulation or VolumeSimulation(),
            read_latency=tables.simulation.read_latency,
            write_latency=tables.simulation.write_latency,
        )
        return replace(cage, latency=None, simulation=simulation, enforced_by="volume")


def profile_cage(profile: LimitProfile, description: str, name: str) -> Cage:
    """Return a volume of the catalogue, or an existing cage, as a cage with another name."""
    if profile.cage:
        return replace(profile.cage, name=name)
    return cage_of(profile, name, f"{profile.name} ({description}): {profile.about}.")


def described_volume(imported: ImportResult, instance: str | None) -> KnownVolume | None:
    """Return the volume that an imported file describes; None if it describes none."""
    if (volume := imported.volume) is None:
        return None
    throughput = str(volume.throughput) if volume.throughput is not None else None
    size = exact_size(volume.size_bytes)
    options = VolumeOptions(size=size, iops=volume.iops, throughput=throughput, instance=instance)
    return KnownVolume(*named_profile(volume.name, options))


def _imported(file: str) -> Cage:
    """Return the limits in a file of another system as a cage, without saving it."""
    from pagecage.importers.formats import import_files  # late: most cages are pagecage's own

    imported = import_files(
        [read_text(file)], Selection((), None), Rounding(DIGITS), None, is_described=False
    )
    name, known = cage_name(file), described_volume(imported, None)
    if known is None and not imported.limits:
        raise PagecageError(f"{file} has no limit", f"pagecage cage import {shlex.quote(file)}")
    return known.cage(imported, name) if known else cage_of_tables(name, imported.cage())


def read_text(file: str) -> NamedText:
    """Read a file to import; `-` is standard input. Raises PagecageError if it is not text."""
    from pagecage.importers.formats import NamedText

    try:
        with sys.stdin.buffer if file == "-" else Path(file).open("rb") as source:
            raw = source.read(MOST_BYTES + 1)  # read_document() refuses one byte more
        name = Path(file).name if file != "-" else "standard input"
        return NamedText(name, raw.decode("utf-8-sig"))
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
