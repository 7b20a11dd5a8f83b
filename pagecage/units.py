"""Sizes, rates and times as people write them; the only module that multiplies by 1024 or 1000."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction

from pagecage.errors import PagecageError

PAGE_BYTES = 4096
KIB, MIB, GIB = 1024, 1024**2, 1024**3
_SCALE = {
    "B": 1,
    "kB": 1000, "KB": 1000, "MB": 1000**2, "GB": 1000**3, "TB": 1000**4,
    "KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": 1024**4,
}  # fmt: skip
_MAX_DIGITS = 24
_MAX_BYTES = 2**63 - 1  # the most that the kernel counts in (loff_t)
_SIZE = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*$")


def parse_size_bytes(text: str, where: str = "size") -> int:
    """Bytes of a size with an explicit unit ("200MB", "1GiB", "512B"), to the nearest byte.

    A bare K, M or G is refused because systemd reads it in base 1000 for I/O and base 1024 for memory
    (systemd.resource-control(5)). `where` names the file and key for the error.
    """
    size_bytes = round(parse_exact_bytes(text, where))
    if size_bytes > _MAX_BYTES:
        raise PagecageError(f"{where}: {text!r} is no size that fits a disk", "write fewer digits")
    return size_bytes


def parse_exact_bytes(text: str, where: str = "size") -> Fraction:
    """The same unrounded: a rate per GiB ("0.12MiB") need not be whole bytes."""
    match = _SIZE.match(text)
    if not match:
        raise PagecageError(f"{where}: {text!r} is no size", 'write a number and a unit, as in "200MB" or "1GiB"')
    number, unit = match.groups()
    if len(number) > _MAX_DIGITS:
        raise PagecageError(f"{where}: {text!r} is no size that fits a disk", "write fewer digits")
    if unit not in _SCALE:
        raise PagecageError(
            f"{where}: {text!r} has no clear unit", "use B, kB, MB, GB (base 1000) or KiB, MiB, GiB (base 1024)"
        )
    return Fraction(number) * _SCALE[unit]


def exact_size(count: int, space: str = "") -> str:
    """A size as a file has it: in the largest unit that says it exactly ("125MiB", "81.25MB", "17B").

    `space` goes between number and unit.
    """
    for unit in ("TiB", "GiB", "MiB", "GB", "MB", "KiB", "kB"):
        in_unit = Fraction(count * 100, _SCALE[unit])
        if count >= _SCALE[unit] and in_unit.denominator == 1:
            return f"{Decimal(in_unit.numerator).scaleb(-2).normalize():f}{space}{unit}"
    return f"{count}{space}B"


def _three_digits(number: float) -> str:
    return f"{number:.3g}" if number < 999.5 else f"{number:.0f}"


def format_bytes(count: float) -> str:
    """A size for people, in base 1024 ("128 MiB", "6.4 MiB", "640 B")."""
    for unit, scale in (("TiB", 1024**4), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if count >= scale:
            return f"{_three_digits(count / scale)} {unit}"
    return f"{count:.0f} B"


def format_rate(bytes_per_second: float) -> str:
    """A transfer rate for people, in base 1000 as disks and clouds state it ("20.1 MB/s")."""
    for unit, scale in (("GB/s", 1000**3), ("MB/s", 1000**2), ("kB/s", 1000)):
        if bytes_per_second >= scale:
            return f"{_three_digits(bytes_per_second / scale)} {unit}"
    return f"{bytes_per_second:.0f} B/s"


def format_seconds(seconds: float) -> str:
    """A duration for people ("0.36 s", "14.9 s", "3 min 05 s")."""
    if seconds < 100:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s"


def format_hours(seconds: float) -> str:
    """A long duration for people, to the minute where it is hours ("11 h 44 min", "45 min 03 s")."""
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min" if seconds >= 3600 else format_seconds(seconds)


def format_both_rates(bytes_per_second: float) -> str:
    """A rate in both bases, because providers mean either ("131.1 MB/s (125 MiB/s)")."""
    return f"{_four_digits(bytes_per_second / 1000**2)} MB/s ({_four_digits(bytes_per_second / MIB)} MiB/s)"


def _four_digits(number: float) -> str:
    return f"{number:.4g}" if number < 9999.5 else f"{number:.0f}"


def page_floor_bytes(count: int) -> int:
    """`count` rounded down to a page, as the kernel stores memory.max (cgroup-v2.rst, page_counter_memparse)."""
    return count // PAGE_BYTES * PAGE_BYTES
