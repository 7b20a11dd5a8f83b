"""Redaction of a bundle: only what is known to be harmless stays in it."""

from __future__ import annotations

import functools
import ipaddress
import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from pagecage.checkout import TOP
from pagecage.model.json_codec import STATE_ID
from pagecage.model.run_files import Document

_FOLDERS = {
    "pagecage": {".py"},
    "analysis": {".py"},
    "cgroups/catalogue": {".toml", ".csv"},
    "experiments": {".toml", ".csv", ".py", ""},
    "workloads": {".rs", ".c", ".h", ".py", ".in"},
    "volume": {".rs"},
}
"""Suffixes of the files that are read, by folder."""
_WORDS = Path(__file__).with_name("words.txt")
"""Words that no file of pagecage has: counters of the kernel (/proc/vmstat, /proc/meminfo,
memory.stat), of sysstat and of fio, common programs, and words of older definitions.
"""
_WORD = re.compile(r"[^\W_]+(?:[._-][^\W_]+)*")
_PART = re.compile(r"[^\W_]+")
_MOST_DIGITS = 8


@functools.cache
def vocabulary() -> frozenset[str]:
    """Return the words, and the words that these are composed of, in lower case."""
    words = set(_WORDS.read_text().split())
    for folder, suffixes in _FOLDERS.items():
        for path in (TOP / folder).rglob("*"):
            if path.suffix in suffixes and path.is_file() and "target" not in path.parts:
                words.update(_WORD.findall(path.read_text(errors="replace").lower()))
    words |= {part for word in words for part in _PART.findall(word)}
    return frozenset(word for word in words if sum(map(str.isdigit, word)) < _MOST_DIGITS)


KINDS = {
    "addresses": "IP and hardware addresses",
    "arguments": "words of a replayed command line",
    "hosts": "names of hosts and domains",
    "ids": "serial numbers, UUIDs and machine ids",
    "kernel": "parameters of the kernel's command line",
    "urls": "URLs",
    "users": "names of users",
    "variables": "values of environment variables",
    "words": "other words that pagecage does not know, also in paths",
}
"""Kinds of what is replaced; `pagecage export --keep KIND` leaves one as it is."""
_HOST_KEYS = {"hostname", "nodename"}
_ID_KEYS = re.compile(r"serial(_number)?|wwid|wwn|product_(uuid|serial)|machine_id|boot_id")
_DIGEST_KEYS = re.compile(r".*sha256|git_revision|checksum|key|image|image_id|id")
_DIGEST = re.compile(r"(?:sha256:)?[0-9a-f]{8,64}(?:-\d+)?")
_VERSION_KEYS = {"versions", "tools"}
"""Keys of names and versions of packages and tools, as these print them."""
_ARGUMENT_KEYS = {"argv", "arguments", "load", "prepare", "typed", "data_paths", "command"}
_KERNEL = re.compile(
    r"(?:mitigations|transparent_hugepage|isolcpus|nohz_full|rcu_nocbs|psi|idle|elevator|nosmt"
    r"|cgroup_no_v1|cgroup_enable|swapaccount|systemd\.unified_cgroup_hierarchy|intel_pstate"
    r"|amd_pstate|processor\.max_cstate|intel_idle\.max_cstate|(?:default_)?hugepagesz|hugepages"
    r"|iommu|nomodule|nokaslr|quiet|rw|ro)(?:=[a-z0-9,_-]{1,40})?"
)
"""Parameters that change what is measured, or say nothing."""
_NAMELESS = {"root", "user", "localhost", "nobody", "vm", "local"}
_SHORTEST = 3
"""Shorter names are replaced only under a key that marks them as names."""

