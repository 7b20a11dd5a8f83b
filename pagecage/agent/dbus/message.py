"""D-Bus messages as bytes (D-Bus Specification, "Type System" and "Message Protocol").

A structure is a tuple, and a variant a pair of signature and value. Only the types that systemd's
methods for units use are known.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

METHOD_CALL, METHOD_RETURN, ERROR, SIGNAL = 1, 2, 3, 4
PATH, INTERFACE, MEMBER, REPLY_SERIAL, DESTINATION, SIGNATURE = 1, 2, 3, 5, 6, 8
_FIELD_TYPES = {
    **dict.fromkeys((INTERFACE, MEMBER, DESTINATION), "s"),
    PATH: "o",
    REPLY_SERIAL: "u",
    SIGNATURE: "g",
}
_HEADER = "yyyyuua(yv)"
KIND_BYTE = 1
"""Place of a message's type in its bytes."""
FIXED_BYTES = 16
"""Length of a header up to its fields, whose length is the last of these numbers."""
_NUMBERS = {"y": "B", "b": "I", "u": "I", "t": "Q"}
_ALIGNMENT = {
    **{code: struct.calcsize(form) for code, form in _NUMBERS.items()},
    **dict.fromkeys("soa", 4),
    **dict.fromkeys("gv", 1),
    **dict.fromkeys("({", 8),
}


@dataclass(frozen=True)
class Received:
    """A received message: its type, and its header fields by code."""

    kind: int
    fields: dict[int, Any]
    _body: bytes
    _order: str

    def arguments(self) -> tuple[Any, ...]:
        """Return the arguments. Raises KeyError for a type that is not known here."""
        reader = _Reader(self._body, self._order)
        return tuple(reader.take(one) for one in types_of(self.fields.get(SIGNATURE, "")))


def types_of(signature: str) -> Iterator[str]:
    """Yield the complete types of a signature, such as "s" and "a(sv)" of "sa(sv)"."""
    begin = depth = 0
    for place, code in enumerate(signature):
        depth += (code in "({") - (code in ")}")
        if depth == 0 and code != "a":
            yield signature[begin : place + 1]
            begin = place + 1


def encode(
    kind: int, serial: int, fields: Mapping[int, Any], arguments: Sequence[Any] = ()
) -> bytes:
    """Return a message in little-endian byte order. `fields` has the signature, too."""
    body, header = bytearray(), bytearray()
    for one, value in zip(types_of(fields.get(SIGNATURE, "")), arguments, strict=True):
        _put(body, one, value)
    variants = [(code, (_FIELD_TYPES[code], value)) for code, value in fields.items()]
    values = (ord("l"), kind, 0, 1, len(body), serial, variants)
    for one, value in zip(types_of(_HEADER), values, strict=True):
        _put(header, one, value)
    _pad(header, 8)
    return bytes(header + body)


def length_of(start: bytes) -> int:
    """Return the length in bytes of the message that begins with these 16 bytes."""
    order = "<" if start[:1] == b"l" else ">"
    body, _, fields = struct.unpack_from(f"{order}III", start, 4)
    return int(FIXED_BYTES + fields + -fields % 8 + body)


def decode(data: bytes) -> Received:
    """Return the message of these bytes. Its arguments are not looked at yet."""
    order = "<" if data[:1] == b"l" else ">"
    reader = _Reader(data, order)
    values = [reader.take(one) for one in types_of(_HEADER)]
    fields = {code: value for code, (_, value) in values[6]}
    reader.align(8)
    return Received(values[1], fields, data[reader.place :], order)


def _pad(out: bytearray, alignment: int) -> None:
    out += bytes(-len(out) % alignment)


def _put(out: bytearray, kind: str, value: Any) -> None:
    code = kind[0]
    _pad(out, _ALIGNMENT[code])
    if code in _NUMBERS:
        out += struct.pack(f"<{_NUMBERS[code]}", value)
    elif code in "sog":
        text = value.encode()
        out += struct.pack("<B" if code == "g" else "<I", len(text)) + text + b"\0"
    elif code == "v":
        _put(out, "g", value[0])
        _put(out, *value)
    elif code == "a":
        _put_array(out, kind[1:], value)
    else:
        for inner, item in zip(types_of(kind[1:-1]), value, strict=True):
            _put(out, inner, item)


def _put_array(out: bytearray, kind: str, items: Sequence[Any]) -> None:
    """Put the length, which leaves out the padding before the first item, and the items."""
    place = len(out)
    out += bytes(4)
    _pad(out, _ALIGNMENT[kind[0]])
    begin = len(out)
    for item in items:
        _put(out, kind, item)
    struct.pack_into("<I", out, place, len(out) - begin)


class _Reader:
    """Reads values one after the other."""

    def __init__(self, data: bytes, order: str) -> None:
        self._data, self._order, self.place = data, order, 0

    def align(self, alignment: int) -> None:
        """Skip padding."""
        self.place += -self.place % alignment

    def take(self, kind: str) -> Any:
        """Return the next value, of this type."""
        code = kind[0]
        self.align(_ALIGNMENT[code])
        if code in _NUMBERS:
            return self._number(_NUMBERS[code])
        if code in "sog":
            return self._text(self._number("B" if code == "g" else "I"))
        if code == "v":
            inner = self.take("g")
            return inner, self.take(inner)
        if code == "a":
            return self._array(kind[1:])
        return tuple(self.take(inner) for inner in types_of(kind[1:-1]))

    def _number(self, form: str) -> int:
        (number,) = struct.unpack_from(self._order + form, self._data, self.place)
        self.place += struct.calcsize(form)
        return int(number)

    def _text(self, length: int) -> str:
        text = self._data[self.place : self.place + length].decode()
        self.place += length + 1
        return text

    def _array(self, kind: str) -> list[Any]:
        length = self._number("I")
        self.align(_ALIGNMENT[kind[0]])
        end, items = self.place + length, []
        while self.place < end:
            items.append(self.take(kind))
        return items
