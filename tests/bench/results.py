"""What was measured, in build/bench.json: written after each figure, so that an interruption costs only the next."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.bench.bed import Figure


class Results:
    """The figures of each part, with when and where they were measured. Parts measured earlier stay."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._parts: dict[str, dict[str, Any]] = _earlier(path)
        self.count = 0

    def begin(self, part: str, harness: Mapping[str, Any]) -> None:
        """A part begins: what was measured of it earlier is replaced with its first figure."""
        self._entry: dict[str, Any] = {"complete": False, "harness": harness, "figures": []}
        self._name = part

    def add(self, figure: Figure, about: Mapping[str, Any]) -> None:
        """One figure, and the host that it was measured on."""
        self._entry |= {**about, "unix_seconds": time.time()}
        self._entry["figures"].append(asdict(figure))
        self._parts[self._name] = self._entry
        self.count += 1
        self._write()

    def complete(self) -> None:
        """The part has all its figures."""
        self._entry["complete"] = True
        self._write()

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        aside = self._path.with_suffix(".part")
        aside.write_text(json.dumps({"parts": self._parts}, indent=1) + "\n")
        aside.replace(self._path)


def _earlier(path: Path) -> dict[str, dict[str, Any]]:
    """Parts of an earlier benchmark; none where there was none, or one of another form."""
    try:
        return dict(json.loads(path.read_text())["parts"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}
