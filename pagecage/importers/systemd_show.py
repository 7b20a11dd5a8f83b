"""`systemctl show UNIT...`: properties with plain numbers, units parted by an empty line (systemctl(1))."""

from __future__ import annotations

from pagecage.importers.document import Document
from pagecage.importers.quantities import NO_LIMIT
from pagecage.importers.result import ImportResult, Selection
from pagecage.importers.systemd_properties import BLOCK, OLDER, UnitProperties, imported, pick_unit

# Shown under another name than the one it is set by.
_SHOWN = {"CPUQuotaPerSecUSec": "CPUQuota", "IODeviceLatencyTargetUSec": "IODeviceLatencyTargetSec"}
_NOT_SET = ("", "infinity", "[not set]", str(NO_LIMIT), "no", "auto")
_ZERO_IS_NOTHING = ("MemoryMin", "MemoryLow")
_ALWAYS_SET = ("TasksMax",)
_LIMITS = {"MemoryMax", "MemorySwapMax", "CPUQuotaPerSecUSec", "MemoryCurrent", *OLDER, *BLOCK}


def recognise(document: Document) -> bool:
    """Whether it is a list of properties with a unit's limits among them."""
    keys = {line.partition("=")[0] for line in document.text.splitlines()} if document.is_properties else set[str]()
    return bool(keys & _LIMITS)


def read(document: Document, picks: Selection) -> ImportResult:
    """The limits of one unit. What was not set is not told: systemd prints every property it knows."""
    units: dict[str, UnitProperties] = {}
    for number, block in enumerate(document.text.strip().replace("\r\n", "\n").split("\n\n"), 1):
        lines = [line.partition("=")[::2] for line in block.splitlines() if "=" in line]
        name = dict(lines).get("Id") or f"unit {number}"
        units[name] = _properties(lines)
    return imported(pick_unit(units, picks), "systemctl show", picks)


def _properties(lines: list[tuple[str, str]]) -> UnitProperties:
    """What was set; where an older name stands beside the newer one, the newer one counts."""
    told = [(_SHOWN.get(key, key), value) for key, value in lines if _is_set(key, value)]
    names = {key for key, _ in told}
    properties = UnitProperties()
    for key, value in told:
        if OLDER.get(key) not in names:
            properties.assign(key, value)
    return properties


def _is_set(key: str, value: str) -> bool:
    if key == "MemorySwapMax":
        return value != ""
    return value not in _NOT_SET and key not in _ALWAYS_SET and not (value == "0" and key in _ZERO_IS_NOTHING)
