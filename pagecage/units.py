"""Sizes, rates and times as users write them. No other module multiplies by 1024 or 1000."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction

from pagecage.errors import PagecageError

LEAST_PAGE_BYTES = 4096
"""The smallest page of Linux, and the page in which published figures count.

A kernel for arm64 may have pages of 16 or 64 KiB (arch/arm64/Kconfig).
"""
BLOCK_BYTES = 4096
"""The I/O size for which providers publish latencies, and the block of ext4."""
KIB, MIB, GIB = 1024, 1024**2, 1024**3
_SCALE = {
    "B": 1,
    "kB": 1000,
    "KB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "TB": 1000**4,
    "KiB": KIB,
    "MiB": MIB,
    "GiB": GIB,
    "TiB": 1024**4,
}
_MAX_DIGITS = 24
_MAX_BYTES = 2**63 - 1  # the kernel's largest offset (loff_t)
_SIZE = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*$")


def parse_size_bytes(text: str, where: str = "size") -> int:
    """Return the bytes of a size with an explicit unit ("200MB", "1GiB", "512B"), rounded.

    K, M and G are rejected, because systemd reads them in base 1000 for I/O and in base 1024 for
    memory (systemd.resource-control(5)). `where` is the file and key, or the option, for the error.
    """
    size_bytes = round(parse_exact_bytes(text, where))
    if size_bytes > _MAX_BYTES:
        raise PagecageError(f"{where}: {text!r} is too large", "write fewer digits")
    return size_bytes


def parse_exact_bytes(text: str, where: str = "size") -> Fraction:
    """Return the same without rounding: a rate per GiB ("0.12MiB") need not be whole bytes."""
    match = _SIZE.match(text)
    if not match:
        reason = f"{where}: {text!r} is not a size"
        raise PagecageError(reason, 'write a number and a unit, as in "200MB" or "1GiB"')
    number, unit = match.groups()
    if len(number) > _MAX_DIGITS:
        raise PagecageError(f"{where}: {text!r} is too large", "write fewer digits")
    if unit not in _SCALE:
        message = f"{where}: {text!r} has no clear unit"
        raise PagecageError(message, "use B, kB, MB, GB (base 1000) or KiB, MiB, GiB (base 1024)")
    return Fraction(number) * _SCALE[unit]


_SECONDS = {
    "us": Fraction(1, 10**6),
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "min": Fraction(60),
    "m": Fraction(60),
    "h": Fraction(3600),
}
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(us|ms|s|min|m|h)\s*")


def parse_seconds(text: str, where: str) -> float:
    """Return a duration with units in seconds ("90s", "1h 30min"); `where` is the option."""
    parts = _DURATION.findall(text)
    if not parts or _DURATION.sub("", text).strip():
        reason = f"{where}: {text!r} is not a time"
        raise PagecageError(reason, 'write a number and a unit, as in "90s" or "2min"')
    if not (seconds := sum(Fraction(number) * _SECONDS[unit] for number, unit in parts)):
        raise PagecageError(f"{where}: {text!r} is no time at all", "write more than zero")
    return float(seconds)


def exact_size(count: int, space: str = "") -> str:
    """Return a size in the largest unit that is exact ("125MiB", "81.25MB", "17B")."""
    for unit in ("TiB", "GiB", "MiB", "GB", "MB", "KiB", "kB"):
        in_unit = Fraction(count * 100, _SCALE[unit])
        if count >= _SCALE[unit] and in_unit.denominator == 1:
            return f"{Decimal(in_unit.numerator).scaleb(-2).normalize():f}{space}{unit}"
    return f"{count}{space}B"


def _three_digits(number: float) -> str:
    return f"{number:.3g}" if number < 999.5 else f"{number:.0f}"


def _scaled(count: float, units: Mapping[str, int], smallest: str) -> str:
    for unit, scale in units.items():
        if count >= scale:
            return f"{_three_digits(count / scale)} {unit}"
    return f"{count:.0f} {smallest}"


def format_bytes(count: float) -> str:
    """Return a size in base 1024 with three digits ("128 MiB", "6.4 MiB", "640 B")."""
    return _scaled(count, {"TiB": 1024**4, "GiB": GIB, "MiB": MIB, "KiB": KIB}, "B")


def format_rate(bytes_per_second: float) -> str:
    """Return a transfer rate in base 1000, as disks and clouds state it ("20.1 MB/s")."""
    return _scaled(bytes_per_second, {"GB/s": 1000**3, "MB/s": 1000**2, "kB/s": 1000}, "B/s")


def format_microseconds(microseconds: float) -> str:
    """Return a latency ("440 us", "4.1 ms", "338 ms", "1.2 s")."""
    for unit, scale in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= scale:
            return f"{_three_digits(microseconds / scale)} {unit}"
    return f"{_three_digits(microseconds)} us"


def format_seconds(seconds: float) -> str:
    """Return a duration ("0.36 s", "14.9 s", "3 min 05 s")."""
    if seconds < 100:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s"


def format_hours(seconds: float) -> str:
    """Return a long duration, from an hour on in minutes ("11 h 44 min", "45 min 03 s")."""
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min" if seconds >= 3600 else format_seconds(seconds)


def format_both_rates(bytes_per_second: float) -> str:
    """Return a rate in both bases, because providers use both ("131.1 MB/s (125 MiB/s)")."""
    return (
        f"{_four_digits(bytes_per_second / 1000**2)} MB/s ({_four_digits(bytes_per_second / MIB)}"
        " MiB/s)"
    )


def _four_digits(number: float) -> str:
    return f"{number:.4g}" if number < 9999.5 else f"{number:.0f}"


def percent_text(probability: float) -> str:
    """Return a probability as a percentage in decimal digits, exactly: 0.999 is "99.9"."""
    text = f"{Decimal(repr(probability)) * 100:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def kernel_page_bytes() -> int:
    return os.sysconf("SC_PAGESIZE")


def page_floor_bytes(count: int, page_bytes: int = LEAST_PAGE_BYTES) -> int:
    """Return `count` rounded down to a page, as the kernel stores memory.max.

    See page_counter_memparse in the kernel, and cgroup-v2.rst. Without the host's page, the result
    is what a definition asks for; a kernel with larger pages rounds it down further.
    """
    return count // page_bytes * page_bytes


def page_ceil_bytes(count: int, page_bytes: int) -> int:
    """Return `count` rounded up to a page: the memory that so many bytes of a file take."""
    return -(-count // page_bytes) * page_bytes
