"""What providers offer, as the catalogue has it: types of volumes, and the instances that they are attached to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from pagecage.cloud.formulas import Formula
from pagecage.model.cage import IoAccounting


@dataclass(frozen=True)
class VolumeSource:
    """Where figures come from, and as of when; None where the page has no date."""

    title: str
    url: str
    date: str | None


@dataclass(frozen=True)
class SizeBounds:
    """The sizes that are sold."""

    least_bytes: int
    most_bytes: int
    step_bytes: int


@dataclass(frozen=True)
class BurstRule:
    """A rate above the base. `credits` bounds it, or `seconds` where the provider tells a time and no bucket.

    A time becomes a bucket of (rate - base) x seconds. With neither the rate may be kept for ever.
    """

    rate: Formula
    credits: Formula | None = None
    seconds: int | None = None


@dataclass(frozen=True)
class PublishedLatency:
    """What the provider says of latency, in its words; microseconds of a read or a write where it gives figures.

    `below` is what most I/Os stay under and says nothing of the least; `from` is the least and can be injected.
    """

    says: str
    read_from_us: int | None = None
    read_below_us: int | None = None
    write_from_us: int | None = None
    write_below_us: int | None = None


@dataclass(frozen=True)
class Tier:
    """A size with a name of its own, such as P10."""

    name: str
    size_bytes: int


@dataclass(frozen=True)
class VolumeType:
    """One type of volume: a formula for each quantity, None where the instance alone sets it.

    `size` is None where nothing depends on it. `throughput_unit_bytes` is what a bare figure of the provider means.
    """

    provider: str
    type: str
    about: str
    sources: tuple[VolumeSource, ...]
    size: SizeBounds | None
    throughput_unit_bytes: int
    read_iops: Formula | None
    write_iops: Formula | None
    read_throughput: Formula | None
    write_throughput: Formula | None
    iops_burst: BurstRule | None
    throughput_burst: BurstRule | None
    tiers: tuple[Tier, ...]
    accounting: IoAccounting
    latency: PublishedLatency | None
    remark: str

    @property
    def name(self) -> str:
        """As the command line takes it: provider-type."""
        return f"{self.provider}-{self.type}"


@dataclass(frozen=True)
class InstanceCaps:
    """What an instance allows its disks; the burst, of reads and writes alike, lasts `burst_seconds` at its rate."""

    read_iops: Fraction
    write_iops: Fraction
    read_throughput: Fraction
    write_throughput: Fraction
    burst_iops: Fraction | None = None
    burst_throughput: Fraction | None = None
    burst_seconds: int | None = None


@dataclass(frozen=True)
class InstanceType:
    """One size of machine with its caps and its nominal memory, None where the catalogue does not know it."""

    name: str
    memory_bytes: int | None
    caps: InstanceCaps
    sources: tuple[VolumeSource, ...]
    remark: str


@dataclass(frozen=True)
class VcpuCaps:
    """Caps of a machine with at least so many vCPUs."""

    least_vcpus: int
    caps: InstanceCaps


@dataclass(frozen=True)
class MachineFamily:
    """Machines whose caps follow from their vCPUs and differ by the type of the volume (Google Cloud).

    `family` is the name's beginning ("n2" of n2-standard-8), or a whole name where it has a dash ("e2-medium").
    """

    family: str
    caps: Mapping[str, tuple[VcpuCaps, ...]]
    sources: tuple[VolumeSource, ...]
    remark: str

    def vcpus(self, machine: str) -> int | None:
        """How many vCPUs a machine of this family has by its name; None where it is no machine of it."""
        if "-" in self.family:
            return 1 if machine == self.family else None
        match = re.fullmatch(
            rf"{re.escape(self.family)}-(?:standard|highmem|highcpu|custom)-([0-9]+)(-[0-9]+)?", machine
        )
        return int(match[1]) if match else None


@dataclass(frozen=True)
class Provider:
    """One file of the catalogue."""

    name: str
    title: str
    types: tuple[VolumeType, ...]
    instances: tuple[InstanceType, ...]
    machines: tuple[MachineFamily, ...]
