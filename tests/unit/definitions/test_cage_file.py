"""Imported limits become a cage file that loads as the same cage."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagecage.definitions.cage_file import cage_of_tables
from pagecage.definitions.cage_writer import cage_to_toml
from pagecage.definitions.reader import Definitions
from pagecage.errors import PagecageError
from tests.builders.imports import FOLDER, fixture


@pytest.mark.parametrize("name", sorted(p.name for p in FOLDER.iterdir() if p.name != "README.md"))
def test_imported_limits_are_a_cage_that_loads(name: str, tmp_path: Path) -> None:
    found = fixture(name, "db", "vol-0000000000000001a")
    (tmp_path / "cgroups").mkdir()
    cage = cage_of_tables("theirs", found.cage())
    (tmp_path / "cgroups/theirs.toml").write_text(cage_to_toml(cage))
    assert Definitions(tmp_path, []).cage("theirs", None) == cage
    assert {key: cage.properties.get(key) for key in ("IOReadIOPSMax", "CPUQuota")} == {
        key: found.cage().get(key) for key in ("IOReadIOPSMax", "CPUQuota")
    }


@pytest.mark.parametrize(
    "tables",
    [
        {"about": "x", "IOReadIOPSMax": -1},
        {"about": "x", "MemoryMax": "5"},
        {},
        {"about": "x", "Mem": "1B"},
    ],
)
def test_tables_that_are_not_a_cage_are_refused(tables: dict[str, object]) -> None:
    with pytest.raises(PagecageError, match="is not a valid cage"):
        cage_of_tables("mine", tables)
