"""HdrHistogram's second format as text: zlib and base64 around counts, in buckets as wide as their values.

Source: HdrHistogram, "V2EncodingCookieBase" and "ZigZagEncoding" of its Java reference. Rust's writes it.
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
_ANY_WORD = ~0xF0
"""The cookie's second nibble says how wide a counter is in other formats; in this one it is always 1."""
_OUTER = struct.Struct(">II")
_HEADER = struct.Struct(">IIIIQQd")
_MEND = "docs/FORMAT.md tells who writes it"


def decode(text: str) -> Counter[int]:
    """Counts by value, a bucket under the largest value that it may hold. Raises PagecageError for what is none."""
    try:
        raw = base64.b64decode(text, validate=True)
        cookie, length = _OUTER.unpack_from(raw)
        plain = zlib.decompress(raw[_OUTER.size : _OUTER.size + length])
        inner, size, _, digits, least, _, _ = _HEADER.unpack_from(plain)
    except (binascii.Error, struct.error, zlib.error) as error:
        raise PagecageError(f"this is no HdrHistogram: {error}", _MEND) from None
    if cookie & _ANY_WORD != _COMPRESSED or inner & _ANY_WORD != _PLAIN or not 0 < digits <= 5 or not least:
        raise PagecageError("this is no HdrHistogram of the second format", _MEND)
    return _by_value(plain[_HEADER.size : _HEADER.size + size], digits, least)


def _by_value(payload: bytes, digits: int, least: int) -> Counter[int]:
    """What the buckets hold; a negative number tells how many empty ones follow one another."""
    half_bits = (2 * 10**digits - 1).bit_length() - 1
    unit_bits = least.bit_length() - 1
    found: Counter[int] = Counter()
    index = 0
    for number in _numbers(payload):
        if number < 0:
            index -= number
            continue
        if number:
            found[_largest(index, half_bits, unit_bits)] = number
        index += 1
    return found


def _numbers(payload: bytes) -> Iterator[int]:
    """ZigZag LEB128: seven bits a byte, lowest first, nine bytes at most; the lowest bit of all is the sign."""
    value, shift = 0, 0
    for byte in payload:
        last = shift == 56
        value |= (byte if last else byte & 0x7F) << shift
        shift += 7
        if last or byte < 0x80:
            yield (value >> 1) ^ -(value & 1)
            value, shift = 0, 0


def _largest(index: int, half_bits: int, unit_bits: int) -> int:
    """The first bucket has twice the others' places, each further one values twice as far apart."""
    half = 1 << half_bits
    bucket, place = index // half - 1, index % half + half
    if bucket < 0:
        bucket, place = 0, place - half
    shift = bucket + unit_bits
    return (place << shift) + (1 << shift) - 1
