"""How other tools write sizes, rates and times. The same letter means different things in each of them.

| written  | Kubernetes      | Docker    | systemd, memory | systemd, I/O |
|----------|-----------------|-----------|-----------------|--------------|
| `128M`   | 128 * 1000**2   | 128 MiB   | 128 MiB         | 128 * 1000**2 |
| `128Mi`  | 128 MiB         | 128 MiB   | refused         | refused      |
| `128m`   | 0.128           | 128 MiB   | refused         | refused      |

Sources: Kubernetes' apimachinery `resource.Quantity`; Docker's go-units `RAMInBytes`; systemd's `parse_size()` and
`parse_sec()` (src/basic). Each function raises PagecageError naming what it was given.
"""

from __future__ import annotations

import re
from decimal import Decimal, DecimalException

from pagecage.errors import PagecageError

_NUMBER = r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+"
_KUBERNETES = re.compile(rf"^([+-]?(?:{_NUMBER}))(?:([KMGTPE]i|[numkMGTPE])|[eE]([+-]?[0-9]{{1,3}}))?$")
_DOCKER = re.compile(r"^([0-9]+(?:\.[0-9]+)*) ?([kKmMgGtTpP])?[iI]?[bB]?$")
_SYSTEMD_PART = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([EPTGMKB]?)")
_SYSTEMD_TIME = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)")
_POWERS = {"": 0, "B": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_FRACTIONS = {"n": -3, "u": -2, "m": -1, "k": 1}
_SECONDS: dict[str, Decimal] = {
    "us": Decimal("0.000001"), "usec": Decimal("0.000001"), "ms": Decimal("0.001"), "msec": Decimal("0.001"),
    **dict.fromkeys(("", "s", "sec", "second", "seconds"), Decimal(1)),
    **dict.fromkeys(("m", "min", "minute", "minutes"), Decimal(60)),
    **dict.fromkeys(("h", "hr", "hour", "hours"), Decimal(3600)),
    **dict.fromkeys(("d", "day", "days"), Decimal(86400)),
}  # fmt: skip
NO_LIMIT = 2**64 - 1  # how systemd shows infinity as a number
_LARGEST = 2**63


def _refuse(text: object, what: str) -> PagecageError:
    return PagecageError(f"{text!r} is no {what}", "export the file anew, with the tool that made it")


def kubernetes_quantity(value: object) -> Decimal:
    """A Kubernetes quantity as a plain number: "128Mi", "0.5", "500m" (thousandths), "1e9", 2."""
    match = _KUBERNETES.match(str(value).strip()) if not isinstance(value, bool) else None
    if match is None:
        raise _refuse(value, "quantity as Kubernetes writes it")
    number, suffix, exponent = Decimal(match[1]), match[2] or "", match[3]
    if exponent:
        return number.scaleb(int(exponent))
    if suffix.endswith("i"):
        return number * Decimal(1024) ** _POWERS[suffix[0]]
    return number * Decimal(1000) ** _FRACTIONS.get(suffix, _POWERS.get(suffix, 0))


def whole_bytes(number: Decimal) -> int:
    """Bytes of a quantity, rounded up as Kubernetes does; none below zero and none beyond 63 bits."""
    if not 0 <= number < _LARGEST:
        raise _refuse(str(number), "number of bytes")
    return int(number.to_integral_value(rounding="ROUND_CEILING"))


def docker_bytes(value: object) -> int:
    """Bytes as Docker and Compose read them: every suffix is a power of 1024, a plain number is bytes."""
    text = str(value).strip()
    match = _DOCKER.match(text) if not isinstance(value, bool) else None
    try:
        count = Decimal(match[1]) * 1024 ** _POWERS[(match[2] or "").upper()] if match else None
    except DecimalException:
        count = None
    if count is None or count >= _LARGEST:
        raise _refuse(value, "size as Docker writes it")
    return int(count)


def systemd_bytes(text: str, base: int) -> int | None:
    """Bytes as systemd reads them, None for infinity. `base` is 1024 for memory and 1000 for I/O limits.

    Parts add up ("1G 500M"), suffixes are single capitals, and "125Mi" is refused, as systemd does.
    """
    if text.strip() == "infinity" or text.strip() == str(NO_LIMIT):
        return None
    parts = [(Decimal(number), suffix) for number, suffix in _parts(_SYSTEMD_PART, text)]
    total = sum((number * base ** _POWERS[suffix] for number, suffix in parts), Decimal())
    if not parts or total >= _LARGEST:
        raise _refuse(text, "size as systemd writes it")
    return int(total)


def systemd_seconds(text: str) -> Decimal | None:
    """Seconds of a time span such as "1s 500ms", None for infinity (systemd.time(7))."""
    if text.strip() == "infinity":
        return None
    parts = _parts(_SYSTEMD_TIME, text)
    if not parts or any(unit not in _SECONDS for _, unit in parts):
        raise _refuse(text, "time span as systemd writes it")
    return sum((Decimal(number) * _SECONDS[unit] for number, unit in parts), Decimal())


def _parts(pattern: re.Pattern[str], text: str) -> list[tuple[str, str]]:
    """Number and unit of every part; nothing where anything is left over."""
    rest, parts = text.strip(), []
    while rest:
        match = pattern.match(rest)
        if match is None:
            return []
        parts.append((match[1], match[2]))
        rest = rest[match.end() :].lstrip()
    return parts


def cpu_percent(cpus: Decimal) -> int:
    """CPUQuota of a number of CPUs, in whole percent of one CPU as a cage has it, and at least one."""
    if not 0 < cpus < 100_000:
        raise _refuse(str(cpus), "number of CPUs")
    return max(1, round(cpus * 100))


def plain(number: Decimal) -> str:
    """A decimal number for people, without an exponent and without zeros at its end."""
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
