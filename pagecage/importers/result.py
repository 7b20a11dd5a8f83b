"""The result of an import: limits, limits that a cage does not support, and ignored keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pagecage.errors import PagecageError
from pagecage.importers.document import Document, Table, cpu_percent
from pagecage.units import exact_size

# Reasons that several formats give for an unsupported limit.
WEIGHT = "a share binds only against neighbours, and a cage has none"
CPU_LIST = "a cage does not select CPUs"
PROCESSES = "a cage does not limit the number of processes"
PROTECTION = "it protects memory and does not limit it"
NO_SUCH_LIMIT = "a cage has no such limit"


@dataclass(frozen=True)
class ImportedLimit:
    """One key of the cage (`MemoryMax`, `burst.iops.rate`) with its value as a cage file has it.

    `basis` is the text in the source that states the limit. `shown` is a short text for a long
    value.
    """

    key: str
    value: Any
    basis: str
    shown: str = ""


@dataclass(frozen=True)
class UnsupportedLimit:
    """A limit of the customer that a cage does not support, with the reason."""

    what: str
    reason: str


@dataclass(frozen=True)
class Observation:
    """A figure of the customer's machine that is no limit, and a sentence about it."""

    key: str
    value: float
    text: str


@dataclass(frozen=True)
class DescribedVolume:
    """A cloud volume as its provider describes it: its type and the provisioned values.

    The limits follow from these. `throughput` is in the provider's own unit, like the option
    `--throughput`.
    """

    name: str
    size_bytes: int
    iops: int | None = None
    throughput: int | None = None

    def command(self) -> list[str]:
        words = ["pagecage", "cage", "show", self.name, "--size", exact_size(self.size_bytes)]
        for option, value in (("--iops", self.iops), ("--throughput", self.throughput)):
            words += [option, str(value)] if value is not None else []
        return words


@dataclass(frozen=True)
class ImportResult:
    """The limits found in a customer's file.

    `origin` names the format. `volume` is set if the file describes a cloud volume, whose limits
    follow from its type. `ignored` holds the names of keys that are not limits. `observed` are
    figures of the use of a volume.
    """

    origin: str
    about: str
    limits: tuple[ImportedLimit, ...] = ()
    unsupported: tuple[UnsupportedLimit, ...] = ()
    ignored: tuple[str, ...] = ()
    volume: DescribedVolume | None = None
    observed: tuple[Observation, ...] = ()

    def cage(self) -> Table:
        """Return the tables of a cage file: `burst.iops` is the key `iops` of the table `burst`."""
        tables: Table = {"about": self.about}
        for limit in self.limits:
            *path, key = limit.key.split(".")
            table = tables
            for name in path:
                table = table.setdefault(name, {})
            table[key] = limit.value
        return tables


DIGITS = 2


@dataclass(frozen=True)
class Rounding:
    """The rounding to significant digits: a cap of 500 may be measured as 497.3."""

    digits: int = DIGITS

    def __call__(self, measured: float) -> int:
        """Return the rounded figure, at least 1."""
        return max(1, round(float(f"{measured:.{self.digits}g}")))


@dataclass(frozen=True)
class Selection:
    """The containers, units or disks that the user picked (`--pick NAME`).

    `memory_qos` is the memory throttling factor of the kubelets, None if they have none or if the
    file states it. `rounding` applies to figures that were measured.
    """

    names: tuple[str, ...] = ()
    memory_qos: float | None = None
    rounding: Rounding = Rounding()

    def choose(self, kind: str, offered: Sequence[str]) -> str:
        """Return the only name offered, or the one that the user picked.

        Raises PagecageError with all names if the user picked none of them or several.
        """
        if len(offered) == 1:
            return offered[0]
        picked = [name for name in offered if name in self.names]
        if len(picked) == 1:
            return picked[0]
        names = ", ".join(offered)
        reason = f"the file has {len(offered)} {kind}s: {names}"
        raise PagecageError(reason, f"pick one: --pick {offered[0]}")


@dataclass(frozen=True)
class Importer:
    """One format of customers' files.

    A module of this folder lists its formats in IMPORTERS. `read` raises PagecageError for what it
    refuses; other exceptions mean a value that does not fit the format.
    """

    recognise: Callable[[Document], bool]
    read: Callable[[Document, Selection], ImportResult]


def swap_limit(memory: int, total: int, key: str, written: object) -> Iterator[ImportedLimit]:
    """Yield the swap of a key that limits memory and swap together: by default twice the memory."""
    if total < 0:
        yield ImportedLimit("MemorySwapMax", "infinity", f"{key} = {written}, which is no limit")
    elif (swap := (total or 2 * memory) - memory) > 0:
        given = f"{key} = {written}, memory and swap together"
        basis = given if total else f"{key} is not set, so swap equals memory"
        yield ImportedLimit("MemorySwapMax", exact_size(swap), basis)


def quota_limit(key: str, quota_us: int, period_us: int) -> Iterator[ImportedLimit]:
    """Yield the limit of a quota of CPU time; a quota of 0 or less is none."""
    period_us = period_us or 100_000
    if quota_us > 0:
        basis = f"{key} = {quota_us} us of every {period_us} us"
        yield ImportedLimit("CPUQuota", cpu_percent(Decimal(quota_us) / period_us), basis)


BANDWIDTH = ("IOReadBandwidthMax", "IOWriteBandwidthMax")


@dataclass(frozen=True)
class BlockLimit:
    """A limit of one block device, in bytes or I/Os per second, with its source text."""

    key: str
    device: str
    rate: int
    basis: str


def limits_of_one_device(
    limits: Sequence[BlockLimit], selection: Selection
) -> tuple[tuple[ImportedLimit, ...], tuple[UnsupportedLimit, ...]]:
    """Return the limits of the only device, or of the one picked, and those of the other devices.

    The latter are unsupported, because a cage limits one disk. A later limit of a kind replaces an
    earlier one. A rate of 0 is no limit, to Docker as to the kernel.
    """
    limits = [limit for limit in limits if limit.rate > 0]
    devices = list(dict.fromkeys(limit.device for limit in limits))
    if not devices:
        return (), ()
    chosen = selection.choose("limited device", devices)
    last = {limit.key: limit for limit in limits if limit.device == chosen}
    reason = f"a cage limits one disk, and {chosen} was picked"
    others = (UnsupportedLimit(limit.basis, reason) for limit in limits if limit.device != chosen)
    return tuple(
        ImportedLimit(key, exact_size(limit.rate) if key in BANDWIDTH else limit.rate, limit.basis)
        for key, limit in last.items()
    ), tuple(others)
