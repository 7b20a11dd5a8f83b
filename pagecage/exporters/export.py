"""The result of an export: a text in another tool's language, and the limits that it cannot say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from pagecage.model.cage import IO_MAX_KEY, PROPERTIES, Cage, CreditBucket
from pagecage.units import exact_size

DEVICE = "/dev/DISK"
"""The disk in an export that names none. No such node exists, so a forgotten one fails aloud."""


@dataclass(frozen=True)
class LostLimit:
    """A part of a cage that the other tool cannot say, with the reason."""

    what: str
    reason: str


@dataclass(frozen=True)
class Export:
    """A cage for another tool: the body, and what it leaves out.

    `begin` and `end` enclose a comment in the tool's language.
    """

    body: str
    lost: tuple[LostLimit, ...] = ()
    begin: str = "# "
    end: str = ""

    def with_lost(self, lost: LostLimit) -> Export:
        return replace(self, lost=(lost, *self.lost))

    def text(self, about: str) -> str:
        """Return the body below comments: what the cage is, and a line for each lost limit."""
        lines = [about, *(f"lost: {one.what}: {one.reason}" for one in self.lost)]
        # XML comments must not contain two hyphens in a row.
        plain = (" ".join(line.split()).replace("--", "- -") for line in lines if line)
        comments = (f"{self.begin}{line}{self.end}" for line in plain)
        return "\n".join([*comments, self.body.rstrip()]) + "\n"


Exporter = Callable[[Cage, str], Export]
"""Writes a cage whose I/O limits apply to a device."""


def lost_properties(cage: Cage, kept: Sequence[str], reason: str) -> Iterator[LostLimit]:
    """Yield the cage's properties that are not in `kept`, with one reason for all of them."""
    for name in PROPERTIES:
        if name in cage.properties and name not in kept:
            yield LostLimit(f"{name} = {_value(name, cage.properties[name])}", reason)


def lost_disks(cage: Cage) -> Iterator[LostLimit]:
    """Yield the cage's further disks: a text for another tool has the limits of one."""
    for disk, limits in cage.disks.items():
        values = (f"{name} = {_value(name, value)}" for name, value in limits.properties.items())
        said = f"disk {disk}: {', '.join(values) or 'no limits'}"
        yield LostLimit(said, "the limits here are those of the data's disk alone")


def lost_behaviour(cage: Cage) -> Iterator[LostLimit]:
    """Yield what a cloud volume does beyond its rates, for a tool that limits rates only."""
    if cage.burst:
        named = (("I/Os", cage.burst.iops), ("bytes", cage.burst.bandwidth))
        rates = " and ".join(f"{one.rate} {unit} per second" for unit, one in named if one)
        yield LostLimit("burst credits", f"{rates}; the limits here are the base rates")
    if cage.accounting and cage.accounting.combined:
        reason = "each direction has the whole rate, so that a mixed load gets up to twice as much"
        yield LostLimit("one limit for reads and writes together", reason)
    if cage.accounting and cage.accounting.io_size_bytes:
        size = exact_size(cage.accounting.io_size_bytes, " ")
        yield LostLimit("I/O size", f"the provider counts a larger I/O as several of {size}")
    yield from lost_timing(cage)


def lost_timing(cage: Cage) -> Iterator[LostLimit]:
    """Yield what only a simulated volume has: merging by the provider's rules, and latencies."""
    if cage.accounting and cage.accounting.merged:
        yield LostLimit("merging", "the provider counts adjacent I/Os as one")
    if cage.latency and (cage.latency.read_us or cage.latency.write_us):
        least = f"reads {cage.latency.read_us} us, writes {cage.latency.write_us} us"
        yield LostLimit("least latency", f"{least}; the tool limits rates only")
    if cage.simulation and (cage.simulation.read_latency or cage.simulation.write_latency):
        yield LostLimit("latency percentiles", "only a simulated volume has them")


def burst_seconds(bucket: CreditBucket, base: int) -> int:
    """Return how many whole seconds a full bucket lasts above its base rate, at least one."""
    return max(1, bucket.credits // max(1, bucket.rate - base))


def io_limits(cage: Cage) -> dict[str, int]:
    return {name: cage.properties[name] for name in IO_MAX_KEY if name in cage.properties}


def _value(name: str, value: int) -> str:
    if name == "CPUQuota":
        return f"{value}%"
    if "IOPS" in name:
        return str(value)
    return exact_size(value, " ") + ("/s" if "Bandwidth" in name else "")
