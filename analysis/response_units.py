"""Units: what a response's name and a claim's unit mean in seconds, bytes, and times a second."""

from __future__ import annotations

from pagecage.errors import PagecageError
from pagecage.units import GIB, KIB, MIB, PAGE_BYTES

_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0}
_BYTES = {
    "B": 1.0, "bytes": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": KIB, "MiB": MIB, "GiB": GIB, "pages": PAGE_BYTES,
}  # fmt: skip
_COUNTS = {
    "x": 1.0, "count": 1.0, "1/s": 1.0, "k/s": 1e3, "IOPS": 1.0, "fraction": 1.0, "%": 0.01, "lines": 1.0,
    "count x MiB": 1.0, "count x MB": 1.0, "version": 1.0,
}  # fmt: skip
_WORDS = dict.fromkeys(("qual", "outcome", "flags", "hex", "dec", "bool"), 1.0)
_SCALE: dict[str, float] = {
    **_SECONDS, **_BYTES, **_COUNTS, **_WORDS,
    **{f"{unit}/s": scale for unit, scale in _BYTES.items()},
    # An article's column "GB/s" that counts bits: its code multiplies by 8 and divides by 2^30.
    "GB/s (really Gibit/s)": GIB / 8,
}  # fmt: skip
_SUFFIXES = (
    ("gibit_per_second", GIB / 8),
    ("_pages", PAGE_BYTES), ("_ms", 1e-3), ("_us", 1e-6), ("_ns", 1e-9), ("_percent", 0.01), ("_kb", KIB),
)  # fmt: skip
_TIMELY = ("_seconds", "_per_second", "_ms", "_us", "_ns")


def in_unit(response: str, value: float, unit: str) -> float:
    """A response's value in a claim's unit: 2500 of `heartbeat_p99_us` is 2.5 `ms`. Raises PagecageError."""
    if unit not in _SCALE:
        raise PagecageError(f"nobody knows the unit {unit!r}", f"one of {', '.join(sorted(_SCALE))}")
    return value * base_of(response) / _SCALE[unit]


def base_of(response: str) -> float:
    """What one of a response's own unit is in seconds, bytes or parts of one; 1 for plain names."""
    return next((scale for suffix, scale in _SUFFIXES if response.endswith(suffix)), 1.0)


def scale_of(unit: str) -> float:
    """What one of a claim's unit is, in the same."""
    return _SCALE[unit]


def is_timely(response: str) -> bool:
    """Whether a figure is a time or a rate, which a slower CPU changes; counts of bytes, faults or flags are not."""
    return response.endswith(_TIMELY)
