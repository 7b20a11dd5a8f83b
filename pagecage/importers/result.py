"""What was made of a customer's file: what became a limit, what could not be one, and what is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pagecage.errors import PagecageError
from pagecage.units import exact_size


@dataclass(frozen=True)
class ImportedLimit:
    """One key of the cage (`MemoryMax`, `burst.iops`), its value as a cage's file has it, and what the source said."""

    key: str
    value: Any
    said: str


@dataclass(frozen=True)
class UnsupportedLimit:
    """Something that limits the customer and that a cage cannot say, with the reason."""

    what: str
    why: str


@dataclass(frozen=True)
class DescribedVolume:
    """A cloud volume as a provider describes it: a type of the catalogue and the options that `cage show` takes.

    Its limits follow from these; throughput is a number in the provider's own unit, as the option is.
    """

    name: str
    size_bytes: int
    iops: int | None = None
    throughput: int | None = None

    def command(self) -> list[str]:
        """The command that prints the limits of such a volume."""
        words = ["pagecage", "cage", "show", self.name, "--size", exact_size(self.size_bytes)]
        for option, value in (("--iops", self.iops), ("--throughput", self.throughput)):
            words += [option, str(value)] if value is not None else []
        return words


@dataclass(frozen=True)
class ImportResult:
    """A customer's file as read.

    `origin` names the format and the part that was taken. `volume` is what a provider describes, whose limits follow
    from its type. `ignored` holds keys without their values.
    """

    origin: str
    about: str
    carried: tuple[ImportedLimit, ...] = ()
    lost: tuple[UnsupportedLimit, ...] = ()
    ignored: tuple[str, ...] = ()
    volume: DescribedVolume | None = None

    def cage(self) -> dict[str, Any]:
        """The tables of a cage's file: `burst.iops` is the key `iops` of the table `burst`."""
        tables: dict[str, Any] = {"about": self.about}
        for item in self.carried:
            *path, key = item.key.split(".")
            table = tables
            for name in path:
                table = table.setdefault(name, {})
            table[key] = item.value
        return tables


@dataclass(frozen=True)
class Selection:
    """What the user said to take where a file offers several (`--pick NAME`)."""

    names: tuple[str, ...] = ()

    def choose(self, kind: str, offered: Sequence[str]) -> str:
        """The single one, or the one that was picked. Raises PagecageError naming all where that is not one."""
        if len(offered) == 1:
            return offered[0]
        picked = [name for name in offered if name in self.names]
        if len(picked) == 1:
            return picked[0]
        shown = ", ".join(offered)
        raise PagecageError(f"the file has {len(offered)} {kind}s: {shown}", f"say which one: --pick {offered[0]}")


BANDWIDTH = ("IOReadBandwidthMax", "IOWriteBandwidthMax")


@dataclass(frozen=True)
class BlockLimit:
    """One limit of one device: the systemd property it amounts to, bytes or I/Os a second, and what was written."""

    key: str
    device: str
    rate: int
    said: str


def of_one_device(
    limits: Sequence[BlockLimit], picks: Selection
) -> tuple[tuple[ImportedLimit, ...], tuple[UnsupportedLimit, ...]]:
    """The limits of the single device, or of the one picked; a cage has one disk, so the others are lost.

    A later limit of the same kind replaces an earlier one. A rate of 0 means no limit, to Docker as to the kernel.
    """
    limits = [limit for limit in limits if limit.rate > 0]
    devices = list(dict.fromkeys(limit.device for limit in limits))
    if not devices:
        return (), ()
    chosen = picks.choose("limited device", devices)
    kept: Mapping[str, BlockLimit] = {limit.key: limit for limit in limits if limit.device == chosen}
    carried = tuple(ImportedLimit(key, _value(limit), limit.said) for key, limit in kept.items())
    others = tuple(
        UnsupportedLimit(limit.said, f"a cage limits one disk, and {chosen} was taken")
        for limit in limits
        if limit.device != chosen
    )
    return carried, others


def _value(limit: BlockLimit) -> str | int:
    return exact_size(limit.rate) if limit.key in BANDWIDTH else limit.rate
