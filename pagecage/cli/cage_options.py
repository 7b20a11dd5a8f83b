"""Options that describe a cloud volume, and the volume's limits."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from pagecage.cli.numbers import Positive
from pagecage.cloud.catalogue import Provider, VolumeType
from pagecage.cloud.instances import find_instance
from pagecage.cloud.profile import CageOptions, LimitProfile, profile_of
from pagecage.cloud.volume_request import VolumeRequest, parse_throughput
from pagecage.errors import PagecageError, nearest
from pagecage.model.cage import CloudVolume
from pagecage.units import exact_size, page_floor_bytes, parse_size_bytes


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class VolumeOptions:
    """Options of a cloud volume. They do not apply to a cage.

    Parameters
    ----------
    size
        Size of the volume, for example 500GiB
    iops
        Provisioned IOPS, for types that have them
    throughput
        Provisioned throughput: a number in the provider's unit, or with a unit, for example 250MiB
    instance
        Instance type that the volume is attached to, for example m7i.large; adds its limits and its
        memory
    scale
        Factor for every limit and credit bucket; bursts last as long, memory stays
    start
        Fill of the credit buckets at the start
    memory
        Memory limit instead of the instance's memory, for example 2GiB
    latency_us
        Least latency of a request in microseconds; the catalogue has it for few types
    """

    size: Annotated[str | None, Parameter(metavar="SIZE")] = None
    iops: Positive | None = None
    throughput: Annotated[str | None, Parameter(metavar="RATE")] = None
    instance: Annotated[str | None, Parameter(metavar="TYPE")] = None
    scale: Annotated[float, Parameter(validator=Number(gt=0, lte=1000), metavar="FACTOR")] = 1.0
    start: Annotated[Literal["full", "half", "drained"], Parameter(metavar="FILL")] = "full"
    memory: Annotated[str | None, Parameter(metavar="SIZE")] = None
    latency_us: Positive | None = None


@dataclass(frozen=True)
class CatalogueEntry:
    """A name of the catalogue: a volume type, with a size if the name is that of a size."""

    provider: Provider
    kind: VolumeType
    size_bytes: int | None


def offered_providers(providers: tuple[Provider, ...], name: str | None) -> tuple[Provider, ...]:
    """Return the provider of this name, or all of them.

    Raises PagecageError with the nearest name if there is none.
    """
    offered = tuple(provider for provider in providers if name in (None, provider.name))
    if not offered:
        raise PagecageError(
            f"there is no provider {name!r} in the catalogue",
            nearest(name or "", [provider.name for provider in providers]),
        )
    return offered


def catalogue_names(providers: tuple[Provider, ...]) -> dict[str, CatalogueEntry]:
    """Return every name of a volume type or a size in lower case.

    A size that several types have belongs to the first one.
    """
    kinds = [(provider, kind) for provider in providers for kind in provider.types]
    sizes = {
        f"{provider.name}-{tier_name}".lower(): CatalogueEntry(provider, kind, tier.size_bytes)
        for provider, kind in reversed(kinds)
        for tier_name, tier in kind.tiers.items()
    }
    return {
        **sizes,
        **{kind.name: CatalogueEntry(provider, kind, None) for provider, kind in kinds},
    }


def profile_for(
    providers: tuple[Provider, ...], name: str, volume: VolumeOptions, cages: list[str]
) -> tuple[LimitProfile, str]:
    """Return the limits of a volume, and the volume in one line.

    Raises PagecageError; for an unknown name with the nearest known one.
    """
    names = catalogue_names(providers)
    entry = names.get(name.lower())
    if entry is None:
        hint = nearest(name, [*cages, *names])
        hint = hint if hint.startswith("did") else "pagecage cage list"
        raise PagecageError(f"there is no volume type and no cage {name!r}", hint)
    kind, size = (
        entry.kind,
        None if volume.size is None else parse_size_bytes(volume.size, "--size"),
    )
    if entry.size_bytes is not None and size is not None:
        raise PagecageError(f"{name} has a fixed size", "remove --size")
    request = VolumeRequest(
        entry.size_bytes if size is None else size,
        Fraction(volume.iops) if volume.iops else None,
        None if volume.throughput is None else parse_throughput(volume.throughput, kind),
    )
    instance = (
        None if volume.instance is None else find_instance(entry.provider, kind, volume.instance)
    )
    memory = None if volume.memory is None else _parse_memory(volume.memory)
    cage_options = CageOptions(volume.start, Fraction(str(volume.scale)), memory, volume.latency_us)
    profile = profile_of(entry.provider, kind, request, instance, cage_options)
    return profile, describe_volume(profile.volume, tier_name(kind, request.size_bytes))


def tier_name(kind: VolumeType, size_bytes: int | None) -> str:
    """Return the name of the smallest tier of this size; "" for a type without tiers."""
    names = (name for name, tier in kind.tiers.items() if tier.size_bytes >= (size_bytes or 0))
    return next(names, "")


def _parse_memory(text: str) -> int:
    """Return --memory in bytes. Raises PagecageError if it is below a page."""
    if page_floor_bytes(size_bytes := parse_size_bytes(text, "--memory")) == 0:
        raise PagecageError(f"--memory: {text} is less than a page", "--memory 64MiB")
    return size_bytes


def describe_volume(volume: CloudVolume | None, tier: str = "") -> str:
    """Return a volume in one line ("P10, 128 GiB, on D2s_v5"); empty for None."""
    if volume is None:
        return ""
    throughput = volume.throughput_bytes_per_second
    parts = [
        tier,
        exact_size(volume.size_bytes, " ") if volume.size_bytes else "",
        f"{volume.iops} IOPS" if volume.iops else "",
        f"{exact_size(throughput, ' ')}/s" if throughput else "",
        f"on {volume.instance}" if volume.instance else "",
        f"at {volume.scale:g} of its speed" if volume.scale != 1 else "",
    ]
    return ", ".join(part for part in parts if part)
