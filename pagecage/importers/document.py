"""A file as text, as JSON or YAML, or as systemd's lines: told apart by content, not by name."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import yaml

from pagecage.errors import PagecageError, why_unreadable

_SECTION = re.compile(r"^\[[A-Z][A-Za-z-]*\]\s*$", re.MULTILINE)
_PROPERTY = re.compile(r"^[A-Z][A-Za-z0-9]*=")
_MOST_BYTES = 64 << 20
KNOWN = (
    "kubectl get pod -o yaml (or json), docker inspect, a docker compose file, systemctl show, systemctl cat "
    "or a unit file, aws ec2 describe-volumes, gcloud compute disks describe, az disk show, and pcprobe's JSON"
)
_AGAIN = f"export it again; what can be read is {KNOWN}"


@dataclass(frozen=True)
class Document:
    """`tree` is what JSON or YAML holds; None where the text is systemd's."""

    text: str
    tree: Any = None

    @property
    def is_unit(self) -> bool:
        """Whether it has a unit file's sections (systemd.syntax(7))."""
        return self.tree is None and _SECTION.search(self.text) is not None

    @property
    def is_properties(self) -> bool:
        """Whether every line is a property, as `systemctl show` prints them."""
        lines = [line for line in self.text.splitlines() if line.strip()]
        return self.tree is None and bool(lines) and all(_PROPERTY.match(line) for line in lines)


def read_document(text: str, name: str) -> Document:
    """Raises PagecageError for an empty file, and for broken JSON or YAML with the line where it breaks."""
    if len(text) > _MOST_BYTES:
        raise PagecageError(f"{name} is larger than any description of limits", f"one of: {KNOWN}")
    if not text.strip():
        raise PagecageError(f"{name} is empty", f"give it the output of one of: {KNOWN}")
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
        raise PagecageError(f"{name}: broken JSON in line {error.lineno}: {error.msg}", _AGAIN) from None
    except (RecursionError, ValueError) as error:
        raise PagecageError(f"{name}: broken JSON: {why_unreadable(error)}", _AGAIN) from None


def _yaml(text: str, name: str) -> Any:
    """One document, or all of several as a list."""
    try:
        trees = [tree for tree in yaml.safe_load_all(text) if tree is not None]
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise PagecageError(f"{name}: broken YAML in line {line}: {error.problem}", _AGAIN) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise PagecageError(f"{name}: broken YAML: {' '.join(str(error).split())}", _AGAIN) from None
    if not trees:
        raise PagecageError(f"{name} is empty", f"give it the output of one of: {KNOWN}")
    return trees[0] if len(trees) == 1 else trees


def table(tree: Any, *path: str) -> dict[str, Any]:
    """The table at a path within a tree; empty where there is none."""
    for key in path:
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree if isinstance(tree, dict) else {}


def rows(tree: Any) -> list[dict[str, Any]]:
    """The tables of a list; of a single table itself."""
    found = tree if isinstance(tree, list) else [tree]
    return [row for row in found if isinstance(row, dict)]
