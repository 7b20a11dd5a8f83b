"""The profile of a volume on an instance as a cage: its limits, layers and latencies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pagecage.cloud.catalogue import (
    InstanceCaps,
    InstanceType,
    MachineFamily,
    MeasuredLatency,
    Provider,
    PublishedLatencyTable,
    SourceTable,
    VolumeType,
    distributions,
)
from pagecage.cloud.formulas import LimitLayer, VolumeLimits, rate_periods
from pagecage.cloud.volume_request import VolumeRequest, volume_limits
from pagecage.errors import PagecageError, nearest
from pagecage.model.cage import (
    ENFORCERS,
    BurstCredits,
    Cage,
    CloudVolume,
    CreditBucket,
    IoAccounting,
    LatencyFloor,
    LayerLimit,
    VolumeSimulation,
)
from pagecage.units import exact_size


def find_instance(provider: Provider, kind: VolumeType, name: str) -> InstanceType:
    """Return an instance by its name, as the provider or its API writes it.

    Raises PagecageError with the nearest name if there is none, or if the catalogue has no limits
    of it for this type of volume.
    """
    plain = _plain(name)
    for instance in provider.instances:
        if instance.name.lower() == plain:
            return instance
    for family in provider.machines:
        vcpus = family.vcpus(plain)
        if vcpus is not None:
            fitting = [
                row.caps for row in family.caps.get(kind.type, ()) if row.least_vcpus <= vcpus
            ]
            if not fitting:
                reason = f"the catalogue has no limits of {name} for {kind.name}"
                raise PagecageError(reason, "leave out --instance")
            return InstanceType(plain, None, fitting[-1], family.sources, family.remark)
    hint = nearest(plain, instance_names(provider))
    hint = hint if hint.startswith("did") else f"pagecage cage list --provider {provider.name}"
    raise PagecageError(f"{provider.title} has no instance {name!r} in the catalogue", hint)


def has_instance(provider: Provider, name: str) -> bool:
    """Return whether the catalogue has limits of an instance for any type of volume."""
    plain = _plain(name)
    return any(instance.name.lower() == plain for instance in provider.instances) or any(
        family.vcpus(plain) is not None for family in provider.machines
    )


def instance_names(provider: Provider) -> list[str]:
    """Return the names that --instance accepts, with one example per family (n2-standard-8)."""
    examples = [machine_name(family, 8) for family in provider.machines]
    return [*(instance.name for instance in provider.instances), *examples]


def machine_name(family: MachineFamily, vcpus: int) -> str:
    return family.family if "-" in family.family else f"{family.family}-standard-{vcpus}"


def example_instance(provider: Provider, kind: VolumeType) -> str:
    """Return an instance with caps for this type of volume; "" if the catalogue has none."""
    for family in provider.machines:
        if kind.type in family.caps:
            return machine_name(family, family.caps[kind.type][0].least_vcpus)
    return next((instance.name for instance in provider.instances), "")


def _plain(name: str) -> str:
    return name.lower().removeprefix("standard_")


def attached(volume: VolumeLimits, instance: InstanceType) -> VolumeLimits:
    """Return the volume's layers followed by the instance's."""
    caps, name = instance.caps, instance.name
    iops, throughput = caps.burst_iops, caps.burst_throughput
    return VolumeLimits(
        (*volume.read_iops, _layer(name, caps, "read_iops", iops)),
        (*volume.write_iops, _layer(name, caps, "write_iops", iops)),
        (*volume.read_bandwidth, _layer(name, caps, "read_throughput", throughput)),
        (*volume.write_bandwidth, _layer(name, caps, "write_throughput", throughput)),
    )


def _layer(name: str, caps: InstanceCaps, quantity: str, burst: Fraction | None) -> LimitLayer:
    base: Fraction = getattr(caps, quantity)
    if burst is None or caps.burst_seconds is None or burst <= base:
        return LimitLayer(name, base)
    return LimitLayer(name, base, burst, (burst - base) * caps.burst_seconds)


_UNITS = {"iops": "operations", "bandwidth": "bytes"}


def _layer_limits(limits: VolumeLimits, volume: str, is_combined: bool) -> Iterator[LayerLimit]:
    """Yield each layer apart, unrounded: the volume's, or else the instance's."""
    for quantity, unit in _UNITS.items():
        sides = {side: getattr(limits, f"{side}_{quantity}") for side in ("read", "write")}
        if is_combined and sides["read"] == sides["write"]:
            sides = {"both": sides["read"]}
        for of, layers in sides.items():
            for layer in layers:
                name = "volume" if layer.by == volume else "instance"
                base, burst, bucket = layer.base, layer.burst, layer.credits
                if burst is None or not layer.bursts:
                    yield LayerLimit(name, of, unit, float(base))
                elif bucket is None:
                    yield LayerLimit(name, of, unit, float(burst))
                else:
                    yield LayerLimit(name, of, unit, float(base), float(burst), float(bucket))


def limits_of(simulation: VolumeSimulation) -> VolumeLimits:
    """Return the limits of a simulation by direction and quantity."""
    found: dict[str, tuple[LimitLayer, ...]] = {}
    for quantity, unit in _UNITS.items():
        for side in ("read", "write"):
            found[f"{side}_{quantity}"] = tuple(
                LimitLayer(
                    limit.layer,
                    Fraction(limit.per_second),
                    None if limit.burst_per_second is None else Fraction(limit.burst_per_second),
                    None if limit.credits is None else Fraction(limit.credits),
                )
                for limit in simulation.limits
                if limit.of in (side, "both") and limit.unit == unit
            )
    return VolumeLimits(**found)


# Limits of a profile and the systemd properties of a cage.
PROPERTY = {
    "read_bandwidth": "IOReadBandwidthMax",
    "read_iops": "IOReadIOPSMax",
    "write_bandwidth": "IOWriteBandwidthMax",
    "write_iops": "IOWriteIOPSMax",
}


@dataclass(frozen=True)
class LabelledSource:
    """A source, and the name of the volume, instance or cage to which it belongs."""

    of: str
    source: SourceTable


@dataclass(frozen=True)
class LimitProfile:
    """The known properties of one volume on its instance, or of one cage.

    `memory_share` is set if MemoryMax is a share of the dataset. `latency` is the least latency
    that the cage imposes, `published` the provider's statement, `measured` those of users.
    `remarks` are those of the catalogue. `is_offer` is true for a volume of the catalogue.
    `simulation` and `enforced_by` are those of the cage, and `cage` is set if it exists already.
    """

    name: str
    about: str
    limits: VolumeLimits
    start: str = "full"
    volume: CloudVolume | None = None
    memory_bytes: int | None = None
    memory_by: str = ""
    memory_share: float | None = None
    accounting: IoAccounting | None = None
    latency: LatencyFloor | None = None
    published: PublishedLatencyTable | None = None
    measured: tuple[MeasuredLatency, ...] = ()
    sources: tuple[LabelledSource, ...] = ()
    remarks: tuple[str, ...] = ()
    is_offer: bool = False
    simulation: VolumeSimulation | None = None
    enforced_by: str = ENFORCERS[0]
    cage: Cage | None = None

    @property
    def is_volume(self) -> bool:
        return self.enforced_by == "volume"


@dataclass(frozen=True)
class CageOptions:
    """Options of a cage besides the volume.

    `start` is how full the buckets are at first, `scale` a factor for all rates. `memory_bytes`
    replaces the instance's memory. `latency_us` is the least latency to impose, and replaces
    measured ones.
    """

    start: str = "full"
    scale: Fraction = Fraction(1)
    memory_bytes: int | None = None
    latency_us: int | None = None


def profile_of(
    provider: Provider,
    kind: VolumeType,
    request: VolumeRequest,
    instance: InstanceType | None,
    options: CageOptions,
) -> LimitProfile:
    """Return the profile of a volume. Raises PagecageError if it is not sold, or not like this."""
    own = volume_limits(kind, request)
    limits = attached(own, instance) if instance else own
    if not all(vars(limits).values()):
        message = f"the limits of {kind.name} depend on the instance, and none is given"
        raise PagecageError(message, f"--instance {example_instance(provider, kind)}")
    memory_bytes, memory_by = (instance.memory_bytes, instance.name) if instance else (None, "")
    if options.memory_bytes is not None:
        memory_bytes, memory_by = options.memory_bytes, "--memory"
    limits = limits.scaled(options.scale)
    measured = kind.measured if options.latency_us is None else ()
    offers = (kind, instance) if instance else (kind,)
    return LimitProfile(
        kind.name,
        kind.about,
        limits,
        options.start,
        volume=_volume(kind, request, instance, options),
        memory_bytes=memory_bytes,
        memory_by=memory_by,
        accounting=kind.accounting if kind.accounting != IoAccounting() else None,
        latency=_latency_floor(kind.latency, options.latency_us),
        published=kind.latency,
        measured=measured,
        sources=tuple(LabelledSource(one.name, source) for one in offers for source in one.sources),
        remarks=tuple(f"{one.name}: {one.remark}" for one in offers if one.remark),
        is_offer=True,
        simulation=VolumeSimulation(
            tuple(_layer_limits(limits, kind.name, bool(kind.accounting.combined))),
            distributions(measured, "read"),
            distributions(measured, "write"),
        ),
    )


def _volume(
    kind: VolumeType, request: VolumeRequest, instance: InstanceType | None, options: CageOptions
) -> CloudVolume:
    return CloudVolume(
        kind.provider,
        kind.type,
        request.size_bytes,
        None if request.iops is None else int(request.iops),
        None if request.throughput is None else int(request.throughput),
        instance.name if instance else None,
        float(options.scale),
    )


def _latency_floor(
    published: PublishedLatencyTable | None, requested_us: int | None
) -> LatencyFloor | None:
    if requested_us is not None:
        return LatencyFloor(requested_us, requested_us)
    if published is None or (published.read_from_us is None and published.write_from_us is None):
        return None
    return LatencyFloor(published.read_from_us, published.write_from_us)


def profile_of_cage(cage: Cage, memory_share: float | None) -> LimitProfile:
    """Return the profile of a cage. Each limit is one layer, named after the cage.

    If a simulated volume enforces limits by layer, these are the limits.
    """
    burst = cage.burst or BurstCredits("full")
    layers: dict[str, tuple[LimitLayer, ...]] = {}
    for quantity, name in PROPERTY.items():
        if (base := cage.properties.get(name)) is not None:
            bucket = burst.iops if "iops" in quantity else burst.bandwidth
            above = (Fraction(bucket.rate), Fraction(bucket.credits)) if bucket else ()
            layers[quantity] = (LimitLayer(cage.name, Fraction(base), *above),)
    simulation = cage.simulation
    by_layer = simulation if cage.is_volume and simulation and simulation.limits else None
    cited = dict(cage.provenance.get("source") or {})
    source = SourceTable(
        title=cited.get("title", ""), url=cited.get("url", ""), date=cited.get("date") or None
    )
    return LimitProfile(
        cage.name,
        str(cage.provenance.get("about", "")),
        limits_of(by_layer) if by_layer else VolumeLimits(**layers),
        burst.start,
        volume=cage.volume,
        memory_bytes=cage.properties.get("MemoryMax"),
        memory_by=cage.name,
        memory_share=memory_share,
        accounting=cage.accounting,
        latency=cage.latency,
        sources=(LabelledSource(cage.name, source),) if cited else (),
        simulation=simulation,
        enforced_by=cage.enforced_by,
        cage=cage,
    )


def cage_of(profile: LimitProfile, name: str, about: str) -> Cage:
    """Return the cage of a profile, with whole I/Os and bytes per second, rounded down.

    A cage has one bucket per quantity. If volume and instance both burst, it is the bucket of the
    first drop in rate. Raises PagecageError if less than one I/O or byte per second is left.
    """
    bases = {
        quantity: _base_and_bucket(layers, profile.start)
        for quantity, layers in vars(profile.limits).items()
        if layers
    }
    memory = {} if profile.memory_bytes is None else {"MemoryMax": profile.memory_bytes}
    for quantity, (base, _) in bases.items():
        if base < 1:
            unit = "bytes" if "bandwidth" in quantity else "I/Os"
            message = f"{float(base):g} {unit} per second are less than the kernel can count"
            raise PagecageError(message, "use a larger --scale")
    properties = {PROPERTY[quantity]: int(base) for quantity, (base, _) in bases.items()}
    buckets = [
        bases[name][1] if name in bases else None for name in ("read_iops", "read_bandwidth")
    ]
    provenance: dict[str, Any] = {"about": about}
    if profile.sources:
        source = profile.sources[0].source
        cited = {**source.model_dump(), "author": "", "date": source.date or ""}
        provenance["source"] = cited
    return Cage(
        name,
        {**memory, **properties, "MemorySwapMax": 0},
        provenance,
        profile.volume,
        BurstCredits(profile.start, *buckets) if any(buckets) else None,
        profile.accounting,
        profile.latency,
        profile.simulation,
        profile.enforced_by,
    )


def _base_and_bucket(
    layers: tuple[LimitLayer, ...], start: str
) -> tuple[Fraction, CreditBucket | None]:
    """Return the lasting limit and the bucket above it; a drained one refills."""
    periods = rate_periods(layers)
    first = periods[0]
    if first.seconds is None:
        return first.rate, None
    base = periods[-1].rate if start == "drained" else periods[1].rate
    bucket = CreditBucket(int(first.rate), int(first.seconds * (first.rate - periods[1].rate)))
    return base, bucket if bucket.credits and bucket.rate > int(base) else None


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


def latency_sources(profile: LimitProfile) -> list[LabelledSource]:
    """Return the sources of the distributions, each once."""
    used = [one for one in profile.measured if one.use == "distribution"]
    cited = [LabelledSource(f"{one.direction} latency", one.source) for one in used]
    return list({one.source.url: one for one in reversed(cited)}.values())[::-1]


def source_comments(profile: LimitProfile) -> list[str]:
    """Return a line about each source of the limits, for a file that holds them."""
    return [
        f"{cited.of}: {cited.source.title}, {cited.source.date or 'undated'}"
        for cited in (*profile.sources, *latency_sources(profile))
    ]
