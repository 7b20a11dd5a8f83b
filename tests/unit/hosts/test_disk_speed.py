"""The probe of a disk: what it measures, keeps and leaves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pagecage.hosts.local import disk_speed
from pagecage.model.disk_speed import ASSUMED


def test_a_disk_is_probed_once_per_boot(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    found = disk_speed(folder, "254:0 boot-1")
    assert found != ASSUMED
    assert 0 < found.block_seconds < 1
    assert found.read_bytes_per_second > 1e6
    assert [path.name for path in folder.iterdir()] == ["disk-speed.json"]
    assert disk_speed(folder, "254:0 boot-1") == found
    kept = json.loads((folder / "disk-speed.json").read_text())
    (folder / "disk-speed.json").write_text(json.dumps({**kept, "write_bytes_per_second": 7.0}))
    assert disk_speed(folder, "254:0 boot-1").write_bytes_per_second == 7
    assert disk_speed(folder, "254:0 boot-2").write_bytes_per_second > 7


@pytest.mark.parametrize("kept", ["", "{", '{"machine": "m", "speed": 1}', "[]"])
def test_what_was_kept_and_is_broken_is_measured_again(tmp_path: Path, kept: str) -> None:
    (tmp_path / "disk-speed.json").write_text(kept)
    assert disk_speed(tmp_path, "m") != ASSUMED
    assert json.loads((tmp_path / "disk-speed.json").read_text())["machine"] == "m"


def test_a_folder_that_cannot_be_written_gets_an_assumed_speed(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert disk_speed(tmp_path / "file/data", "m") == ASSUMED
