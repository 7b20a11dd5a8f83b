"""Cages as JSON data, for plans, hosts and records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pagecage.model import json_codec
from pagecage.model.cage import Cage

_CLOUD = ("volume", "burst", "accounting", "latency", "simulation")


def cage_to_json(cage: Cage) -> dict[str, Any]:
    """Return the cage as JSON data for plans and hosts. Missing parts are null."""
    return dict(json_codec.to_json(cage))


def cage_from_json(data: Mapping[str, Any]) -> Cage:
    """Return the cage of JSON data. Plans of older versions lack some keys.

    Raises PagecageError for an unknown key.
    """
    cage: Cage = json_codec.from_json(Cage, data, "cage")
    return cage


def cloud_to_json(cage: Cage) -> dict[str, Any]:
    """Return the cloud's parts of the cage for the record, without those that are None."""
    parts = {name: getattr(cage, name) for name in _CLOUD}
    return {name: json_codec.to_json(part) for name, part in parts.items() if part}
