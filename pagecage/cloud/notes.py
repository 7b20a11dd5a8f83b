"""What a reader of limits must know besides: what the kernel counts otherwise, and what a replay cannot carry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

from pagecage.cloud.profile import LimitProfile
from pagecage.cloud.volume_limits import LimitLayer, phases, reachable
from pagecage.model.cage import enforced_limit
from pagecage.units import KIB, format_both_rates, format_bytes, format_hours

# The kernel's default read-ahead window (VM_READAHEAD_PAGES), in whose steps a plain sequential reader reads.
_READ_AHEAD_BYTES = 128 * KIB

WORTH_A_NOTE = 0.97
"""Less than this share of the IOPS is said; what is lost above it is within what a limit is held to."""


def notes(profile: LimitProfile) -> tuple[str, ...]:
    """Sentences, each about one thing, in the order in which they matter."""
    told = (_layers, _later, _combined, _counting, _grain, _latency)
    return tuple(sentence for each in told for sentence in each(profile))


def _layers(profile: LimitProfile) -> Iterator[str]:
    """What each of volume and instance would allow alone, where there are two."""
    limits = profile.limits
    reads, writes = ((limits.read_iops, limits.read_bandwidth), (limits.write_iops, limits.write_bandwidth))
    sides = {"": reads} if reads == writes else {", reads": reads, ", writes": writes}
    for side, (iops, bandwidth) in sides.items():
        names = dict.fromkeys(layer.by for layer in (*iops, *bandwidth))
        for name in names if len(names) > 1 else ():
            parts = [_alone(iops, name, _iops), _alone(bandwidth, name, _rate)]
            lasting = ", ".join(base for base, _ in parts if base)
            burst = ", ".join(rate for _, rate in parts if rate)
            yield f"{name} alone{side}: {lasting}{f'; in a burst {burst}' if burst else ''}."


def _alone(layers: tuple[LimitLayer, ...], name: str, text: Callable[[Fraction], str]) -> tuple[str, str]:
    """What one layer allows, and in a burst; empty where it sets no limit, or has no burst."""
    for layer in layers:
        if layer.by == name:
            return text(layer.base), text(layer.burst) if layer.burst is not None and layer.bursts else ""
    return "", ""


def _iops(value: Fraction) -> str:
    return f"{_count(value)} IOPS"


def _rate(value: Fraction) -> str:
    return format_both_rates(float(value))


def _count(value: Fraction) -> str:
    return f"{float(value):.6g}"


def _later(profile: LimitProfile) -> Iterator[str]:
    """Two buckets one after the other are more than a cage carries."""
    for quantity in ("read_iops", "read_bandwidth"):
        found = phases(getattr(profile.limits, quantity), profile.start)
        if len(found) > 2:
            seconds = sum((phase.seconds or Fraction(0) for phase in found[:-1]), Fraction(0))
            what = "IOPS" if quantity == "read_iops" else "bandwidth"
            yield f"A cage carries one bucket for {what}: the drop after {format_hours(float(seconds))} is not in it."


def _combined(profile: LimitProfile) -> Iterator[str]:
    combined = profile.accounting.combined if profile.accounting else None
    if combined:
        yield (
            "Reads and writes share each limit at the provider. In a replay it is divided between them by what each "
            "uses; alone either has all of it."
        )
    elif combined is None and profile.published:
        yield "Whether reads and writes share a limit the provider does not say."


def _counting(profile: LimitProfile) -> Iterator[str]:
    """The provider counts by size and after merging; io.max counts what it is given, before merging."""
    accounting, limits = profile.accounting, profile.limits
    if accounting is None or accounting.io_size_bytes is None or not (limits.read_iops and limits.read_bandwidth):
        return
    size = accounting.io_size_bytes
    yield f"An I/O above {format_bytes(size)} counts as several at the provider, as one for the kernel."
    iops, bandwidth = phases(limits.read_iops)[-1].rate, phases(limits.read_bandwidth)[-1].rate
    there = reachable(bandwidth, iops, size)
    if there < bandwidth:
        most = _rate(there)
        yield f"{_count(iops)} I/Os a second of {format_bytes(size)} are {most}, and no more."
    here = min(bandwidth, iops * _READ_AHEAD_BYTES)
    if accounting.merged and here < there:
        yield (
            f"The provider counts after merging, the kernel before: a sequential reader in steps of "
            f"{format_bytes(_READ_AHEAD_BYTES)} gets {_rate(here)} in the cage, where the provider "
            f"allows {_rate(there)}."
        )


def _grain(profile: LimitProfile) -> Iterator[str]:
    """Whole I/Os in slices of 100 ms: much of few I/Os a second, nothing of thousands."""
    layers = profile.limits.read_iops
    base = int(phases(layers)[-1].rate) if layers else 0
    kept = enforced_limit("IOReadIOPSMax", base)
    if kept < WORTH_A_NOTE * base:
        yield f"The kernel lets whole I/Os through ten times a second: {base} a second are {kept:.0f} in the cage."


def _latency(profile: LimitProfile) -> Iterator[str]:
    floor, published = profile.latency, profile.published
    if published:
        yield f"Latency at the provider: {published.says}."
    if floor is None:
        yield "No latency is carried: within its limits an I/O is as fast as the disk below it."
    else:
        times = [f"{us} us for a {what}" for what, us in (("read", floor.read_us), ("write", floor.write_us)) if us]
        yield f"The floor of latency that is carried: {' and '.join(times)}."
