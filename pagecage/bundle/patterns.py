"""What tells where and by whom a run was made, as it stands in texts; each kind with the name that replaces it.

Replacements keep the form of what they replace, out of the ranges kept for documents: RFC 5737 (192.0.2.0/24), RFC 3849
(2001:db8::/32), RFC 7042 (00:00:5e:00:53).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """`found` has one group, what is replaced; `replacement` makes the n-th replacement; `is_meant` may say no."""

    name: str
    found: str
    replacement: Callable[[int], str]
    is_meant: Callable[[str], bool] = lambda _: True


def _is_address(text: str) -> bool:
    """An address that names a machine: none of a loop, and none of nothing."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified)


def _address_4(n: int) -> str:
    return f"192.0.2.{n}" if n < 256 else f"198.51.100.{n % 256}"


def _hardware_address(n: int) -> str:
    return f"00:00:5e:00:{0x53 + n // 256:02x}:{n % 256:02x}"


def _address_6(n: int) -> str:
    return f"2001:db8::{n:x}"


_HEX = "[0-9a-fA-F]"
KINDS = (
    Kind("disk_id", r"/dev/disk/by-[a-z]+/([^\s\"'\\,]+)", lambda n: f"redacted-{n}"),
    Kind("disk_id", r"\b(?:PARTUUID|PARTLABEL|UUID|LABEL)=([^\s\"'\\,]+)", lambda n: f"redacted-{n}"),
    Kind(
        "serial",
        r"\"(?:serial|serial_number|wwid|wwn|product_uuid|product_serial)\":\s*\"([^\"]+)\"",
        lambda n: f"redacted-{n}",
    ),
    Kind("user", r"(?:/home|/Users)/([^/\s\"'\\:,]+)", lambda n: "user" if n == 1 else f"user-{n}"),
    Kind("uuid", rf"\b({_HEX}{{8}}-(?:{_HEX}{{4}}-){{3}}{_HEX}{{12}})\b", lambda n: f"{0:08}-0000-4000-8000-{n:012x}"),
    Kind("machine_id", r"(?<![0-9a-fA-F-])([0-9a-f]{32})(?![0-9a-fA-F-])", lambda n: f"{n:032x}"),
    Kind("hardware_address", rf"(?<![\w:])((?:{_HEX}{{2}}:){{5}}{_HEX}{{2}})(?![\w:])", _hardware_address),
    Kind("address", r"(?<![\w.])((?:\d{1,3}\.){3}\d{1,3})(?![\w.]*\w)", _address_4, _is_address),
    Kind("address", rf"(?<![\w:.])((?:{_HEX}{{0,4}}:){{2,7}}{_HEX}{{0,4}})(?![\w:])", _address_6, _is_address),
)  # fmt: skip
"""In the order in which they are tried at each place."""
HOST_KEYS = re.compile(r"\"(?:hostname|nodename)\":\s*\"([^\"]+)\"")
HOMES = re.compile(r"(?:/home|/Users)/([^/\s\"'\\:,]+)")
