"""Reader for the keys that records and facts had in format version 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_CAGE_KEYS = {"carried": "fidelity", "limited": "driver_cgroup", "outside": "external"}
_EXIT_KEYS = {"said": "stderr_tail", "is_programs_own": "ended_by_itself", "outside": "escaped"}
_FIDELITY_KEYS = {"what": "aspect", "because": "reason"}
_QUEUE_KEYS = {"knobs": "queue_settings"}


def upgrade_record(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record of version 1 with the keys of version 2.

    Values of unexpected types stay unchanged.
    """
    new = {**data, "record_version": 2}
    for section, keys in (("cage", _CAGE_KEYS), ("exit", _EXIT_KEYS), ("device", _QUEUE_KEYS)):
        if section in new:
            new[section] = _renamed(new[section], keys)
    if isinstance(new.get("cage"), Mapping) and "fidelity" in new["cage"]:
        new["cage"]["fidelity"] = _each(new["cage"]["fidelity"], _FIDELITY_KEYS)
    if "missed_requirements" in new:
        missed = _each(new["missed_requirements"], {"mend": "hint"})
        new["missed_requirements"] = _values_renamed(missed, "requirement")
    if "phases" in new:
        new["phases"] = _values_renamed(new["phases"], "name")
    if "phase" in new:
        new["phase"] = (
            _QUEUE_KEYS.get(new["phase"], new["phase"])
            if isinstance(new["phase"], str)
            else new["phase"]
        )
    return new


def upgrade_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return facts of a host with today's keys. Facts have no version."""
    return (
        {**facts, "disk": _renamed(facts["disk"], _QUEUE_KEYS)} if "disk" in facts else dict(facts)
    )


def _renamed(section: Any, keys: Mapping[str, str]) -> Any:
    if not isinstance(section, Mapping):
        return section
    return {keys.get(key, key): value for key, value in section.items()}


def _each(rows: Any, keys: Mapping[str, str]) -> Any:
    return [_renamed(row, keys) for row in rows] if isinstance(rows, list) else rows


def _values_renamed(rows: Any, key: str) -> Any:
    """Return the rows with the value `knobs` of `key` replaced by `queue_settings`."""
    if not isinstance(rows, list):
        return rows
    return [
        {**row, key: "queue_settings"}
        if isinstance(row, Mapping) and row.get(key) == "knobs"
        else row
        for row in rows
    ]
