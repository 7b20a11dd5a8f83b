"""Instance types and families: the limits that they set on their volumes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated

from pydantic import Field, model_validator

from pagecage.cloud.formulas import Bytes, ExactTable, Number
from pagecage.cloud.sources import OfferTable, Seconds, SourceTable
from pagecage.definitions.fields import SizeBytes


@dataclass(frozen=True)
class InstanceCaps:
    """Limits of an instance on its disks, in I/Os and bytes per second.

    Reads and writes share a burst rate, which lasts `burst_seconds` at full use.
    """

    read_iops: Fraction
    write_iops: Fraction
    read_throughput: Fraction
    write_throughput: Fraction
    burst_iops: Fraction | None = None
    burst_throughput: Fraction | None = None
    burst_seconds: int | None = None


@dataclass(frozen=True)
class InstanceType:
    """One type of instance.

    `memory_bytes` is its nominal memory; None if the catalogue has none.
    """

    name: str
    memory_bytes: int | None
    caps: InstanceCaps
    sources: tuple[SourceTable, ...]
    remark: str


class InstanceTable(ExactTable):
    """One type of instance: its nominal memory, its lasting caps and those of its burst."""

    memory: SizeBytes | None = None
    iops: Number
    throughput: Bytes
    burst_iops: Number | None = None
    burst_throughput: Bytes | None = None


class InstancesTable(OfferTable):
    """Instances with the same sources and burst; an instance may have its own burst rates."""

    burst_seconds: Seconds | None = None
    burst_iops: Number | None = None
    burst_throughput: Bytes | None = None
    sizes: dict[str, InstanceTable]

    def instances(self) -> list[InstanceType]:
        """Return the instances of this table."""
        return [
            InstanceType(name, own.memory, self._caps(own), self.sources, self.remark)
            for name, own in self.sizes.items()
        ]

    def _caps(self, own: InstanceTable) -> InstanceCaps:
        return InstanceCaps(
            own.iops,
            own.iops,
            own.throughput,
            own.throughput,
            own.burst_iops or self.burst_iops,
            own.burst_throughput or self.burst_throughput,
            self.burst_seconds,
        )


class VcpuCapsTable(ExactTable):
    """Caps of machines with at least this many vCPUs."""

    least_vcpus: Annotated[int, Field(gt=0, alias="vcpus")]
    read_iops: Number
    write_iops: Number
    read_throughput: Bytes
    write_throughput: Bytes

    @property
    def caps(self) -> InstanceCaps:
        """The caps, without a burst."""
        return InstanceCaps(
            self.read_iops, self.write_iops, self.read_throughput, self.write_throughput
        )


class MachineFamily(OfferTable):
    """Machines whose caps depend on their vCPUs and on the type of the volume (Google Cloud).

    `family` is the beginning of a name ("n2" of n2-standard-8), or a whole name with a dash
    ("e2-medium").
    """

    family: str
    caps: dict[str, list[VcpuCapsTable]]

    @model_validator(mode="after")
    def _check_order(self) -> MachineFamily:
        for kind, rows in self.caps.items():
            counts = [row.least_vcpus for row in rows]
            if not counts or counts != sorted(set(counts)):
                raise ValueError(f"caps.{kind} must go from the fewest vCPUs to the most")
        return self

    def vcpus(self, machine: str) -> int | None:
        """Return the number of vCPUs by a machine's name; None for another family."""
        if "-" in self.family:
            return 1 if machine == self.family else None
        shapes = "standard|highmem|highcpu|custom"
        match = re.fullmatch(rf"{re.escape(self.family)}-(?:{shapes})-([0-9]+)(-[0-9]+)?", machine)
        return int(match[1]) if match else None
