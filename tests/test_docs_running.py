"""Keys of the JSON of verify and cold in docs/FORMAT.md, compared with real ones."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from pagecage.eviction import CommandRun, cold
from pagecage.verify.comparison import STATES
from pagecage.verify.target import Subject
from pagecage.verify.verification import verify
from tests.builders.documents import FORMAT, keys
from tests.builders.verified import SLICE, VDB, VerifiedMachine
from tests.order.conftest import on_disk

__all__ = ["on_disk"]


def documented(title: str) -> dict[str, str]:
    section = FORMAT.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]
    rows = [
        line.strip("|").split("|", 1) for line in section.splitlines() if line.startswith("| `")
    ]
    return {first.strip(): rest for first, rest in rows}


def names_all(row: str, names: object) -> bool:
    return all(f"{name}" in row for name in names)  # type: ignore[attr-defined]


@pytest.fixture
def verification(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    machine = VerifiedMachine(tmp_path)
    machine.make()
    monkeypatch.setenv("PATH", machine.path())
    machine.cgroup(
        f"{SLICE}/a.service",
        (7,),
        io__max=f"{VDB} rbps=max wbps=max riops=500 wiops=max",
    )
    machine.unit(f"{SLICE}/a.service", MemoryMax="4096")
    return verify(Subject(unit="a.service"), 0.6, machine.kernel).to_json()


def test_a_verifications_keys_are_as_documented(verification: dict[str, Any]) -> None:
    rows = documented("Output of `pagecage inspect --json`")
    assert keys(list(rows)) == set(verification)
    for key in ("limits", "requested", "bound"):
        assert names_all(rows[f"`{key}`"], verification[key][0]), key
    assert names_all(rows["`waited`"], verification["waited"])
    assert f"`{' '.join(STATES)}`" in rows["`requested`"]


def test_a_certificates_keys_are_as_documented(on_disk: Path) -> None:
    (on_disk / "x").write_bytes(b"x")
    found, rows = cold([on_disk / "x"]).to_json(), documented("Cold certificate")
    assert keys(list(rows)) == set(found)
    assert names_all(rows["`files`"], found["files"][0])
    assert names_all(rows["`run`"], (field.name for field in fields(CommandRun)))
