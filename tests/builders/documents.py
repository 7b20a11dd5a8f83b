"""Commands and keys in documents, and keys of records."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from pagecage.model.record import record_to_json
from tests.fixtures.records import make_record
from tests.tree import ROOT

FORMAT = (ROOT / "docs/FORMAT.md").read_text()
FENCED = re.compile(r"^(?:```|~~~)[^\n]*\n(.*?)^(?:```|~~~)", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^\n)((?: {4} *\S[^\n]*\n)+)", re.MULTILINE)


def shown(text: str) -> Iterator[str]:
    """Yield lines of a document's code blocks, without prompts, comments and continuations."""
    for block in [*FENCED.findall(text), *INDENTED.findall(text)]:
        for line in block.replace("\\\n", " ").splitlines():
            yield line.strip().removeprefix("$ ")


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
