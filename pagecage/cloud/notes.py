"""Notes on a profile: how provider and kernel count, what a replay leaves out, and its events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

from pagecage.cloud.formulas import LimitLayer, rate_periods, reachable
from pagecage.cloud.profile import LimitProfile
from pagecage.model.cage import LatencyFloor, VolumeEvent, VolumeSimulation, enforced_limit
from pagecage.units import (
    KIB,
    format_both_rates,
    format_bytes,
    format_hours,
    format_microseconds,
    format_seconds,
)


def event_notes(simulation: VolumeSimulation) -> Iterator[str]:
    restore = simulation.restore
    if restore:
        yield (
            f"The volume is restored from a snapshot: the first touch of each"
            f" {format_bytes(restore.block_bytes)} loads it at"
            f" {format_both_rates(restore.bytes_per_second)}."
        )
    for event in simulation.events:
        until = event.until_seconds
        end = "" if until is None else f" to {format_seconds(until)}"
        yield f"From {format_seconds(event.from_seconds)}{end}, {_effect(event)}."


def _effect(event: VolumeEvent) -> str:
    share = f"{100 * (event.share or 0):g} %"
    match event.kind:
        case "degrade":
            return f"the volume delivers {share} of its rates"
        case "delay":
            return f"{share} of the I/Os take {format_microseconds(event.latency_us or 0)} longer"
        case "pause":
            return "no I/O starts"
        case "fail":
            where = ""
            if event.first_byte is not None or event.end_byte is not None:
                end = "the end" if event.end_byte is None else f"byte {event.end_byte}"
                where = f" from byte {event.first_byte or 0} to before {end}"
            return f"{share} of the I/Os{where} fail with EIO"
        case _:
            return "the volume is detached and every I/O fails with EIO"


_READ_AHEAD_BYTES = 128 * KIB
"""Length of a sequential read: the default read-ahead window (VM_READAHEAD_PAGES)."""
WORTH_A_NOTE = 0.97
"""A note is made if the kernel allows less than this share of the IOPS."""


def notes(profile: LimitProfile) -> tuple[str, ...]:
    """Return sentences about one thing each, the most important first."""
    by_kernel = (_second_bucket, _combined, _counting, _whole_ios)
    parts = (_layers, *(() if profile.is_volume else by_kernel), _latency)
    sentences = [sentence for part in parts for sentence in part(profile)]
    return (*sentences, *(event_notes(profile.simulation) if profile.simulation else ()))


def _layers(profile: LimitProfile) -> Iterator[str]:
    limits = profile.limits
    reads, writes = (
        (limits.read_iops, limits.read_bandwidth),
        (limits.write_iops, limits.write_bandwidth),
    )
    directions = {"": reads} if reads == writes else {", reads": reads, ", writes": writes}
    for direction, (iops, bandwidth) in directions.items():
        names = dict.fromkeys(layer.by for layer in (*iops, *bandwidth))
        for name in names if len(names) > 1 else ():
            parts = [
                _alone(iops, name, lambda value: f"{_count(value)} IOPS"),
                _alone(bandwidth, name, _rate),
            ]
            lasting = ", ".join(base for base, _ in parts if base)
            burst = ", ".join(rate for _, rate in parts if rate)
            yield f"{name} alone{direction}: {lasting}{f'; in a burst {burst}' if burst else ''}."


def _alone(
    layers: tuple[LimitLayer, ...], name: str, format_rate: Callable[[Fraction], str]
) -> tuple[str, str]:
    """Return the base and the burst of one layer as text; "" without a limit or a burst."""
    for layer in layers:
        if layer.by == name:
            burst = format_rate(layer.burst) if layer.burst is not None and layer.bursts else ""
            return format_rate(layer.base), burst
    return "", ""


def _rate(value: Fraction) -> str:
    return format_both_rates(float(value))


def _count(value: Fraction) -> str:
    return f"{float(value):.6g}"


def _second_bucket(profile: LimitProfile) -> Iterator[str]:
    """Yield a note if two buckets drain in turn, because a cage has only the first."""
    for quantity in ("read_iops", "read_bandwidth"):
        periods = rate_periods(getattr(profile.limits, quantity), profile.start)
        if len(periods) > 2:
            seconds = sum((period.seconds or Fraction(0) for period in periods[:-1]), Fraction(0))
            name = "IOPS" if quantity == "read_iops" else "bandwidth"
            yield (
                f"A cage has one bucket for {name}: it lacks the drop after"
                f" {format_hours(float(seconds))}."
            )


def _combined(profile: LimitProfile) -> Iterator[str]:
    combined = profile.accounting.combined if profile.accounting else None
    if combined:
        yield (
            "Reads and writes share each limit at the provider. A replay divides it between them by"
            " their use; reads or writes alone have all of it."
        )
    elif combined is None and profile.published:
        yield "The provider does not state whether reads and writes share a limit."


def _counting(profile: LimitProfile) -> Iterator[str]:
    accounting, limits = profile.accounting, profile.limits
    size = accounting.io_size_bytes if accounting else None
    if accounting is None or size is None or not (limits.read_iops and limits.read_bandwidth):
        return
    yield (
        f"An I/O above {format_bytes(size)} counts as several at the provider and as one for the"
        " kernel."
    )
    iops = rate_periods(limits.read_iops)[-1].rate
    bandwidth = rate_periods(limits.read_bandwidth)[-1].rate
    at_provider = reachable(bandwidth, iops, size)
    if at_provider < bandwidth:
        yield (
            f"{_count(iops)} I/Os per second of {format_bytes(size)} are at most"
            f" {_rate(at_provider)}."
        )
    in_cage = min(bandwidth, iops * _READ_AHEAD_BYTES)
    if accounting.merged and in_cage < at_provider:
        yield (
            "The provider counts after merging, the kernel before. A sequential reader in steps of"
            f" {format_bytes(_READ_AHEAD_BYTES)} gets {_rate(in_cage)} in the cage; the provider"
            f" allows {_rate(at_provider)}."
        )


def _whole_ios(profile: LimitProfile) -> Iterator[str]:
    """Yield a note if much is lost because the kernel allows whole I/Os in slices of 100 ms."""
    layers = profile.limits.read_iops
    base = int(rate_periods(layers)[-1].rate) if layers else 0
    kept = enforced_limit("IOReadIOPSMax", base)
    if kept < WORTH_A_NOTE * base:
        yield (
            f"The kernel allows whole I/Os ten times per second: {base} per second are {kept:.0f}"
            " in the cage."
        )


def _latency(profile: LimitProfile) -> Iterator[str]:
    simulation, published = profile.simulation, profile.published
    drawn = (*simulation.read_latency, *simulation.write_latency) if simulation else ()
    if published:
        only = "" if drawn or profile.latency else "; no distribution is published"
        yield f"Latency at the provider: {published.says}{only}."
    elif profile.is_offer and not drawn and not profile.latency:
        yield "Latency: not published."
    yield from _imposed(profile.latency, is_drawn=bool(drawn), is_volume=profile.is_volume)
    if simulation and any(
        len(sizes) == 1 for sizes in (simulation.read_latency, simulation.write_latency)
    ):
        yield (
            "Requests of every size take the latency of the one size that is known. It is constant"
            " below the lowest percentile and above the highest."
        )
    for one in profile.measured:
        if one.use == "distribution" and one.remark:
            yield f"Latency of {one.direction}s: {one.remark}"


def _imposed(floor: LatencyFloor | None, *, is_drawn: bool, is_volume: bool) -> Iterator[str]:
    """Yield what imposes the latencies: a simulated volume does, a cgroup does not."""
    times = [
        f"{us} us for a {name}"
        for name, us in (("read", floor and floor.read_us), ("write", floor and floor.write_us))
        if us
    ]
    imposed = "the latencies"
    if times and not is_drawn:
        imposed = f"a least latency of {' and '.join(times)}"
    has_latency = is_drawn or bool(times)
    if is_volume:
        yield (
            f"A simulated volume imposes {imposed}."
            if has_latency
            else "The simulated volume has no latency within its limits."
        )
    else:
        yield "A cgroup imposes no latency: within its limits, an I/O is as fast as the disk below."
        if has_latency:
            yield f"With --enforced-by volume, a simulated volume imposes {imposed}."
