"""Figures as people read them: a response's name carries its unit, so one function can write any of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from analysis.response_units import base_of
from analysis.stats.intervals import MedianSummary
from pagecage.units import format_bytes, format_rate, format_seconds

MARKS = {
    "held": "✓ held", "not_held": "✗ not held", "not_comparable": "– not comparable", "no_data": "? no data",
    "untestable": "· untestable", "not_run": "· not run",
}  # fmt: skip
"""Verdicts on claims, told apart without colour."""
_TITLES = {
    "full_pass_seconds": "time of a whole pass",
    "read_seconds": "time measured",
    "device_read_bytes_per_second": "disk, read",
    "device_reads_per_second": "disk, reads",
    "amplification": "bytes from the disk for each distinct byte asked for",
}

_PLAIN = (("gibit_per_second", " Gibit/s"), ("_per_second", "/s"), ("_pages", " pages"))


def quantity(response: str, value: float) -> str:
    """A figure with its unit, told from the response's name (`_seconds`, `_bytes`, `_per_second`)."""
    if response.endswith("bytes_per_second"):
        return format_rate(value)
    if response.endswith("_seconds"):
        return _seconds(value)
    if response.endswith(("_us", "_ms", "_ns")):
        return _seconds(value * base_of(response))
    if response.endswith("_bytes"):
        return format_bytes(value)
    if response.endswith("_percent"):
        return f"{value:.3g} %"
    if response == "amplification":
        return f"{_digits(value)}×"
    if response.endswith("_fraction"):
        return f"{100 * value:.3g} %"
    unit = next((unit for suffix, unit in _PLAIN if response.endswith(suffix)), "")
    return f"{_digits(value)}{unit}"


def _seconds(value: float) -> str:
    """Microseconds and milliseconds where they are read more easily than a fraction of a second."""
    for unit, scale in (("us", 1e-6), ("ms", 1e-3)):
        if 0 < value < 999.5 * scale and value < 0.0995:
            return f"{_digits(value / scale)} {unit}"
    return format_seconds(value)


def _digits(value: float) -> str:
    """Three digits, and never as a power of ten."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def span(low: str, high: str) -> str:
    """Two figures with their unit once, where it is the same."""
    if low.endswith("×") and high.endswith("×"):
        return f"{low[:-1]} – {high}"
    figure, _, unit = low.partition(" ")
    return f"{figure} – {high}" if unit and high.partition(" ")[2] == unit else f"{low} – {high}"


def title(response: str) -> str:
    """A response's name in words."""
    return _TITLES.get(response, response.replace("_", " "))


def label(treatment: dict[str, str]) -> str:
    """A treatment in one line, its levels in the definition's order."""
    return " · ".join(treatment.values())


_UNITLESS = ("qual", "outcome", "flags", "hex", "dec", "bool", "fraction", "version", "count")


def unit_figure(value: float | str | None, unit: str) -> str:
    """A figure in a claim's own unit; an outcome as the word it is."""
    if value is None or isinstance(value, str):
        return value or "–"
    digits = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    if unit in _UNITLESS:
        return digits
    return f"{digits}×" if unit == "x" else f"{digits} {unit}"


_ORDERINGS = {"about_equal": "about equal"}


def _word(published: float | str, unit: str) -> str:
    """A word of flags as the kernel's headers write it."""
    digits = f"{published:.0f}" if isinstance(published, int | float) else published
    if unit == "dec":
        return f"{int(digits):#x}" if digits.isdigit() else digits
    return ", ".join(f"0x{part.strip().lower()}" for part in digits.split(","))


def published_figure(published: Any, unit: str) -> str:
    """A published figure, range, set of names or word, with its unit where it has one."""
    if isinstance(published, list):
        numbers = [part for part in published if isinstance(part, int | float)]
        joined = (" – " if numbers else " ").join(f"{part:g}" if part in numbers else str(part) for part in published)
        return f"{joined} {unit}" if numbers and unit not in _UNITLESS else joined
    if unit in ("hex", "dec") and not isinstance(published, list):
        return _word(published, unit)
    if isinstance(published, str):
        has_unit = published[:1].isdigit() and unit not in _UNITLESS and not unit.startswith("count")
        return f"{published}{'×' if unit == 'x' else f' {unit}'}" if has_unit else _ORDERINGS.get(published, published)
    return unit_figure(published, unit)


def words_of(says: str) -> str:
    """What a claim is about, with room to break a line where a row lists its conditions."""
    return says.replace(";", ", ")


def spans(ids: Sequence[str]) -> str:
    """Ids in their order, neighbours as `003-125 to 003-166`."""
    groups: list[list[str]] = []
    for id_ in ids:
        if groups and _number(id_) == _number(groups[-1][-1]) + 1:
            groups[-1].append(id_)
        else:
            groups.append([id_])
    return ", ".join(f"{group[0]} to {group[-1]}" if len(group) > 1 else group[0] for group in groups)


def _number(id_: str) -> int:
    return int(id_.rpartition("-")[2])


def claim_figure(value: float | str | None, unit: str, verdict: str) -> str:
    """What was measured for a claim; in brackets where it rests on excluded trials alone."""
    text = unit_figure(value, unit)
    return f"({text}) †" if verdict == "no_data" and value is not None else text


def told(response: str, summary: MedianSummary, *, is_ratio: bool) -> str:
    """The figure with its unit and, from two trials on, its interval: `31× (28 – 35×, n 3)`."""
    name = "amplification" if is_ratio else response
    middle = quantity(name, summary.middle)
    if summary.n < 2:
        return middle
    kind = "" if summary.kind == "range" else f"{summary.kind} "
    return f"{middle} ({kind}{span(quantity(name, summary.low), quantity(name, summary.high))}, n {summary.n})"
