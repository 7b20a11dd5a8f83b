"""Latencies of an EBS volume, and the limits that it ran into, from its counters."""

from __future__ import annotations

from collections.abc import Iterator

from pagecage.errors import PagecageError
from pagecage.importers.latency_histogram import OPEN_US, count, quantiles
from pagecage.importers.nvme_stats import EXPORT, LIMITS, DirectionCounters, VolumeCounters
from pagecage.importers.result import ImportedLimit, ImportResult, Observation, UnsupportedLimit
from pagecage.model.latency_quantiles import latency_at, mean_us
from pagecage.units import (
    exact_size,
    format_bytes,
    format_microseconds,
    format_seconds,
    percent_text,
)

_RATES = (
    "this file has no rates; add --volume aws-gp3 --size 500GiB, or the output of aws ec2"
    " describe-volumes"
)
_AT_LIMIT = "its demand exceeded a limit, so some requests waited; read two files in a calm time"
_SHOWN = (0.5, 0.95, 0.99, 0.999)
_NOTEWORTHY = 0.05
"""Least difference of the distribution's mean from the counted one that is printed."""


def latency_result(
    counters: VolumeCounters, seconds: float | None, *, described: bool
) -> ImportResult:
    """Return the latency distributions, and what the counters say of the volume's use.

    `seconds` is the time that the counters cover, None if unknown. `described` is true if another
    source has the volume's limits. Raises PagecageError if no request was counted, or if the time
    is shorter than that above a limit.
    """
    if not any(count(one.bins) for _, one in counters.sides()):
        raise PagecageError("no read and no write was counted", f"run the program, then {EXPORT}")
    longest_us = max(counters.exceeded_us.values())
    if seconds is not None and longest_us > 1e6 * seconds:
        exceeded = format_seconds(longest_us / 1e6)
        raise PagecageError(
            f"--seconds {seconds:g} is shorter than the {exceeded} above a limit",
            "give the time between the two files",
        )
    return ImportResult(
        "nvme amzn stats",
        "The latency of a customer's volume, from nvme amzn stats.",
        tuple(_latencies(counters)),
        tuple(_unsupported(counters, described=described)),
        observed=(*_use(counters, seconds), *_limits_met(counters, seconds)),
    )


def _latencies(counters: VolumeCounters) -> Iterator[ImportedLimit]:
    for side, one in counters.sides():
        if not count(one.bins):
            continue
        points = quantiles(one.bins)
        size_bytes = max(1, round(one.size_bytes / max(one.requests, 1)))
        distribution = {
            "size": exact_size(size_bytes),
            "percentiles_us": {percent_text(p): us for p, us in points},
        }
        basis = f"histogram of {count(one.bins):,} {side}s of {format_bytes(size_bytes)} on average"
        yield ImportedLimit(
            f"simulation.{side}_latency", [distribution], basis, _percentiles(points)
        )


def _percentiles(points: tuple[tuple[float, float], ...]) -> str:
    """Return usual percentiles of the distribution, as a simulated volume draws them."""
    return ", ".join(
        f"p{percent_text(p)} {format_microseconds(latency_at(points, p))}" for p in _SHOWN
    )


def _unsupported(counters: VolumeCounters, *, described: bool) -> Iterator[UnsupportedLimit]:
    if not described:
        yield UnsupportedLimit("the limits of the volume", _RATES)
    if any(counters.exceeded_us.values()):
        yield UnsupportedLimit("the latency without any wait at a limit", _AT_LIMIT)
    for side, one in counters.sides():
        if not count(one.bins):
            yield UnsupportedLimit(f"the latency of {side}s", f"no {side} was counted")


def _use(counters: VolumeCounters, seconds: float | None) -> Iterator[Observation]:
    for side, one in counters.sides():
        if one.operations:
            yield from _of_direction(side, one, seconds)
    length = counters.queue_length
    yield Observation("queue_length", length, f"{length} in the queue when the file was read")


def _of_direction(
    side: str, one: DirectionCounters, seconds: float | None
) -> Iterator[Observation]:
    requests = max(one.requests, 1)
    mean = one.time_us / requests
    rate = f", {one.operations / seconds:.0f} per second" if seconds else ""
    yield Observation(f"{side}s", one.operations, f"{one.operations:,} {side}s{rate}")
    size_bytes = one.size_bytes / requests
    yield Observation(
        f"{side}_mean_bytes", size_bytes, f"{format_bytes(size_bytes)} per {side} on average"
    )
    text = f"{format_microseconds(mean)} per {side} on average"
    if count(one.bins) and mean:
        drawn = mean_us(quantiles(one.bins))
        if abs(drawn / mean - 1) >= _NOTEWORTHY:
            text += f"; {format_microseconds(drawn)} by the distribution, whose bins are wide"
    yield Observation(f"{side}_mean_us", mean, text)
    yield from _assumptions(side, one)


def _assumptions(side: str, one: DirectionCounters) -> Iterator[Observation]:
    """Yield what the edges of the histogram leave open, if requests lie there."""
    used = [each for each in one.bins if each.count]
    zero = sum(each.count for each in used if not each.lower_us)
    if zero:
        text = f"{zero:,} {side}s of the bin from 0 us are taken at its upper edge"
        yield Observation(f"{side}s_in_first_bin", zero, text)
    still_open = sum(each.count for each in used if each.upper_us >= OPEN_US)
    if still_open:
        text = f"{still_open:,} {side}s of the last bin, which is open, are taken at its lower edge"
        yield Observation(f"{side}s_in_open_bin", still_open, text)


def _limits_met(counters: VolumeCounters, seconds: float | None) -> Iterator[Observation]:
    for key, (name, limit) in LIMITS.items():
        exceeded = counters.exceeded_us[key] / 1e6
        text = f"the demand never exceeded {limit}"
        if exceeded:
            text = f"the demand exceeded {limit} for {format_seconds(exceeded)}"
        if exceeded and seconds:
            text += f", {100 * exceeded / seconds:.3g} % of {format_seconds(seconds)}"
        yield Observation(f"{name}_exceeded_seconds", exceeded, text)
