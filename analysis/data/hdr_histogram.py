"""Decoder for HdrHistogram's version 2 format: counts compressed with zlib, in base64.

Source: HdrHistogram, "V2EncodingCookieBase" and "ZigZagEncoding" of its Java implementation. The
Rust workloads write this format.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from collections import Counter
from collections.abc import Iterator

from pagecage.errors import PagecageError

_COMPRESSED, _PLAIN = 0x1C849304, 0x1C849303
_COOKIE_MASK = ~0xF0
"""Mask for the cookie's second nibble, the counter width in other versions; here always 1."""
_OUTER = struct.Struct(">II")
_HEADER = struct.Struct(">IIIIQQd")
_HINT = "docs/FORMAT.md names the programs that write it"


def decode(text: str) -> Counter[int]:
    """Return counts by value; a bucket is named by the largest value that it can hold.

    Raises PagecageError if the text is not such a histogram.
    """
    try:
        raw = base64.b64decode(text, validate=True)
        cookie, length = _OUTER.unpack_from(raw)
        plain = zlib.decompress(raw[_OUTER.size : _OUTER.size + length])
        inner, size, _, digits, least, _, _ = _HEADER.unpack_from(plain)
    except (binascii.Error, struct.error, zlib.error) as error:
        raise PagecageError(f"this is not an HdrHistogram: {error}", _HINT) from None
    if (
        cookie & _COOKIE_MASK != _COMPRESSED
        or inner & _COOKIE_MASK != _PLAIN
        or not 0 < digits <= 5
        or not least
    ):
        raise PagecageError("this is not an HdrHistogram of version 2", _HINT)
    return _by_value(plain[_HEADER.size : _HEADER.size + size], digits, least)


def _by_value(payload: bytes, digits: int, least: int) -> Counter[int]:
    """Return the counts of the buckets; a negative number skips that many empty buckets."""
    half_bits = (2 * 10**digits - 1).bit_length() - 1
    unit_bits = least.bit_length() - 1
    found: Counter[int] = Counter()
    index = 0
    for number in _numbers(payload):
        if number < 0:
            index -= number
            continue
        if number:
            found[_largest_value(index, half_bits, unit_bits)] = number
        index += 1
    return found


def _numbers(payload: bytes) -> Iterator[int]:
    """Decode ZigZag LEB128 numbers: seven bits a byte, lowest first, at most nine bytes.

    The lowest bit of a number is its sign.
    """
    value, shift = 0, 0
    for byte in payload:
        last = shift == 56
        value |= (byte if last else byte & 0x7F) << shift
        shift += 7
        if last or byte < 0x80:
            yield (value >> 1) ^ -(value & 1)
            value, shift = 0, 0


def _largest_value(index: int, half_bits: int, unit_bits: int) -> int:
    """Return the largest value of a bucket entry.

    The first bucket has twice as many entries as the others; each later one doubles the value step.
    """
    half = 1 << half_bits
    bucket, entry = index // half - 1, index % half + half
    if bucket < 0:
        bucket, entry = 0, entry - half
    shift = bucket + unit_bits
    return (entry << shift) + (1 << shift) - 1