_OWN = re.compile(r"(?:word|host|url|argument|user|id|value)-\d+|user@(?=host-\d)")
"""Replacements, which stay if a bundle is redacted again."""
_TOKEN = re.compile(r"\\u[0-9a-fA-F]{4}|\\.|[^\s\"'`()\[\]{}<>,;|\\]+")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'`<>\\]+")
_ADDRESS = re.compile(r"(?<![\w.])((?:\d{1,3}\.){3}\d{1,3})(?![\w.]*\w|\+)")
_ASSIGNED = re.compile(
    r"(?<![\w-])([A-Z][A-Z0-9_.]*|[\w.-]*(?i:passw|pwd|secret|token|key|credential)[\w.-]*)="
    r"(?!=+(?:[\s\"\\]|\Z))((?:'\\?\"'\\?\"'|[^\s\"\\])+)"
)
"""An environment variable or a secret, with its value; not the padding of base64."""
_MAKE_VARIABLES = {"SIZE", "HOST", "BUDGET", "CAGE", "NAME", "ONLY", "REPEATS"}
"""Variables of the project's Makefile, which its own sentences name."""
_HOME = re.compile(r"(?:/home|/Users)/([^/\s\"'\\:,]+)")
_QUOTED = re.compile(r"`([^`]+)`")
_EDGES = ".:!?=&*#%$^~+-/"
_UNIT = r"(?:(?:B|[kKMGT]i?B?|[mnuµ]?s|min|[mhdxp×%]|th|st|[nr]d)(?:/s)?)"
_NUMBER = re.compile(rf"[-+~]?\d[\d.,:x×–-]*{_UNIT}?|[-+]?[\d.]+[eE][-+]?\d+|0x[0-9a-f]{{1,16}}")
_RELEASE = (
    r"(?:v?\d+[a-z]{0,3}\d*|(?:deb|rc|beta|alpha|dfsg|ubuntu|git|post|dev|fc|el|bpo|ga|cip|rt)[\du]*"
    r"|generic|cloud|amd64|arm64|x86_64|aarch64|azure|aws|gcp|lts|lowlatency)"
)
"""A part of a version after its first number."""
_VERSION = re.compile(rf"v?(?:\d+:)?\d+(?:[.+~-]{_RELEASE})+|\d{{1,4}}[a-z]{{0,2}}")
_TIME = re.compile(r"\d{8}T\d{6}Z|\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d)?")
_STEP = re.compile(r"[a-z]{1,2}\d{1,3}")
"""A part of a trial's id or of a level: `r1`, `p10`."""
_DISK = re.compile(r"(?:sd|vd|xvd|nvme|dm-|loop|nbd|md|sr)[a-z0-9]{0,8}")
_DATA = re.compile(
    r"(?<=/)(?:(?:random|index|zeros|text)-\d{5,}-\d+|(?<=prepared/)[0-9a-f]{16})(?=[./]|$)"
)
"""Names of pagecage's data: fill, size and seed, or the key of prepared data."""
_HOST_LIKE = re.compile(r"[^\W_]+(?:-[^\W_]+)*-\d+")
"""Words with a number at the end, whose parts may be known by accident."""
_FIGURES = re.compile(r"HISTFAAAA[A-Za-z0-9+/=]+|[oO]+")
"""A histogram of fio (HdrHistogram, base64), and the resident pages that vmtouch draws."""
_HARMLESS = (_NUMBER, _VERSION, _TIME, _STEP, _DISK, _FIGURES)
_FILES = {"py", "rs", "so", "gz"}
_NAMED = re.compile(r"([^.=@]+)\.(?:json|jsonl|log|txt|fio|py|sh|bin|csv|toml)")
"""A file's name with an ending that says what it holds."""
_DOMAIN = re.compile(r"[a-z]{2}|com|org|net|local|lan|internal|corp|home|cloud|example|test|\d+")
_UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_MACHINE_ID = re.compile(r"[0-9a-f]{32}")
_HARDWARE = re.compile(r"(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}")
_OWN_ID = re.compile(r"0{8}-0000-4000-8000-\w{12}|0{24}[0-9a-f]{8}|00:00:5e:00:53:\w\w")
_ID = re.compile(
    rf"(?<![\w-])(?:{_UUID.pattern}|{_HARDWARE.pattern}(?!:)|{_MACHINE_ID.pattern})(?![0-9a-fA-F])"
)
_OWN_ADDRESS = ("192.0.2.", "198.51.100.", "2001:db8::")


def names_in(
    texts: Iterable[str], plan: Document, local: Mapping[str, Collection[str]]
) -> dict[str, str]:
    """Return the kind of each name in texts, and of the `local` ones, by name in lower case.

    A name that is also a word of pagecage's (a host called `random`) is replaced only under its
    key.
    """
    found: dict[str, str] = {}
    hosts, users = {str(plan["host"]), *local["hosts"]}, set(local["users"])
    for text in texts:
        hosts.update(re.findall(r"\"(?:hostname|nodename)\":\s*\"([^\"]+)\"", text))
        users.update(_HOME.findall(text))
    hosts |= {host.partition(".")[0] for host in hosts}
    for kind, names in (("users", users), ("hosts", hosts)):
        found |= {name.lower(): kind for name in names if len(name) >= _SHORTEST}
    known = vocabulary() | _NAMELESS
    return {name: kind for name, kind in found.items() if name not in known}


