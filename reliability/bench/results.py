"""Figures on standard output, and in build/bench.json after each of them."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from reliability.bench.bed import Figure


def show(figure: Figure) -> None:
    sys.stdout.write(line(figure) + "\n")
    sys.stdout.flush()


def line(figure: Figure) -> str:
    """Format a figure as a line: ratio, interval if there is one, aim, and its parts."""
    interval = f"[{figure.low:.3f}, {figure.high:.3f}]" if figure.samples > 1 else ""
    mark = "" if figure.met else "  MISSED"
    return (
        f"{figure.name:<30} {figure.ratio:7.3f} {interval:<17} aim: {figure.aim:<25}"
        f" {figure.says}{mark}"
    )


class Results:
    """The figures of each part, with time and host. Parts measured earlier stay."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._parts: dict[str, dict[str, Any]] = _earlier(path)
        self.count = 0

    def begin(self, part: str, harness: Mapping[str, Any]) -> None:
        """Begin a part; its first figure replaces its earlier ones."""
        self._entry: dict[str, Any] = {"complete": False, "harness": harness, "figures": []}
        self._name = part

    def add(self, figure: Figure, about: Mapping[str, Any]) -> None:
        self._entry |= {**about, "unix_seconds": time.time()}
        self._entry["figures"].append(asdict(figure))
        self._parts[self._name] = self._entry
        self.count += 1
        self._write()

    def complete(self) -> None:
        self._entry["complete"] = True
        self._write()

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        aside = self._path.with_suffix(".part")
        aside.write_text(json.dumps({"parts": self._parts}, indent=1) + "\n")
        aside.replace(self._path)


def _earlier(path: Path) -> dict[str, dict[str, Any]]:
    """Return the parts of an earlier benchmark; empty if there is none or its format differs."""
    try:
        return dict(json.loads(path.read_text())["parts"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}
