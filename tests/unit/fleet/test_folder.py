"""The folder of a fleet run: whole or absent, and read in spite of a line that was cut off."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pagecage.errors import HostError
from pagecage.fleet.folder import FleetFolder, FleetRequest, find_fleet, round_result
from tests.builders.plans import plan_of

REQUEST = FleetRequest("rack", "replicate")


def create(runs: Path) -> FleetFolder:
    return FleetFolder.create(runs, plan_of(), REQUEST, {"left": plan_of(), "right": plan_of()})


def test_a_round_that_was_cut_off_is_skipped(tmp_path: Path) -> None:
    folder = create(tmp_path)
    folder.add(round_result("left", 1, "done", "", 0.0))
    with (folder.path / "rounds.jsonl").open("a") as file:
        file.write('{"host": "left", "seconds": {"a": 1}')
    folder.add(round_result("right", 1, "lost", "gone", 0.0))
    results = folder.last_results()
    assert (results["left"].outcome, results["right"].outcome) == ("done", "lost")


def test_a_folder_that_cannot_be_made_whole_is_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = json.dumps

    def fail_at_the_document(value: Any, **given: Any) -> str:
        if "fleet_version" in value:
            raise OSError(28, os.strerror(28))
        return real(value, **given)

    monkeypatch.setattr(json, "dumps", fail_at_the_document)
    with pytest.raises(HostError, match="cannot be created: No space left on device"):
        create(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert find_fleet(tmp_path, "test@rack") is None
