"""Documents of JSON and YAML that come from elsewhere, and their quantities."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from decimal import Decimal, DecimalException
from typing import Any

from pagecage.errors import PagecageError, why_unreadable

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


_SECTION = re.compile(r"^\[[A-Z][A-Za-z-]*\]\s*$", re.MULTILINE)
_PROPERTY = re.compile(r"^[A-Z][A-Za-z0-9]*=")
MOST_BYTES = 64 << 20
"""The longest file that is read."""
_MOST_VALUES = 10_000_000
KNOWN = (
    "kubectl get pod -o yaml (or json), docker inspect, a docker compose file, systemctl show,"
    " systemctl cat or a unit file, aws ec2 describe-volumes, nvme amzn stats -o json, gcloud"
    " compute disks describe, az disk show, and pcprobe's JSON"
)
_EXPORT_AGAIN = f"export it again; pagecage can read the output of {KNOWN}"
Table = dict[str, Any]
"""A table of a customer's file, with the keys of the tool that wrote it."""


@dataclass(frozen=True)
class Document:
    """A file; `tree` is its JSON or YAML data, or None for the formats of systemd."""

    text: str
    tree: Any = None

    @property
    def is_unit(self) -> bool:
        """True if it has the sections of a unit file (systemd.syntax(7))."""
        return self.tree is None and _SECTION.search(self.text) is not None

    @property
    def is_properties(self) -> bool:
        """True if every line is a property, as `systemctl show` prints them."""
        lines = [line for line in self.text.splitlines() if line.strip()]
        return self.tree is None and bool(lines) and all(_PROPERTY.match(line) for line in lines)


def read_document(text: str, name: str) -> Document:
    """Parse a file. Raises PagecageError with the line if it is not valid JSON or YAML."""
    if len(text) > MOST_BYTES:
        reason = f"{name} is larger than {MOST_BYTES >> 20} MiB"
        raise PagecageError(reason, f"give the output of {KNOWN}")
    if not text.strip():
        raise PagecageError(f"{name} is empty", f"give the output of {KNOWN}")
    if text.lstrip()[0] in "{[" and not _SECTION.match(text.lstrip()):
        try:
            return Document(text, json.loads(text))
        except json.JSONDecodeError as error:
            where = f"{name}: invalid JSON in line {error.lineno}: {error.msg}"
        except (RecursionError, ValueError) as error:
            where = f"{name}: invalid JSON: {why_unreadable(error)}"
        raise PagecageError(where, _EXPORT_AGAIN)
    systemd = Document(text)
    if systemd.is_unit or systemd.is_properties:
        return systemd
    return Document(text, _yaml(text, name))


def _yaml(text: str, name: str) -> Any:
    """Return the document, or a list of all documents if there are several."""
    import yaml  # imported late: `pagecage inspect` runs with Python's standard library alone

    try:
        trees = [tree for tree in yaml.safe_load_all(text) if tree is not None]
        values = _values(trees, {})
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        reason = f"{name}: invalid YAML in line {line}: {error.problem}"
        raise PagecageError(reason, _EXPORT_AGAIN) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = f"{name}: invalid YAML: {' '.join(str(error).split())}"
        raise PagecageError(reason, _EXPORT_AGAIN) from None
    if values > _MOST_VALUES:
        raise PagecageError(f"{name} has too many values by its references", _EXPORT_AGAIN)
    if not trees:
        raise PagecageError(f"{name} is empty", f"give the output of {KNOWN}")
    return trees[0] if len(trees) == 1 else trees


def _values(tree: Any, counted: dict[int, int]) -> int:
    """Return the number of values in a tree, each as often as it is referred to."""
    if not isinstance(tree, (dict, list)):
        return 1
    if id(tree) not in counted:
        counted[id(tree)] = -1
        items = [*tree, *tree.values()] if isinstance(tree, dict) else tree
        counted[id(tree)] = 1 + sum(_values(item, counted) for item in items)
    if counted[id(tree)] < 0:
        raise ValueError("a value refers to itself")
    return counted[id(tree)]


def table(tree: Any, *path: str) -> Table:
    """Return the table at a path within a tree; an empty one if there is none."""
    for key in path:
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree if isinstance(tree, dict) else {}


def rows(tree: Any) -> list[Table]:
    """Return the tables of a list, or a single table as a list."""
    items = tree if isinstance(tree, list) else [tree]
    return [row for row in items if isinstance(row, dict)]
