"""The profile of a volume on an instance as a cage: its limits, layers and latencies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

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
    LatencyQuantiles,
    LayerLimit,
    VolumeSimulation,
)


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
                raise PagecageError(
                    f"the catalogue has no limits of {name} for {kind.name}", "leave out --instance"
                )
            return InstanceType(plain, None, fitting[-1], family.sources, family.remark)
    raise PagecageError(
        f"{provider.title} has no instance {name!r} in the catalogue", _hint(provider, plain)
    )


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
    """Return the name of a machine of a family."""
    return family.family if "-" in family.family else f"{family.family}-standard-{vcpus}"


def example_instance(provider: Provider, kind: VolumeType) -> str:
    """Return an instance with caps for this type of volume; "" if the catalogue has none."""
    for family in provider.machines:
        if kind.type in family.caps:
            return machine_name(family, family.caps[kind.type][0].least_vcpus)
    return next((instance.name for instance in provider.instances), "")


def _plain(name: str) -> str:
    return name.lower().removeprefix("standard_")


def _hint(provider: Provider, name: str) -> str:
    hint = nearest(name, instance_names(provider))
    return hint if hint.startswith("did") else f"pagecage cage list --provider {provider.name}"


def attached(volume: VolumeLimits, instance: InstanceType) -> VolumeLimits:
    """Return the layers of the volume followed by those of the instance."""
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


def simulation_of(
    limits: VolumeLimits,
    volume: str,
    is_combined: bool,
    read_latency: tuple[LatencyQuantiles, ...] = (),
    write_latency: tuple[LatencyQuantiles, ...] = (),
) -> VolumeSimulation:
    """Return the simulation of a volume, with each layer apart and its rates unrounded.

    Layers that are not named after the volume are those of its instance.
    """
    layers = tuple(_layer_limits(limits, volume, is_combined))
    return VolumeSimulation(layers, read_latency, write_latency)


def _layer_limits(limits: VolumeLimits, volume: str, is_combined: bool) -> Iterator[LayerLimit]:
    for quantity, unit in _UNITS.items():
        reads: Sequence[LimitLayer] = getattr(limits, f"read_{quantity}")
        writes: Sequence[LimitLayer] = getattr(limits, f"write_{quantity}")
        if is_combined and reads == writes:
            sides = [("both", reads)]
        else:
            sides = [("read", reads), ("write", writes)]
        for of, layers in sides:
            for layer in layers:
                yield _layer_limit("volume" if layer.by == volume else "instance", of, unit, layer)


def _layer_limit(name: str, of: str, unit: str, layer: LimitLayer) -> LayerLimit:
    """Return one limit. A burst without end is a higher limit."""
    if layer.burst is None or not layer.bursts:
        return LayerLimit(name, of, unit, float(layer.base))
    if layer.credits is None:
        return LayerLimit(name, of, unit, float(layer.burst))
    burst, credits_ = float(layer.burst), float(layer.credits)
    return LayerLimit(name, of, unit, float(layer.base), burst, credits_)


def limits_of(simulation: VolumeSimulation) -> VolumeLimits:
    """Return the limits of a simulation by direction and quantity."""
    found = {
        f"{side}_{quantity}": tuple(
            _simulated_layer(limit)
            for limit in simulation.limits
            if limit.of in (side, "both") and limit.unit == unit
        )
        for side in ("read", "write")
        for quantity, unit in _UNITS.items()
    }
    return VolumeLimits(**found)


def _simulated_layer(limit: LayerLimit) -> LimitLayer:
    burst, credits_ = (
        None if value is None else Fraction(value)
        for value in (limit.burst_per_second, limit.credits)
    )
    return LimitLayer(limit.layer, Fraction(limit.per_second), burst, credits_)


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
        """True if a simulated volume enforces the I/O limits."""
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
    """Return the profile of a volume on an instance.

    Raises PagecageError if the provider does not sell the volume, or if its limits depend on the
    instance and none is given.
    """
    own = volume_limits(kind, request)
    limits = attached(own, instance) if instance else own
    if not all(vars(limits).values()):
        message = f"the limits of {kind.name} depend on the instance, and none is given"
        raise PagecageError(message, f"--instance {example_instance(provider, kind)}")
    memory_bytes, memory_by = _memory(options, instance)
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
        simulation=_simulation(kind, limits, measured),
    )


def _simulation(
    kind: VolumeType, limits: VolumeLimits, measured: tuple[MeasuredLatency, ...]
) -> VolumeSimulation:
    latencies = (distributions(measured, direction) for direction in ("read", "write"))
    return simulation_of(limits, kind.name, bool(kind.accounting.combined), *latencies)


def _memory(options: CageOptions, instance: InstanceType | None) -> tuple[int | None, str]:
    """Return the memory and what sets it: the option, or else the instance."""
    if options.memory_bytes is not None:
        return options.memory_bytes, "--memory"
    return (instance.memory_bytes, instance.name) if instance else (None, "")


def profile_of_cage(cage: Cage, memory_share: float | None) -> LimitProfile:
    """Return the profile of a cage. Each limit is one layer, named after the cage.

    If a simulated volume enforces limits by layer, these are the limits.
    """
    burst = cage.burst or BurstCredits("full")
    layers = {
        quantity: _cage_layer(cage, name, burst.iops if "iops" in quantity else burst.bandwidth)
        for quantity, name in PROPERTY.items()
    }
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
    properties = {
        PROPERTY[quantity]: _whole(quantity, base) for quantity, (base, _) in bases.items()
    }
    buckets = [
        bases[name][1] if name in bases else None for name in ("read_iops", "read_bandwidth")
    ]
    source = profile.sources[0].source if profile.sources else None
    provenance = (
        {
            "about": about,
            "source": {**source.model_dump(), "author": "", "date": source.date or ""},
        }
        if source
        else {"about": about}
    )
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


def _volume(
    kind: VolumeType, request: VolumeRequest, instance: InstanceType | None, options: CageOptions
) -> CloudVolume:
    iops, throughput = request.iops, request.throughput
    return CloudVolume(
        kind.provider,
        kind.type,
        request.size_bytes,
        None if iops is None else int(iops),
        None if throughput is None else int(throughput),
        instance.name if instance else None,
        float(options.scale),
    )


def _latency_floor(
    published: PublishedLatencyTable | None, requested_us: int | None
) -> LatencyFloor | None:
    """Return the requested latency, or the least latency that the provider states.

    A time that most I/Os stay below is not a least latency.
    """
    if requested_us is not None:
        return LatencyFloor(requested_us, requested_us)
    if published is None or (published.read_from_us is None and published.write_from_us is None):
        return None
    return LatencyFloor(published.read_from_us, published.write_from_us)


def _cage_layer(cage: Cage, name: str, bucket: CreditBucket | None) -> tuple[LimitLayer, ...]:
    base = cage.properties.get(name)
    if base is None:
        return ()
    burst = (Fraction(bucket.rate), Fraction(bucket.credits)) if bucket else (None, None)
    return (LimitLayer(cage.name, Fraction(base), *burst),)


def _base_and_bucket(
    layers: tuple[LimitLayer, ...], start: str
) -> tuple[Fraction, CreditBucket | None]:
    """Return the lasting limit and the bucket above it.

    A drained bucket is kept, because it refills.
    """
    periods = rate_periods(layers)
    first = periods[0]
    if first.seconds is None:
        return first.rate, None
    base = periods[-1].rate if start == "drained" else periods[1].rate
    bucket = CreditBucket(int(first.rate), int(first.seconds * (first.rate - periods[1].rate)))
    return base, bucket if bucket.credits and bucket.rate > int(base) else None


def _whole(quantity: str, value: Fraction) -> int:
    if value < 1:
        unit = "bytes" if "bandwidth" in quantity else "I/Os"
        message = f"{float(value):g} {unit} per second are less than the kernel can count"
        raise PagecageError(message, "use a larger --scale")
    return int(value)
