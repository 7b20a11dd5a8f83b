"""Keys of a probe's JSON in docs/FORMAT.md, compared with a real one."""

from __future__ import annotations

import json
import re

from tests.builders.documents import FORMAT, keys
from tests.tree import ROOT


def test_a_probes_keys_are_as_documented() -> None:
    probe = json.loads((ROOT / "tests/fixtures/imports/probe.json").read_text())
    section = FORMAT.split("## probe.json\n", 1)[1].split("\n## ", 1)[0]
    rows = [
        line.strip("|").split("|", 1) for line in section.splitlines() if line.startswith("| `")
    ]
    documented = keys([first for first, _ in rows])
    assert documented == set(probe) | set(probe["summary"])
    reported = {first.strip(): rest for first, rest in rows}
    for key in ("asked", "engine", "file", "machine", "cgroup", "storage"):
        assert all(re.search(rf"\b{name}\b", reported[f"`{key}`"]) for name in probe[key]), key
    assert all(re.search(rf"\b{name}\b", reported["`phases`"]) for name in probe["phases"][0])
