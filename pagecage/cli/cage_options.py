"""What the user says was bought, and the profile that it makes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from pagecage.cli.numbers import Positive
from pagecage.cloud.catalogue import Provider, VolumeType
from pagecage.cloud.instances import find_instance
from pagecage.cloud.profile import CageOptions, LimitProfile, profile_of
from pagecage.cloud.volume_request import VolumeRequest
from pagecage.errors import PagecageError, nearest
from pagecage.model.cage import CloudVolume
from pagecage.units import exact_size, page_floor_bytes, parse_exact_bytes, parse_size_bytes


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class VolumeOptions:
    """What was bought, and how it is to be replayed. None of it goes with a cage file.

    Parameters
    ----------
    size
        Of the volume, as 500GiB.
    iops
        As provisioned, where the type takes it.
    throughput
        As provisioned: a bare number is in the provider's own unit, or write 250MiB or 250MB.
    instance
        What the volume is attached to, as m7i.large: its caps, its burst and its memory.
    scale
        Multiplies every limit and bucket, so that bursts last as long; memory stays.
    start
        How full the buckets of credits are at first.
    memory
        MemoryMax, instead of the instance's nominal memory.
    latency_us
        A floor of latency to carry; the catalogue knows one of few types.
    """

    size: str | None = None
    iops: Positive | None = None
    throughput: str | None = None
    instance: str | None = None
    scale: Annotated[float, Parameter(validator=Number(gt=0, lte=1000))] = 1.0
    start: Literal["full", "half", "drained"] = "full"
    memory: str | None = None
    latency_us: Positive | None = None


@dataclass(frozen=True)
class CatalogueEntry:
    """What a name of the catalogue means: a type, and a size where the name is one's."""

    provider: Provider
    kind: VolumeType
    size_bytes: int | None


def catalogue_names(providers: tuple[Provider, ...]) -> dict[str, CatalogueEntry]:
    """Every name that is no cage's, in small letters. A size in several types is the first one's."""
    kinds = [(provider, kind) for provider in providers for kind in provider.types]
    sizes = {
        f"{provider.name}-{tier_name}".lower(): CatalogueEntry(provider, kind, tier.size_bytes)
        for provider, kind in reversed(kinds)
        for tier_name, tier in kind.tiers.items()
    }
    return {**sizes, **{kind.name: CatalogueEntry(provider, kind, None) for provider, kind in kinds}}


def profile_of_order(
    providers: tuple[Provider, ...], name: str, ordered: VolumeOptions, cages: list[str]
) -> tuple[LimitProfile, str]:
    """The profile, and what was bought in a line. Raises PagecageError, for an unknown name with the nearest one."""
    names = catalogue_names(providers)
    named = names.get(name.lower())
    if named is None:
        hint = nearest(name, [*cages, *names])
        hint = hint if hint.startswith("did") else "pagecage cage list"
        raise PagecageError(f"there is no type of volume and no cage {name!r}", hint)
    kind, size = named.kind, None if ordered.size is None else parse_size_bytes(ordered.size, "--size")
    if named.size_bytes is not None and size is not None:
        raise PagecageError(f"{name} is a size already", "leave --size out")
    order = VolumeRequest(
        named.size_bytes if size is None else size, Fraction(ordered.iops) if ordered.iops else None,
        _throughput(ordered.throughput, kind),
    )  # fmt: skip
    instance = None if ordered.instance is None else find_instance(named.provider, kind, ordered.instance)
    memory = None if ordered.memory is None else _memory_bytes(ordered.memory)
    wish = CageOptions(ordered.start, Fraction(str(ordered.scale)), memory, ordered.latency_us)
    profile = profile_of(named.provider, kind, order, instance, wish)
    tiers = [tier_name for tier_name, tier in kind.tiers.items() if tier.size_bytes >= (order.size_bytes or 0)]
    return profile, bought(profile.volume, tiers[0] if tiers else "")


def _memory_bytes(text: str) -> int:
    """MemoryMax as the kernel stores it: whole pages, and at least one."""
    if page_floor_bytes(size_bytes := parse_size_bytes(text, "--memory")) == 0:
        raise PagecageError(f"--memory: {text} is less than a page", "--memory 64MiB")
    return size_bytes


def bought(volume: CloudVolume | None, tier: str = "") -> str:
    """What was bought, in a line ("P10, 128 GiB, on D2s_v5"); empty where nothing is told."""
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


def _throughput(text: str | None, kind: VolumeType) -> Fraction | None:
    """Bytes a second; a bare number means what it means at the provider."""
    if text is None:
        return None
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text):
        return Fraction(text) * kind.throughput_unit_bytes
    return parse_exact_bytes(text, "--throughput")
