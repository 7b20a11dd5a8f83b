"""Redaction of names, addresses and identifiers. Equal values get equal replacements."""

from __future__ import annotations

import ipaddress
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_HOST_KINDS = frozenset({"vm", "local"})
_NAMELESS = frozenset({"root", "user", "localhost", "nobody"})
_WORD = re.compile(r"\w+")
_SHORTEST = 3
"""Shorter names are replaced only under a key that marks them as names."""


@dataclass(frozen=True)
class SensitiveNames:
    """Names of machines and users that may occur in texts as words."""

    hosts: frozenset[str]
    users: frozenset[str]


def names_in(
    texts: Iterable[str], plan: Mapping[str, Any], local: SensitiveNames
) -> SensitiveNames:
    """Return the names found in texts, and the `local` ones.

    A name follows a key `hostname` or `nodename`, or is a home directory. A name that is also a
    word of the experiment (a host called `random`) is left out and replaced only under its key,
    because the experiment would change otherwise.
    """
    hosts, users = {str(plan["host"])} - _HOST_KINDS | local.hosts, set(local.users)
    for text in texts:
        hosts.update(HOST_KEYS.findall(text))
        users.update(HOMES.findall(text))
    hosts |= {host.partition(".")[0] for host in hosts}
    words = set(_WORD.findall(json.dumps([plan["definition"], plan["experiment"], *_HOST_KINDS])))
    return SensitiveNames(
        *(
            frozenset(name for name in names if _is_plain(name, words))
            for names in (hosts, users - hosts)
        )
    )


def _is_plain(name: str, words: set[str]) -> bool:
    return len(name) >= _SHORTEST and name not in _NAMELESS and name not in words


class Redactor:
    """Redacts one text after another and counts its replacements."""

    def __init__(self, names: SensitiveNames) -> None:
        self._known: dict[str, str] = {}
        self._numbers: Counter[str] = Counter()
        self._occurrences: Counter[str] = Counter()
        parts = [pattern.regex for pattern in PATTERNS]
        parts += [HOST_KEYS.pattern, _any_of(names.hosts), _any_of(names.users)]
        self._kinds = [
            *((pattern.name, pattern.replacement, pattern.applies) for pattern in PATTERNS),
            *_NAMED,
        ]
        self._pattern = re.compile("|".join(parts))

    def redact(self, text: str) -> str:
        """Return the redacted text."""
        return self._pattern.sub(self._replace, text)

    def _replace(self, match: re.Match[str]) -> str:
        group = match.lastindex or 1
        name, replacement, applies = self._kinds[group - 1]
        value, whole = match[group], match[0]
        if not applies(value):
            return whole
        self._occurrences[name] += 1
        if value not in self._known:
            self._numbers[name] += 1
            self._known[value] = replacement(self._numbers[name])
        start, end = match.start(group) - match.start(), match.end(group) - match.start()
        return whole[:start] + self._known[value] + whole[end:]

    def counts(self) -> list[dict[str, Any]]:
        """Return, per kind, the number of different values and the number of replacements."""
        return [
            {"kind": name, "values": self._numbers[name], "places": count}
            for name, count in sorted(self._occurrences.items())
        ]


def _any_of(names: Iterable[str]) -> str:
    """Return a pattern for these words, longest first; without words, one that never matches."""
    spellings = {spelling for name in names for spelling in (name, json.dumps(name)[1:-1])}
    words = "|".join(
        re.escape(name) for name in sorted(spellings, key=lambda name: (-len(name), name))
    )
    return rf"(?<![A-Za-z0-9_])({words or '(?!)'})(?![A-Za-z0-9_])"


_NAMED = (
    ("host_name", lambda n: f"host-{n}", lambda _: True),
    ("host_name", lambda n: f"host-{n}", lambda _: True),
    ("user", lambda n: "user" if n == 1 else f"user-{n}", lambda _: True),
)


@dataclass(frozen=True)
class RedactionPattern:
    """A pattern of sensitive values.

    `regex` has one group, the part to replace. `replacement` returns the n-th replacement.
    `applies` can exclude a match.
    """

    name: str
    regex: str
    replacement: Callable[[int], str]
    applies: Callable[[str], bool] = lambda _: True


def _identifies_machine(text: str) -> bool:
    """Return whether the text is an address other than a loopback or unspecified one."""
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
_TYPED = r"(?:\s-e\s|\s--env[ =])"
"""Options of a container with a variable, as a shell would read the command line."""
PATTERNS = (
    RedactionPattern("disk_id", r"/dev/disk/by-[a-z]+/([^\s\"'\\,]+)", lambda n: f"redacted-{n}"),
    RedactionPattern(
        "disk_id", r"\b(?:PARTUUID|PARTLABEL|UUID|LABEL)=([^\s\"'\\,]+)", lambda n: f"redacted-{n}"
    ),
    RedactionPattern(
        "serial",
        r"\"(?:serial|serial_number|wwid|wwn|product_uuid|product_serial)\":\s*\"([^\"]+)\"",
        lambda n: f"redacted-{n}",
    ),
    RedactionPattern(
        "variable", r"\"variable_value\":\s*\"((?:[^\"\\]|\\.)+)\"", lambda n: f"redacted-{n}"
    ),
    RedactionPattern("variable", rf"{_TYPED}'\w+=([^']+)'", lambda n: f"redacted-{n}"),
    RedactionPattern("variable", rf"{_TYPED}\w+=([^\s'\"\\]+)", lambda n: f"redacted-{n}"),
    RedactionPattern(
        "user", r"(?:/home|/Users)/([^/\s\"'\\:,]+)", lambda n: "user" if n == 1 else f"user-{n}"
    ),
    RedactionPattern(
        "uuid",
        rf"\b({_HEX}{{8}}-(?:{_HEX}{{4}}-){{3}}{_HEX}{{12}})\b",
        lambda n: f"{0:08}-0000-4000-8000-{n:012x}",
    ),
    RedactionPattern(
        "machine_id", r"(?<![0-9a-fA-F-])([0-9a-f]{32})(?![0-9a-fA-F-])", lambda n: f"{n:032x}"
    ),
    RedactionPattern(
        "hardware_address",
        rf"(?<![\w:])((?:{_HEX}{{2}}:){{5}}{_HEX}{{2}})(?![\w:])",
        _hardware_address,
    ),
    RedactionPattern(
        "address",
        r"(?<![\w.])((?:\d{1,3}\.){3}\d{1,3})(?![\w.]*\w)",
        _address_4,
        _identifies_machine,
    ),
    RedactionPattern(
        "address",
        rf"(?<![\w:.])((?:{_HEX}{{0,4}}:){{2,7}}{_HEX}{{0,4}})(?![\w:])",
        _address_6,
        _identifies_machine,
    ),
)
"""Patterns in the order in which they are tried at each position."""
HOST_KEYS = re.compile(r"\"(?:hostname|nodename)\":\s*\"([^\"]+)\"")
HOMES = re.compile(r"(?:/home|/Users)/([^/\s\"'\\:,]+)")
