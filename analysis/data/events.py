"""Events and histograms of a trial."""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from analysis.data.load import JudgedTrial, Run
from pagecage.errors import PagecageError
from pagecage.model.run_files import read_lines

_COMPRESSED, _PLAIN = 0x1C849304, 0x1C849303
_COOKIE_MASK = ~0xF0
"""Mask for the cookie's second nibble, the counter width in other versions; here always 1."""
_OUTER = struct.Struct(">II")
_HEADER = struct.Struct(">IIIIQQd")
_HINT = "docs/FORMAT.md names the programs that write it"


def decode(text: str) -> Counter[int]:
    """Return counts by value; a bucket is named by the largest value that it can hold.

    The first bucket has twice as many entries as the others; each later one doubles the value step.
    Raises PagecageError if the text is not such a histogram.
    """
    try:
        raw = base64.b64decode(text, validate=True)
        cookie, length = _OUTER.unpack_from(raw)
        plain = zlib.decompress(raw[_OUTER.size : _OUTER.size + length])
        inner, size, _, digits, least, _, _ = _HEADER.unpack_from(plain)
    except (binascii.Error, struct.error, zlib.error) as error:
        raise PagecageError(f"this is not an HdrHistogram: {error}", _HINT) from None
    cookies = cookie & _COOKIE_MASK, inner & _COOKIE_MASK
    if cookies != (_COMPRESSED, _PLAIN) or not 0 < digits <= 5 or not least:
        raise PagecageError("this is not an HdrHistogram of version 2", _HINT)
    half = 1 << (2 * 10**digits - 1).bit_length() - 1
    found, index = Counter[int](), 0
    for number in _numbers(plain[_HEADER.size : _HEADER.size + size]):
        if number < 0:  # so many empty buckets
            index -= number
            continue
        if number:
            bucket, entry = index // half - 1, index % half + half
            if bucket < 0:
                bucket, entry = 0, entry - half
            shift = bucket + least.bit_length() - 1
            found[(entry << shift) + (1 << shift) - 1] = number
        index += 1
    return found


def _numbers(payload: bytes) -> Iterator[int]:
    """Decode ZigZag LEB128: seven bits a byte, lowest first, at most nine bytes, sign lowest."""
    value, shift = 0, 0
    for byte in payload:
        last = shift == 56
        value |= (byte if last else byte & 0x7F) << shift
        shift += 7
        if last or byte < 0x80:
            yield (value >> 1) ^ -(value & 1)
            value, shift = 0, 0


UNTRACED = "not available by tracepoints"
"""Text for a figure that a kernel without fentry and kprobes cannot give, instead of 0."""
_SAME_VALUES = {("filemap_fault", "ra_pages"): ("page_cache_ra_order", "ra_pages")}
"""Keys of a table that also stand in another one, which other probes fill."""


def traced_table(trial: JudgedTrial, table: str, key: str) -> str | None:
    """Return the table of the trial's trace that has this key; None if its probes cannot tell."""
    entry = trial.record.collectors.get("bpftrace") or {}
    unavailable = set(entry.get("unavailable") or ())
    for name, of_table in ((table, key), _SAME_VALUES.get((table, key), (table, key))):
        if not unavailable & {name, f"{name}.{of_table}"}:
            return name
    return None


def events_in_measured_part(
    run: Run,
    trial: JudgedTrial,
    probe: str,
    key: Callable[[Mapping[str, Any]], Any],
    collector: str = "bpftrace",
) -> Counter[Any]:
    """Count a probe's events from `go` on, by `key`; counts in the trace are cumulative."""
    if not trial.record.measured:
        return Counter()
    lines, start = (
        read_lines(run.path, trial.record, collector),
        trial.record.measured.start_monotonic_seconds,
    )
    before = _totals([line for line in lines if line["t"] <= start][-1:], probe, key)
    return _totals(lines[-1:], probe, key) - before


def _totals(
    lines: Sequence[Mapping[str, Any]], probe: str, key: Callable[[Mapping[str, Any]], Any]
) -> Counter[Any]:
    total: Counter[Any] = Counter()
    for entry in (lines[0].get(probe) or []) if lines else []:
        total[key(entry)] += entry["count"]
    return total
