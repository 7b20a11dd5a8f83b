"""Latency distributions of a limit profile as rows, sources and JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from pagecage.cloud.profile import LabelledSource, LimitProfile
from pagecage.model.latency_quantiles import latency_at
from pagecage.model.simulation import LatencyQuantiles
from pagecage.units import exact_size, format_microseconds, percent_text

_SHOWN = ("50", "90", "95", "99", "99.9", "99.99")


def latency_rows(profile: LimitProfile) -> list[tuple[str, str, str, str, str]]:
    """Return direction, size, percentiles, source and load of each distribution.

    A direction without one has a row if the other has one. A distribution of a cage has no source.
    """
    rows = list(_rows(profile))
    return rows if any(percentiles != "not published" for _, _, percentiles, _, _ in rows) else []


def _rows(profile: LimitProfile) -> Iterator[tuple[str, str, str, str, str]]:
    simulation = profile.simulation
    if simulation is None:
        return
    for direction, sizes in (
        ("read", simulation.read_latency),
        ("write", simulation.write_latency),
    ):
        for one in sizes:
            source, load = _origin(profile, direction, one)
            yield direction, exact_size(one.size_bytes, " "), percentiles_text(one), source, load
        if not sizes:
            yield direction, "", "not published" if profile.is_offer else "none", "", ""


def _origin(profile: LimitProfile, direction: str, drawn: LatencyQuantiles) -> tuple[str, str]:
    """Return the title of the source and the load; "" for a distribution of a cage."""
    for one in profile.measured:
        key = (one.use, one.direction, one.size_bytes)
        if key == ("distribution", direction, drawn.size_bytes):
            return one.source.title, one.load
    return "", ""


def percentiles_text(latency: LatencyQuantiles) -> str:
    """Return the usual percentiles in one line, with the highest below the maximum.

    "p50 440 us, p95 720 us". If none of them is given, they are interpolated between the others.
    """
    given = {percent_text(p): us for p, us in latency.quantiles}
    names = [name for name in given if name in _SHOWN]
    if names:
        names += [name for name in given if name != "100"][-1:]
        shown = {name: us for name, us in given.items() if name in names}
    else:
        shown = _interpolated(latency) or given
    return ", ".join(f"p{name} {format_microseconds(us)}" for name, us in shown.items())


def _interpolated(latency: LatencyQuantiles) -> dict[str, float]:
    lowest, highest = latency.quantiles[0][0], latency.quantiles[-1][0]
    probabilities = {name: float(name) / 100 for name in _SHOWN}
    return {
        name: latency_at(latency.quantiles, p)
        for name, p in probabilities.items()
        if lowest <= p <= highest
    }


def latency_sources(profile: LimitProfile) -> list[LabelledSource]:
    """Return the sources of the distributions, each once."""
    used = [one for one in profile.measured if one.use == "distribution"]
    cited = [LabelledSource(f"{one.direction} latency", one.source) for one in used]
    return list({one.source.url: one for one in reversed(cited)}.values())[::-1]


def measured_json(profile: LimitProfile) -> list[dict[str, Any]]:
    """Return all measured latencies of a type, those at its limits too (docs/FORMAT.md)."""
    return [{**asdict(one), "source": one.source.model_dump()} for one in profile.measured]
