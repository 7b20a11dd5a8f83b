"""The instance that a volume is attached to, and the combination of their limits."""

from __future__ import annotations

from fractions import Fraction

from pagecage.cloud.catalogue import Provider, VolumeType
from pagecage.cloud.instance_tables import InstanceCaps, InstanceType, MachineFamily
from pagecage.cloud.volume_limits import LimitLayer, VolumeLimits
from pagecage.errors import PagecageError, nearest


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
