"""Keys in documents and records."""

from __future__ import annotations

import json
import re

from pagecage.model.record import record_to_json
from tests.fixtures.records import make_record
from tests.tree import ROOT

FORMAT = (ROOT / "docs/FORMAT.md").read_text()


def keys(cells: list[str]) -> set[str]:
    return {
        key for cell in cells for name in re.findall(r"`([^`]+)`", cell) for key in name.split()
    }


def as_line(**changes: object) -> dict[str, object]:
    """Return a record as in its file."""
    line: dict[str, object] = json.loads(json.dumps(record_to_json(make_record(**changes))))
    line["device"] = {
        "name": "vdb",
        "maj_min": "254:16",
        "queue_settings": {"read_ahead_kb": "128"},
    }
    return {**line, "measured": None, "counters": {}, "outer_host": None, **changes}