class Redactor:
    """Redacts one text after another, and counts what it keeps and what it replaces."""

    def __init__(
        self, names: Mapping[str, str], *, is_replay: bool, keep: Collection[str] = ()
    ) -> None:
        """`names` are the kinds of known names; `keep` names the kinds that stay."""
        self._names, self._is_replay, self._keep = names, is_replay, frozenset(keep)
        self._words = vocabulary()
        self._known: dict[tuple[str, str], str] = {}
        self._cache: dict[str, tuple[str, str] | None] = {}
        self._numbers: Counter[str] = Counter()
        self._replaced: Counter[str] = Counter()
        self.kept: Counter[str] = Counter()
        ordered = sorted(map(re.escape, names), key=lambda name: (-len(name), name))
        self._name = re.compile(
            rf"(?<![A-Za-z0-9_])({'|'.join(ordered) or '(?!)'})(?![A-Za-z0-9_])", re.IGNORECASE
        )

    def counts(self) -> list[dict[str, object]]:
        """Return the number of different values replaced, and of places, by kind."""
        return [
            {"kind": kind, "values": self._numbers[kind], "places": count}
            for kind, count in sorted(self._replaced.items())
            if count
        ]

    def value(self, value: Any, key: str = "") -> Any:
        """Return a JSON value with its texts redacted; `key` is that of the value."""
        if key in _VERSION_KEYS:
            return value
        if isinstance(value, dict):
            return {self.text(name): self.value(item, name) for name, item in value.items()}
        if isinstance(value, list) and key in _ARGUMENT_KEYS:
            return [self._argument(word, is_first=n == 0) for n, word in enumerate(value)]
        if isinstance(value, list):
            return [self.value(item, key) for item in value]
        return self._string(value, key) if isinstance(value, str) and value else value

    def _string(self, text: str, key: str) -> str:
        if key == "kernel_command_line":
            words = text.split()
            known = words if "kernel" in self._keep else [w for w in words if _KERNEL.fullmatch(w)]
            self._replaced["kernel"] += len(words) - len(known)
            self._numbers["kernel"] += len(words) - len(known)
            self.kept["kernel"] += len(known)
            return " ".join(known)
        kind = "hosts" if key in _HOST_KEYS else "ids" if _ID_KEYS.fullmatch(key) else ""
        if kind or key == "variable_value":
            return self._replace(kind or "variables", text)
        is_digest = _DIGEST_KEYS.fullmatch(key) and _DIGEST.fullmatch(text)
        if is_digest or (key == "state_id" and STATE_ID.fullmatch(text)):
            self.kept["digests"] += 1
            return text
        return self._command(text) if key == "command" else self.text(text)

    def _command(self, text: str) -> str:
        """Return a command line of which known words stay; behind `--` is the replayed command."""
        try:
            words = shlex.split(text)
        except ValueError:
            return self._replace("arguments", text)
        end = words.index("--") + 1 if "--" in words else 0 if words[:1] != ["pagecage"] else None
        shown: list[str] = []
        for number, word in enumerate(words):
            if end is None or number < end:
                is_value = number > 0 and words[number - 1] in ("-e", "--env")
                option = re.match(r"--env=|-e(?=.)", word)
                start = 0 if is_value else option.end() if option else None
                value = None if start is None else word[:start] + self._variable(word[start:])
                shown.append(self.text(word) if value is None else value)
            else:
                shown.append(self._argument(word, is_first=number == end))
        return shlex.join(shown)

    def _argument(self, word: Any, *, is_first: bool = False) -> Any:
        """Return a word of a trial's command line; of a replay only options and numbers stay."""
        if not isinstance(word, str):
            return self.value(word)
        if not self._is_replay or is_first or _OWN.fullmatch(word):
            return self.text(word)
        if re.fullmatch(r"--?[\w-]+|\{[a-z_]+\}", word) or _NUMBER.fullmatch(word):
            return self.text(word)
        option, equals, value = word.partition("=")
        if equals and option.startswith("-"):
            return f"{self.text(option)}={self._argument(value)}"
        return self._replace("arguments", word)

    def _variable(self, word: str) -> str:
        name, equals, value = word.partition("=")
        return f"{self.text(name)}={self._replace('variables', value)}" if equals else word

    def text(self, text: str) -> str:
        """Return a text with every word replaced that is not known."""
        if self._is_replay and "`" in text:
            text = _QUOTED.sub(lambda match: f"`{self._command(match[1])}`", text)
        if "://" in text:
            text = _URL.sub(lambda match: self._url(match[0]), text)
        if "=" in text:
            text = _ASSIGNED.sub(self._assigned, text)
        text = _ADDRESS.sub(self._identified, _ID.sub(self._identified, text))
        if "/home/" in text or "/Users/" in text:
            text = _HOME.sub(self._home, text)
        if self._names:
            text = self._name.sub(
                lambda match: self._replace(self._names[match[0].lower()], match[0]), text
            )
        return _TOKEN.sub(self._token, text)

    def _assigned(self, match: re.Match[str]) -> str:
        # The value of a variable of make is judged like any word.
        if match[1] in _MAKE_VARIABLES or _NUMBER.fullmatch(match[2]):
            return match[0]
        return f"{match[1]}={self._replace('variables', match[2])}"

    def _identified(self, match: re.Match[str]) -> str:
        kind = self._address(match[0])
        return self._replace(kind, match[0]) if kind else match[0]

    def _home(self, match: re.Match[str]) -> str:
        if match[1] in _NAMELESS:
            return match[0]
        return match[0].removesuffix(match[1]) + self._replace("users", match[1])

    def _url(self, url: str) -> str:
        scheme, _, rest = url.partition("://")
        host = re.split(r"[/:?#]", rest, maxsplit=1)[0]
        if host.lower() in self._words or _OWN.fullmatch(host):
            return url
        return f"{scheme.lower()}://{self._replace('urls', rest)}"

    def _token(self, match: re.Match[str]) -> str:
        token = match[0]
        if token in self._cache:
            judged = self._cache[token]
        elif token[0] == "\\" or (
            not any(map(str.isalpha, token)) and token.count(".") < 3 and token.count(":") < 2
        ):
            return token
        else:
            judged = self._cache[token] = self._judge(token)
        if judged is None:
            self.kept["words"] += 1
            return token
        if "/" in token:
            # An unknown name in a path keeps its ending.
            return "/".join(_TOKEN.sub(self._token, part) for part in token.split("/"))
        kind, part = judged
        return token.replace(part, self._replace(kind, part), 1)

    def _judge(self, token: str) -> tuple[str, str] | None:
        """Return the kind of a token and its part to replace; None if it is harmless."""
        core = token.strip(".:!?=&*#%$^~+")
        if kind := self._address(core):
            return kind, core
        if "://" in core or self._is_known(_OWN.sub("", _OWN_ID.sub("", core))):
            return None
        if "/" not in core and (match := _NAMED.fullmatch(core)):
            return "words", match[1]
        name, equals, value = core.partition("=")
        if equals and value and self._is_known(name):
            return "words", value
        if "@" in core or re.fullmatch(r"[\w-]+(?:\.[\w-]+)+", core):
            return "hosts", core
        return "words", core

    def _address(self, core: str) -> str | None:
        if _HARDWARE.fullmatch(core) or _UUID.fullmatch(core) or _MACHINE_ID.fullmatch(core):
            if _OWN_ID.fullmatch(core):
                return None
            return "addresses" if _HARDWARE.fullmatch(core) else "ids"
        try:
            address = ipaddress.ip_address(core)
        except ValueError:
            return None
        is_own = core.startswith(_OWN_ADDRESS) or address.is_loopback or address.is_unspecified
        return None if is_own else "addresses"

    def _is_known(self, word: str) -> bool:
        core = word.strip(_EDGES)
        if not core or core.lower() in self._words or not any(map(str.isalpha, core)):
            return True
        if any(pattern.fullmatch(core) for pattern in _HARMLESS):
            return True
        if _DATA.search(core):
            return self._is_known(_DATA.sub("", core))
        if re.search(r"[/=:]", core):
            return all(map(self._is_known, re.split(r"[/=:]+", core)))
        if "." in core:
            stem, _, ending = core.rpartition(".")
            if ending in _FILES:
                return self._is_known(stem)
            parts = core.split(".")
            is_domain = _DOMAIN.fullmatch(parts[-1].lower()) and not parts[-1].isdigit()
            return not is_domain and all(map(self._is_known, parts))
        if _HOST_LIKE.fullmatch(core):
            return False
        parts = re.split(r"[_+-]+", core)
        return len(parts) > 1 and all(map(self._is_known, parts))

    def _replace(self, kind: str, value: str) -> str:
        if kind in self._keep or not value:
            self.kept[kind] += 1
            return value
        if _OWN.fullmatch(value) or _OWN_ID.fullmatch(value):
            return value
        self._replaced[kind] += 1
        if (kind, value) not in self._known:
            self._numbers[kind] += 1
            self._known[kind, value] = _replacement(kind, value, self._numbers[kind])
        return self._known[kind, value]


_NAMES = {"words": "word", "hosts": "host", "urls": "url", "arguments": "argument", "ids": "id"}


def _replacement(kind: str, value: str, number: int) -> str:
    if kind == "users":
        return "user" if number == 1 else f"user-{number}"
    if kind == "variables":
        return f"value-{number}"
    if kind == "addresses" and _HARDWARE.fullmatch(value):
        return f"00:00:5e:00:53:{number % 256:02x}"
    if kind == "addresses":
        return f"2001:db8::{number:x}" if ":" in value else f"192.0.2.{number % 256}"
    if _UUID.fullmatch(value):
        return f"{0:08}-0000-4000-8000-{number:012x}"
    return f"{number:032x}" if _MACHINE_ID.fullmatch(value) else f"{_NAMES[kind]}-{number}"
