"""A unit file, or `systemctl cat UNIT`: the file and its drop-ins in the order they apply (systemd.syntax(7))."""

from __future__ import annotations

import re

from pagecage.importers.document import Document
from pagecage.importers.result import ImportResult, Selection
from pagecage.importers.systemd_properties import UnitProperties, imported, pick_unit

_WITH_LIMITS = ("Service", "Slice", "Scope", "Socket", "Mount", "Swap")
_SECTION = re.compile(r"^\[([A-Za-z-]+)\]$")
_FILE = re.compile(r"^# (/\S.*)$")
_UNIT = re.compile(r"/([^/]+\.(?:service|slice|scope|socket|mount|swap))(?:\.d/[^/]+\.conf)?$")


def recognise(document: Document) -> bool:
    """Whether it has a unit file's sections."""
    return document.is_unit


def read(document: Document, picks: Selection) -> ImportResult:
    """The limits of one unit. A later assignment replaces an earlier one, an empty one takes it back."""
    units: dict[str, UnitProperties] = {}
    name, section = "the unit", ""
    for line in _joined(document.text):
        if found := _FILE.match(line):
            unit = _UNIT.search(found[1])
            name = unit[1] if unit else name
        elif found := _SECTION.match(line):
            section = found[1]
        elif section in _WITH_LIMITS and "=" in line and not line.startswith(("#", ";")):
            key, _, value = line.partition("=")
            units.setdefault(name, UnitProperties()).assign(key.strip(), value.strip())
    units = units or {name: UnitProperties()}
    return imported(pick_unit(units, picks), "a systemd unit", picks)


def _joined(text: str) -> list[str]:
    """Lines without blanks around them; a backslash at the end joins the next one, past comments between."""
    lines: list[str] = []
    open_line = ""
    for raw in text.splitlines():
        line = raw.strip()
        if open_line and line.startswith(("#", ";")):
            continue
        line = open_line + line
        open_line = ""
        if line.endswith("\\") and not line.startswith("#"):
            open_line = line[:-1] + " "
        elif line:
            lines.append(line)
    return [*lines, open_line.strip()] if open_line.strip() else lines
