"""Cage files written by `--save NAME`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pagecage.cli.cage_options import catalogue_names
from pagecage.cli.latency_table import latency_sources
from pagecage.cloud.catalogue import Provider
from pagecage.cloud.profile import LimitProfile, cage_of
from pagecage.definitions.cage_writer import cage_to_toml
from pagecage.errors import PagecageError
from pagecage.model.cage import UNCAGED, Cage


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
