"""Figures as text, with units and as many digits as their interval deserves."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from analysis.stats import MedianSummary
from pagecage.errors import PagecageError
from pagecage.units import (
    GIB,
    KIB,
    LEAST_PAGE_BYTES,
    MIB,
    format_bytes,
    format_rate,
    format_seconds,
)

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
    **dict.fromkeys(("x", "count", "1/s", "IOPS", "fraction", "lines", "version"), 1.0),
    "count x MiB": 1.0,
    "count x MB": 1.0,
    "k/s": 1e3,
    "%": 0.01,
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
    """Return a response's value in a claim's unit: 2500 of `heartbeat_p99_us` is 2.5 `ms`."""
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
    return response.endswith(_TIMELY)


MARKS = {
    "held": "✓ held",
    "not_held": "✗ not held",
    "by_construction": "= by construction",
    "undecided": "± undecided",
    "not_comparable": "– not comparable",
    "requirement_missed": "? requirement missed",
    "no_data": "? no data",
    "untestable": "· untestable",
    "not_run": "· not run",
}
"""Labels of claim verdicts, distinguishable without colour."""


def format_verdict(verdict: str) -> str:
    return MARKS.get(verdict, f"· {verdict.replace('_', ' ')}")


_TITLES = {
    "full_pass_seconds": "time for all data",
    "read_seconds": "time measured",
    "total_seconds": "time in all",
    "with_start_seconds": "time with the start of the processes",
    "wall_per_call_us": "time per call",
    "pass_1_seconds": "time of the first pass",
    "pass_last_tenth_seconds": "time of the last tenth of the passes",
    "resident_end_fraction": "share of the file in memory at the end",
    "heartbeat_p999_us": "delay of a heartbeat, 99.9th percentile",
    "late_p999_us": "delay of a call, 99.9th percentile",
    "burst_p99_us": "time per MiB of a burst, 99th percentile",
    "device_read_bytes_per_second": "disk, read",
    "device_reads_per_second": "disk, reads",
    "amplification": "bytes read from the disk per distinct byte requested",
}

_PLAIN = (
    ("gibit_per_second", " Gibit/s"),
    ("_per_second", "/s"),
    ("_pages", " pages"),
    *((name, f" {name}") for name in ("tps", "qps", "rps")),
)


def format_quantity(response: str, value: float) -> str:
    """Format a figure with the unit that the end of its response's name implies."""
    if response.endswith("bytes_per_second"):
        return format_rate(value)
    if response.endswith(("_seconds", "_us", "_ms", "_ns")):
        seconds = value * response_scale(response)
        for unit, scale in (("us", 1e-6), ("ms", 1e-3)):
            if 0 < seconds < 999.5 * scale and seconds < 0.0995:
                return f"{_three_digits(seconds / scale)} {unit}"
        return format_seconds(seconds)
    if response.endswith("_bytes"):
        return format_bytes(value)
    if response.endswith("_percent"):
        return f"{value:.3g} %"
    if response == "amplification":
        return f"{_three_digits(value)}×"
    if response.endswith("_fraction"):
        return f"{100 * value:.3g} %"
    unit = next((unit for suffix, unit in _PLAIN if response.endswith(suffix)), "")
    return f"{_three_digits(value)}{unit}"


def _three_digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def format_range(low: str, high: str) -> str:
    """Join two formatted figures; a unit that they share is written once."""
    if low.endswith("×") and high.endswith("×"):
        return f"{low[:-1]} – {high}"
    figure, _, unit = low.partition(" ")
    return f"{figure} – {high}" if unit and high.partition(" ")[2] == unit else f"{low} – {high}"


def response_title(response: str) -> str:
    return _TITLES.get(response, response.replace("_", " "))


def treatment_label(treatment: Mapping[str, str]) -> str:
    return " · ".join(treatment.values())


_UNITLESS = ("qual", "outcome", "flags", "hex", "dec", "bool", "fraction", "version", "count")


