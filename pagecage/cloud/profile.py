"""A volume on its instance, or a cage, as one reads it: limits with who sets them, and what a replay would carry."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from pagecage.cloud.instances import attached, example_instance
from pagecage.cloud.offers import InstanceType, Provider, PublishedLatency, VolumeSource, VolumeType
from pagecage.cloud.volume_limits import LimitLayer, RatePeriod, VolumeLimits, phases
from pagecage.cloud.volume_request import VolumeRequest, volume_limits
from pagecage.errors import PagecageError
from pagecage.model.cage import BurstCredits, Cage, CloudVolume, CreditBucket, IoAccounting, LatencyFloor

# The limits of a profile -> systemd's property.
PROPERTY = {
    "read_bandwidth": "IOReadBandwidthMax", "read_iops": "IOReadIOPSMax",
    "write_bandwidth": "IOWriteBandwidthMax", "write_iops": "IOWriteIOPSMax",
}  # fmt: skip


@dataclass(frozen=True)
class LabelledSource:
    """A source, and what it is the source of."""

    of: str
    source: VolumeSource


@dataclass(frozen=True)
class LimitProfile:
    """Everything that is known of one volume on its instance, or of one cage.

    `memory_share` is a limit that is a share of some dataset. `latency` is the floor that is carried, `published` what
    the provider says; `remarks` are the catalogue's.
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
    published: PublishedLatency | None = None
    sources: tuple[LabelledSource, ...] = ()
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class CageOptions:
    """What is chosen besides the volume: how full its buckets are, at what speed, with how much memory and latency."""

    start: str = "full"
    scale: Fraction = Fraction(1)
    memory_bytes: int | None = None
    latency_us: int | None = None


def profile_of(
    provider: Provider, kind: VolumeType, order: VolumeRequest, instance: InstanceType | None, wish: CageOptions
) -> LimitProfile:
    """The volume on the instance. Raises PagecageError for what the provider does not sell, or the instance decides."""
    limits = volume_limits(kind, order)
    limits = attached(limits, instance) if instance else limits
    if not all(vars(limits).values()):
        said = f"the limits of {kind.name} depend on the instance, and none is given"
        raise PagecageError(said, f"--instance {example_instance(provider, kind)}")
    memory_bytes, memory_by = wish.memory_bytes, "--memory" if wish.memory_bytes is not None else ""
    if instance and memory_bytes is None:
        memory_bytes, memory_by = instance.memory_bytes, instance.name
    offers = [(kind.name, kind.sources, kind.remark)]
    offers += [(instance.name, instance.sources, instance.remark)] if instance else []
    return LimitProfile(
        kind.name, kind.about, limits.scaled(wish.scale), wish.start, volume=_volume(kind, order, instance, wish),
        memory_bytes=memory_bytes, memory_by=memory_by,
        accounting=kind.accounting if kind.accounting != IoAccounting() else None,
        latency=_floor(kind.latency, wish.latency_us), published=kind.latency,
        sources=tuple(LabelledSource(name, source) for name, sources, _ in offers for source in sources),
        remarks=tuple(f"{name}: {remark}" for name, _, remark in offers if remark),
    )  # fmt: skip


def profile_of_cage(cage: Cage, memory_share: float | None) -> LimitProfile:
    """A cage as a profile: each limit is one layer, the cage itself."""
    burst = cage.burst or BurstCredits("full")
    layers = {
        quantity: _cage_layer(cage, name, burst.iops if "iops" in quantity else burst.bandwidth)
        for quantity, name in PROPERTY.items()
    }
    told = dict(cage.provenance.get("source") or {})
    source = VolumeSource(told.get("title", ""), told.get("url", ""), told.get("date") or None)
    return LimitProfile(
        cage.name, str(cage.provenance.get("about", "")), VolumeLimits(**layers), burst.start, volume=cage.volume,
        memory_bytes=cage.properties.get("MemoryMax"), memory_by=cage.name, memory_share=memory_share,
        accounting=cage.accounting, latency=cage.latency, sources=(LabelledSource(cage.name, source),) if told else (),
    )  # fmt: skip


def cage_of(profile: LimitProfile, name: str, about: str) -> Cage:
    """The cage that carries the profile: whole I/Os and bytes a second, rounded down.

    Raises PagecageError where less than one is left of a limit. A cage has one bucket a quantity; where volume and
    instance both burst it is that of the first drop in speed.
    """
    carried = {quantity: _carried(layers, profile.start) for quantity, layers in vars(profile.limits).items() if layers}
    memory = {} if profile.memory_bytes is None else {"MemoryMax": profile.memory_bytes}
    properties = {PROPERTY[quantity]: _whole(quantity, base) for quantity, (base, _) in carried.items()}
    buckets = [carried[name][1] if name in carried else None for name in ("read_iops", "read_bandwidth")]
    source = profile.sources[0].source if profile.sources else None
    provenance = {"about": about, "source": {**vars(source), "author": ""}} if source else {"about": about}
    return Cage(
        name, {**memory, **properties, "MemorySwapMax": 0}, provenance, profile.volume,
        BurstCredits(profile.start, *buckets) if any(buckets) else None, profile.accounting, profile.latency,
    )  # fmt: skip


def _volume(kind: VolumeType, order: VolumeRequest, instance: InstanceType | None, wish: CageOptions) -> CloudVolume:
    iops, throughput = order.iops, order.throughput
    return CloudVolume(
        kind.provider, kind.type, order.size_bytes, None if iops is None else int(iops),
        None if throughput is None else int(throughput), instance.name if instance else None, float(wish.scale),
    )  # fmt: skip


def _floor(published: PublishedLatency | None, asked_us: int | None) -> LatencyFloor | None:
    """What was asked for, or a least time that the provider states. That most I/Os stay below a time is no floor."""
    if asked_us is not None:
        return LatencyFloor(asked_us, asked_us)
    if published is None or (published.read_from_us is None and published.write_from_us is None):
        return None
    return LatencyFloor(published.read_from_us, published.write_from_us)


def _cage_layer(cage: Cage, name: str, bucket: CreditBucket | None) -> tuple[LimitLayer, ...]:
    base = cage.properties.get(name)
    if base is None:
        return ()
    burst = (Fraction(bucket.rate), Fraction(bucket.credits)) if bucket else (None, None)
    return (LimitLayer(cage.name, Fraction(base), *burst),)


def _carried(layers: tuple[LimitLayer, ...], start: str) -> tuple[Fraction, CreditBucket | None]:
    """The limit that lasts, and the bucket over it. Drained buckets refill, so that they are carried too."""
    whole: tuple[RatePeriod, ...] = phases(layers)
    first = whole[0]
    if first.seconds is None:
        return first.rate, None
    base = whole[-1].rate if start == "drained" else whole[1].rate
    bucket = CreditBucket(int(first.rate), int(first.seconds * (first.rate - whole[1].rate)))
    return base, bucket if bucket.credits and bucket.rate > int(base) else None


def _whole(quantity: str, value: Fraction) -> int:
    if value < 1:
        what = "bytes" if "bandwidth" in quantity else "I/Os"
        raise PagecageError(f"{float(value):g} {what} a second are less than the kernel can count", "a larger --scale")
    return int(value)
