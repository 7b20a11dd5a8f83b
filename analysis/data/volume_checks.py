"""Stored checks of simulated volumes: the output of `pagecage volume check NAME --json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagecage.errors import PagecageError
from pagecage.model.cage import Cage
from pagecage.model.cage_json import cage_from_json

SUFFIX = ".check.json"


@dataclass(frozen=True)
class VolumeCheck:
    """One check: the cage of the volume, the results by load, and those of its credit buckets."""

    name: str
    cage: Cage
    loads: tuple[Mapping[str, Any], ...]
    credits: tuple[Mapping[str, Any], ...]


def read_checks(folder: Path) -> list[VolumeCheck]:
    """Read all checks of a folder, by name. Raises PagecageError for a file that is none."""
    return [_read(path) for path in sorted(folder.glob(f"*{SUFFIX}"))]


def _read(path: Path) -> VolumeCheck:
    try:
        data = json.loads(path.read_text())
        loads, credits_ = tuple(data["loads"]), tuple(data["credits"])
        return VolumeCheck(
            path.name.removesuffix(SUFFIX), cage_from_json(data["cage"]), loads, credits_
        )
    except (OSError, ValueError, LookupError, TypeError) as error:
        hint = f"pagecage volume check NAME --json > {path}"
        raise PagecageError(f"{path} is not a check of a volume: {error}", hint) from None
