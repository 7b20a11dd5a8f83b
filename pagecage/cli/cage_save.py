"""Cage files written by `--save NAME`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

from pagecage.cli.cage_options import catalogue_names
from pagecage.cli.latency_table import latency_sources
from pagecage.cli.paths import writing
from pagecage.cloud.catalogue import Provider
from pagecage.cloud.profile import LimitProfile, cage_of
from pagecage.definitions.cage_writer import cage_to_toml, disk_to_toml
from pagecage.definitions.disk_tables import check_disk_name
from pagecage.errors import PagecageError
from pagecage.model.cage import IO_MAX_KEY, UNCAGED, Cage, DiskLimits


def check_new_name(name: str, folder: Path, providers: tuple[Provider, ...], *, force: bool) -> str:
    """Return the name if a new cage may have it.

    Raises PagecageError for an invalid name, and, without `force`, for the name of an existing
    cage.
    """
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,60}", name) or name == UNCAGED:
        hint = "use small letters, digits and dashes, as in --save customer-disk"
        raise PagecageError(f"{name!r} is not a valid name for a cage", hint)
    if name in catalogue_names(providers):
        raise PagecageError(f"{name!r} is a volume type of the catalogue", "choose another name")
    if (folder / f"{name}.toml").exists() and not force:
        raise PagecageError(
            f"the cage {name} already exists", "choose another name, or add --force"
        )
    return name


def save(cage: Cage, folder: Path, comments: Sequence[str] = ()) -> Path:
    """Write a cage file with comments at its top and return its path."""
    path = folder / f"{cage.name}.toml"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(cage_to_toml(cage, comments))
    except OSError as error:
        raise PagecageError(
            f"{path} cannot be written: {error.strerror}",
            f"ls -ld {folder if folder.exists() else folder.parent}",
        ) from None
    return path


def save_profile(profile: LimitProfile, description: str, name: str, folder: Path) -> Path:
    """Write the limits of a volume as a cage, with their sources as comments, and return the path.

    `description` is the volume in one line.
    """
    return save(profile_cage(profile, description, name), folder, source_comments(profile))


def save_as_disk(
    profile: LimitProfile, description: str, disk: str, cage: Cage, folder: Path
) -> Path:
    """Append the limits of a volume to a cage file as a further disk, and return the path.

    Raises PagecageError for an invalid name of a disk, and for one that the cage has already.
    """
    try:
        check_disk_name(disk)
    except ValueError as error:
        raise PagecageError(f"--disk: {error}", "--disk wal") from None
    if disk in cage.disks:
        raise PagecageError(
            f"the cage {cage.name} has a disk {disk} already", "choose another name"
        )
    volume = profile_cage(profile, description, cage.name)
    limits = DiskLimits(
        {name: value for name, value in volume.properties.items() if name in IO_MAX_KEY},
        **{part.name: getattr(volume, part.name) for part in fields(DiskLimits)[1:]},
    )
    path = folder / f"{cage.name}.toml"
    if not path.exists():
        raise PagecageError(f"the cage {cage.name} is not in {folder}", "save a cage there first")
    comments = "".join(f"# {comment}\n" for comment in source_comments(profile))
    with writing(path), path.open("a") as file:
        file.write(comments + disk_to_toml(disk, limits))
    return path


def profile_cage(profile: LimitProfile, description: str, name: str) -> Cage:
    """Return a volume of the catalogue, or an existing cage, as a cage with another name."""
    if profile.cage:
        return replace(profile.cage, name=name)
    return cage_of(profile, name, f"{profile.name} ({description}): {profile.about}.")


def source_comments(profile: LimitProfile) -> list[str]:
    """Return a line per source of the limits and the latencies."""
    return [
        f"{cited.of}: {cited.source.title}, {cited.source.date or 'undated'}"
        for cited in (*profile.sources, *latency_sources(profile))
    ]
