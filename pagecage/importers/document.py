"""Customers' files as text, parsed by content: JSON, YAML, or lines of systemd."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from pagecage.errors import PagecageError, why_unreadable

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
    """Parse a file.

    Raises PagecageError if it is empty, or with the line if it is not valid JSON or YAML.
    """
    if len(text) > MOST_BYTES:
        raise PagecageError(
            f"{name} is larger than {MOST_BYTES >> 20} MiB", f"give the output of {KNOWN}"
        )
    if not text.strip():
        raise PagecageError(f"{name} is empty", f"give the output of {KNOWN}")
    if text.lstrip()[0] in "{[" and not _SECTION.match(text.lstrip()):
        return Document(text, _json(text, name))
    systemd = Document(text)
    if systemd.is_unit or systemd.is_properties:
        return systemd
    return Document(text, _yaml(text, name))


def _json(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise PagecageError(
            f"{name}: invalid JSON in line {error.lineno}: {error.msg}", _EXPORT_AGAIN
        ) from None
    except (RecursionError, ValueError) as error:
        raise PagecageError(
            f"{name}: invalid JSON: {why_unreadable(error)}", _EXPORT_AGAIN
        ) from None


def _yaml(text: str, name: str) -> Any:
    """Return the document, or a list of all documents if there are several."""
    import yaml  # imported late: `pagecage verify` runs with Python's standard library alone

    try:
        trees = [tree for tree in yaml.safe_load_all(text) if tree is not None]
        values = _values(trees, {})
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise PagecageError(
            f"{name}: invalid YAML in line {line}: {error.problem}", _EXPORT_AGAIN
        ) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise PagecageError(
            f"{name}: invalid YAML: {' '.join(str(error).split())}", _EXPORT_AGAIN
        ) from None
    if values > _MOST_VALUES:
        raise PagecageError(f"{name} has too many values by its references", _EXPORT_AGAIN)
    if not trees:
        raise PagecageError(f"{name} is empty", f"give the output of {KNOWN}")
    return trees[0] if len(trees) == 1 else trees


def _values(tree: Any, counted: dict[int, int]) -> int:
    """Return the number of values in a tree, each as often as it is referred to.

    A tree within itself raises ValueError.
    """
    if not isinstance(tree, (dict, list)):
        return 1
    if id(tree) not in counted:
        counted[id(tree)] = -1
        items = [*tree, *tree.values()] if isinstance(tree, dict) else tree
        counted[id(tree)] = 1 + sum(_values(item, counted) for item in items)
    if counted[id(tree)] < 0:
        raise ValueError("a value refers to itself")
    return counted[id(tree)]


def table(tree: Any, *path: str) -> dict[str, Any]:
    """Return the table at a path within a tree; an empty one if there is none."""
    for key in path:
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree if isinstance(tree, dict) else {}


def rows(tree: Any) -> list[dict[str, Any]]:
    """Return the tables of a list, or a single table as a list."""
    items = tree if isinstance(tree, list) else [tree]
    return [row for row in items if isinstance(row, dict)]
