"""Cages of customers' volumes: limits from the catalogue, latencies from their counters."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pagecage.checkout import TOP
from pagecage.cli.cage_options import VolumeOptions
from pagecage.cli.cage_save import profile_cage, source_comments
from pagecage.cli.named_profile import named_profile
from pagecage.cloud.catalogue import read_offers
from pagecage.cloud.profile import LimitProfile
from pagecage.definitions.cage_file import cage_of_tables
from pagecage.errors import PagecageError
from pagecage.importers.result import ImportResult
from pagecage.model.cage import Cage
from pagecage.model.simulation import VolumeSimulation


@dataclass(frozen=True)
class KnownVolume:
    """The limits of a volume, and the volume in one line."""

    profile: LimitProfile
    description: str


def known_volume(name: str, options: VolumeOptions) -> KnownVolume:
    """Return a volume type or a cage. Raises PagecageError if there is none, or it is not sold."""
    found = KnownVolume(*named_profile(read_offers(TOP / "cgroups/catalogue"), name, options))
    if found.profile.memory_share is not None:
        raise PagecageError(
            f"{name} has a memory limit that depends on the dataset", "name another cage"
        )
    return found


def volume_cage(known: KnownVolume, imported: ImportResult, name: str) -> Cage:
    """Return the volume as a cage, with the customer's latencies if the import has any.

    A simulated volume then enforces it, because io.max has no latency. Limits of memory and CPU are
    those of the pod that has the volume.
    """
    tables = cage_of_tables(name, imported.cage())
    volume = profile_cage(known.profile, known.description, name)
    cage = replace(volume, properties={**volume.properties, **tables.properties})
    found = tables.simulation
    if found is None:
        return cage
    simulation = replace(
        cage.simulation or VolumeSimulation(),
        read_latency=found.read_latency,
        write_latency=found.write_latency,
    )
    return replace(cage, latency=None, simulation=simulation, enforced_by="volume")


def comments(known: KnownVolume, imported: ImportResult) -> list[str]:
    """Return the sources of the cage's figures as lines."""
    if not imported.observed:
        return source_comments(known.profile)
    without = replace(known.profile, measured=())
    return [*source_comments(without), "latency: nvme amzn stats of the customer's volume"]
