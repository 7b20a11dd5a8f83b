"""Sizes, rates and times as other tools write them.

The same suffix means different things in each tool.

| written  | Kubernetes      | Docker    | systemd, memory | systemd, I/O |
|----------|-----------------|-----------|-----------------|--------------|
| `128M`   | 128 * 1000**2   | 128 MiB   | 128 MiB         | 128 * 1000**2 |
| `128Mi`  | 128 MiB         | 128 MiB   | refused         | refused      |
| `128m`   | 0.128           | 128 MiB   | refused         | refused      |

Sources: `resource.Quantity` of Kubernetes' apimachinery, `RAMInBytes` of Docker's go-units, and
`parse_size()` and `parse_sec()` of systemd (src/basic). Each function raises PagecageError with the
text that it cannot read.
"""

from __future__ import annotations

import re
from decimal import Decimal, DecimalException

from pagecage.errors import PagecageError

_NUMBER = r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+"
_KUBERNETES = re.compile(
    rf"^([+-]?(?:{_NUMBER}))(?:([KMGTPE]i|[numkMGTPE])|[eE]([+-]?[0-9]{{1,3}}))?$"
)
_DOCKER = re.compile(r"^([0-9]+(?:\.[0-9]+)*) ?([kKmMgGtTpP])?[iI]?[bB]?$")
_SYSTEMD_PART = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([EPTGMKB]?)")
_SYSTEMD_TIME = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)")
_POWERS = {"": 0, "B": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_FRACTIONS = {"n": -3, "u": -2, "m": -1, "k": 1}
_SECONDS: dict[str, Decimal] = {
    "us": Decimal("0.000001"),
    "usec": Decimal("0.000001"),
    "ms": Decimal("0.001"),
    "msec": Decimal("0.001"),
    **dict.fromkeys(("", "s", "sec", "second", "seconds"), Decimal(1)),
    **dict.fromkeys(("m", "min", "minute", "minutes"), Decimal(60)),
    **dict.fromkeys(("h", "hr", "hour", "hours"), Decimal(3600)),
    **dict.fromkeys(("d", "day", "days"), Decimal(86400)),
}
NO_LIMIT = 2**64 - 1  # infinity as a number of systemd
_LARGEST = 2**63


def _refusal(text: object, kind: str) -> PagecageError:
    return PagecageError(
        f"{text!r} is not a {kind}", "export the file again with the tool that made it"
    )


def kubernetes_quantity(value: object) -> Decimal:
    """Return a Kubernetes quantity as a number: "128Mi", "0.5", "500m" (thousandths), "1e9", 2."""
    match = _KUBERNETES.match(str(value).strip()) if not isinstance(value, bool) else None
    if match is None:
        raise _refusal(value, "quantity of Kubernetes")
    number, suffix, exponent = Decimal(match[1]), match[2] or "", match[3]
    if exponent:
        return number.scaleb(int(exponent))
    if suffix.endswith("i"):
        return number * Decimal(1024) ** _POWERS[suffix[0]]
    return number * Decimal(1000) ** _FRACTIONS.get(suffix, _POWERS.get(suffix, 0))


def whole_bytes(number: Decimal) -> int:
    """Return a quantity as bytes, rounded up as in Kubernetes; from 0 to 2**63 - 1."""
    if not 0 <= number < _LARGEST:
        raise _refusal(str(number), "number of bytes")
    return int(number.to_integral_value(rounding="ROUND_CEILING"))


def docker_bytes(value: object) -> int:
    """Return a size of Docker or Compose in bytes; every suffix is a power of 1024."""
    text = str(value).strip()
    match = _DOCKER.match(text) if not isinstance(value, bool) else None
    try:
        count = Decimal(match[1]) * 1024 ** _POWERS[(match[2] or "").upper()] if match else None
    except DecimalException:
        count = None
    if count is None or count >= _LARGEST:
        raise _refusal(value, "size of Docker")
    return int(count)


def systemd_bytes(text: str, base: int) -> int | None:
    """Return a size of systemd in bytes; None for infinity.

    `base` is 1024 for memory and 1000 for I/O limits. As in systemd, parts add up ("1G 500M"),
    suffixes are single capitals, and "125Mi" is refused.
    """
    if text.strip() == "infinity" or text.strip() == str(NO_LIMIT):
        return None
    parts = [(Decimal(number), suffix) for number, suffix in _parts(_SYSTEMD_PART, text)]
    total = sum((number * base ** _POWERS[suffix] for number, suffix in parts), Decimal())
    if not parts or total >= _LARGEST:
        raise _refusal(text, "size of systemd")
    return int(total)


def systemd_seconds(text: str) -> Decimal | None:
    """Return a time span such as "1s 500ms" in seconds; None for infinity (systemd.time(7))."""
    if text.strip() == "infinity":
        return None
    parts = _parts(_SYSTEMD_TIME, text)
    if not parts or any(unit not in _SECONDS for _, unit in parts):
        raise _refusal(text, "time span of systemd")
    return sum((Decimal(number) * _SECONDS[unit] for number, unit in parts), Decimal())


def _parts(pattern: re.Pattern[str], text: str) -> list[tuple[str, str]]:
    """Return number and unit of every part; an empty list if a part does not match."""
    rest, parts = text.strip(), []
    while rest:
        match = pattern.match(rest)
        if match is None:
            return []
        parts.append((match[1], match[2]))
        rest = rest[match.end() :].lstrip()
    return parts


def cpu_percent(cpus: Decimal) -> int:
    """Return the CPUQuota of a number of CPUs, in whole percent of one CPU and at least 1."""
    if not 0 < cpus < 100_000:
        raise _refusal(str(cpus), "number of CPUs")
    return max(1, round(cpus * 100))


def plain(number: Decimal) -> str:
    """Format a number without an exponent and without trailing zeros."""
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
