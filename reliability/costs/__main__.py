"""Collects what the benches measured into docs/trust/costs.json: `python -m reliability.costs`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reliability.bench.bed import scratch
from reliability.campaign import RESULTS, read_results, write_results

_WHOLE = ("peers", "growth", "reports", "fleets", "sampler")
_LINES = ("guest", "natively")


def collected(top: Path, stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stored results, with those replaced that a bench has measured since."""
    found = dict(stored)
    for name in _WHOLE:
        if (path := top / f"{name}.json").exists():
            found[name] = json.loads(path.read_text())
    observers = dict(found.get("observers", {}))
    for place in _LINES:
        if (path := top / f"observers-{place}.jsonl").exists():
            observers[place] = [*map(json.loads, path.read_text().splitlines())]
    return found | {"observers": observers}


def main() -> None:
    path = RESULTS / "costs.json"
    write_results(path, collected(scratch(), read_results(path, {})))


if __name__ == "__main__":
    main()
