"""Latency distributions of a limit profile as rows, sources and JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from pagecage.cloud.profile import LabelledSource, LimitProfile
from pagecage.definitions.cage_writer import percent_text
from pagecage.model.simulation import LatencyQuantiles
from pagecage.units import exact_size, format_microseconds

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

    "p50 440 us, p95 720 us"; all of them if none is usual.
    """
    texts = {percent_text(p): format_microseconds(us) for p, us in latency.quantiles}
    usual = [name for name in _SHOWN if name in texts]
    highest = [name for name in texts if name != "100"][-1:] if usual else list(texts)
    shown = [name for name in texts if name in (*usual, *highest)]
    return ", ".join(f"p{name} {texts[name]}" for name in shown)


def latency_sources(profile: LimitProfile) -> list[LabelledSource]:
    """Return the sources of the distributions, each once."""
    used = [one for one in profile.measured if one.use == "distribution"]
    cited = [LabelledSource(f"{one.direction} latency", one.source) for one in used]
    return list({one.source.url: one for one in reversed(cited)}.values())[::-1]


def measured_json(profile: LimitProfile) -> list[dict[str, Any]]:
    """Return all measured latencies of a type, those at its limits too (docs/FORMAT.md)."""
    return [{**asdict(one), "source": one.source.model_dump()} for one in profile.measured]