def format_in_unit(value: float | str | None, unit: str) -> str:
    """Format a figure in a claim's own unit; a string (an outcome) is returned unchanged."""
    if value is None or isinstance(value, str):
        return value or "–"
    digits = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    if unit in _UNITLESS:
        return digits
    return f"{digits}×" if unit == "x" else f"{digits} {unit}"


_ORDERINGS = {"about_equal": "about equal"}


def format_published(published: Any, unit: str) -> str:
    """Format a published figure, range, set of names or flag word, with its unit if it has one."""
    if isinstance(published, list):
        numbers = [part for part in published if isinstance(part, int | float)]
        joined = (" – " if numbers else " ").join(
            f"{part:g}" if part in numbers else str(part) for part in published
        )
        return f"{joined} {unit}" if numbers and unit not in _UNITLESS else joined
    if unit in ("hex", "dec"):
        digits = f"{published:.0f}" if isinstance(published, int | float) else published
        if unit == "dec":
            return digits
        return ", ".join(f"0x{part.strip().lower()}" for part in digits.split(","))
    if isinstance(published, str):
        is_unitless = unit in _UNITLESS or unit.startswith("count")
        if is_unitless or not published[:1].isdigit():
            return _ORDERINGS.get(published, published)
        return f"{published}×" if unit == "x" else f"{published} {unit}"
    return format_in_unit(published, unit)


def tally(words: Iterable[str]) -> str:
    """Join words with their numbers, the most frequent first: `3 ok, 1 timed out`."""
    return ", ".join(f"{count} {word}" for word, count in Counter(words).most_common())


def sentence_case(text: str) -> str:
    return text[:1].upper() + text[1:]


def break_at_semicolons(statement: str) -> str:
    return statement.replace(";", ", ")


def format_id_ranges(ids: Sequence[str]) -> str:
    """Join ids in their order; consecutive ids become a range such as `003-125 to 003-166`."""
    groups: list[list[str]] = []
    for id_ in ids:
        number = int(id_.rpartition("-")[2])
        if groups and number == int(groups[-1][-1].rpartition("-")[2]) + 1:
            groups[-1].append(id_)
        else:
            groups.append([id_])
    return ", ".join(f"{one[0]} to {one[-1]}" if len(one) > 1 else one[0] for one in groups)


def format_measured(value: float | str | None, unit: str, verdict: str) -> str:
    text = format_in_unit(value, unit)
    return f"({text}) †" if verdict == "no_data" and value is not None else text


def format_summary(response: str, summary: MedianSummary, *, is_ratio: bool) -> str:
    """Format a median with its unit and, from two trials on, its interval.

    An example is `31× (28 – 35×, n 3)`.
    """
    middle, interval = format_interval("amplification" if is_ratio else response, summary)
    if not interval:
        return middle
    kind = "" if summary.kind == "range" else f"{summary.kind} "
    return f"{middle} ({kind}{interval}, n {summary.n})"


def format_interval(response: str, summary: MedianSummary) -> tuple[str, str]:
    """Format a median and its interval, with the digits that the interval deserves.

    The interval of a single trial is empty.
    """
    if summary.n < 2:
        return format_quantity(response, summary.middle), ""
    values = (summary.middle, summary.low, summary.high)
    texts = [format_quantity(response, value) for value in values]
    matches = [found for text in texts if (found := _ONE_NUMBER.fullmatch(text))]
    width = summary.high - summary.low
    if len(matches) == len(texts) and summary.middle and 0 < width < math.inf:
        exponents = [math.floor(math.log10(abs(value))) if value else 0 for value in values]
        place = min(math.floor(math.log10(width / _COARSE)), exponents[0] - 1)
        for index, (found, exponent) in enumerate(zip(matches, exponents, strict=True)):
            digits = exponent - place + 1
            if digits <= 2:  # else the text has three significant digits or all
                rounded = float(f"{float(found[2].replace(',', '')):.{max(1, digits)}g}")
                texts[index] = f"{found[1]}{rounded:,.10g}{found[3]}"
    return texts[0], format_range(*texts[1:])


_COARSE = 2.4
"""An interval is at least so many units of the last digit wide."""
_ONE_NUMBER = re.compile(r"(\D*)([\d,]*\.?\d+)(\D*)")
