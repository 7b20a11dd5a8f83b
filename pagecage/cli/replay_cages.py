"""The cages of a replay: files of cgroups/, or volumes of the catalogue."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pagecage.checkout import TOP
from pagecage.cli.cage_options import VolumeOptions, catalogue_names
from pagecage.cli.named_profile import named_profile
from pagecage.cli.run_options import definitions
from pagecage.cloud.catalogue import read_offers
from pagecage.cloud.profile import cage_of
from pagecage.errors import PagecageError, nearest
from pagecage.model.cage import UNCAGED, Cage
from pagecage.runner.uploads import size_of


def cage_names(cage: str, others: Sequence[str], *, has_control: bool) -> tuple[str, ...]:
    """Return each cage once, the control first. Raises PagecageError for an unknown name."""
    defined = definitions().cage_names()
    for name in (cage, *others):
        if name not in defined and name.lower() not in (volumes := _volume_names()):
            raise PagecageError(f"there is no cage {name!r}", nearest(name, [*defined, *volumes]))
    control = (UNCAGED,) if has_control else ()
    return tuple(dict.fromkeys((*control, cage, *others)))


def replay_cages(
    names: Sequence[str], volume: VolumeOptions, paths: Sequence[str]
) -> dict[str, Cage]:
    """Return the cages of these names, and the control, by name.

    `volume` are the options of the volumes among them, and `paths` the data of the program. Raises
    PagecageError if there is a volume without the options that it needs, or options without a
    volume.
    """
    defined = definitions().cage_names()
    if volume != VolumeOptions() and all(name in defined for name in names):
        raise PagecageError(
            "options of a volume do not apply to a cage of cgroups/", "pagecage cage list"
        )
    dataset_bytes = data_bytes(paths)
    return {
        name: definitions().cage(name, dataset_bytes) if name in defined else _of(name, volume)
        for name in {*names, UNCAGED}
    }


def _of(name: str, volume: VolumeOptions) -> Cage:
    profile, description = named_profile(read_offers(TOP / "cgroups/catalogue"), name, volume)
    return cage_of(profile, name.lower(), description)


def _volume_names() -> list[str]:
    return list(catalogue_names(read_offers(TOP / "cgroups/catalogue")))


def data_bytes(paths: Sequence[str]) -> int | None:
    """Return the size of the data, for cages that limit memory to a share of it.

    None if no data is named or some of it is not on this machine.
    """
    files = [Path(path) for path in paths]
    existing = [path for path in files if os.path.lexists(path)]
    return sum(map(size_of, existing)) if existing and len(existing) == len(files) else None
