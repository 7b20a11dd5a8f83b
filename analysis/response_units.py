"""Conversion between the units of responses and the units of claims."""

from __future__ import annotations

from pagecage.errors import PagecageError
from pagecage.units import GIB, KIB, LEAST_PAGE_BYTES, MIB

_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0}
_BYTES = {
    "B": 1.0,
    "bytes": 1.0,
    "kB": 1e3,
    "MB": 1e6,
    "GB": 1e9,
    "KiB": KIB,
    "MiB": MIB,
    "GiB": GIB,
    "pages": LEAST_PAGE_BYTES,  # of articles, all about x86-64
}
_COUNTS = {
    "x": 1.0,
    "count": 1.0,
    "1/s": 1.0,
    "k/s": 1e3,
    "IOPS": 1.0,
    "fraction": 1.0,
    "%": 0.01,
    "lines": 1.0,
    "count x MiB": 1.0,
    "count x MB": 1.0,
    "version": 1.0,
}
_WORDS = dict.fromkeys(("qual", "outcome", "flags", "hex", "dec", "bool"), 1.0)
_SCALE: dict[str, float] = {
    **_SECONDS,
    **_BYTES,
    **_COUNTS,
    **_WORDS,
    **{f"{unit}/s": scale for unit, scale in _BYTES.items()},
    # An article's column "GB/s" that counts bits: its code multiplies by 8 and divides by 2^30.
    "GB/s (really Gibit/s)": GIB / 8,
}
_SUFFIXES = (
    ("gibit_per_second", GIB / 8),
    ("_pages", LEAST_PAGE_BYTES),
    ("_ms", 1e-3),
    ("_us", 1e-6),
    ("_ns", 1e-9),
    ("_percent", 0.01),
    ("_kb", KIB),
)
_TIMELY = ("_seconds", "_per_second", "_ms", "_us", "_ns")


def convert_response(response: str, value: float, unit: str) -> float:
    """Return a response's value in a claim's unit.

    For example, 2500 of `heartbeat_p99_us` is 2.5 `ms`. Raises PagecageError if the unit is
    unknown.
    """
    if unit not in _SCALE:
        raise PagecageError(f"unknown unit {unit!r}", f"one of {', '.join(sorted(_SCALE))}")
    return value * response_scale(response) / _SCALE[unit]


def response_scale(response: str) -> float:
    """Return one unit of a response in seconds, bytes or fractions; 1 if its name has no unit."""
    return next((scale for suffix, scale in _SUFFIXES if response.endswith(suffix)), 1.0)


def unit_scale(unit: str) -> float:
    """Return one of a claim's units in seconds, bytes or fractions."""
    return _SCALE[unit]


def depends_on_cpu_speed(response: str) -> bool:
    """Return whether a response is a time or a rate, which a slower CPU changes.

    Counts of bytes, faults and flags do not depend on the CPU's speed.
    """
    return response.endswith(_TIMELY)
