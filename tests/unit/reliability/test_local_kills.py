"""Kills on this machine: what a run leaves is seen, and how the page tells the kills."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from pagecage.linux.cgroupfs import Cgroupfs
from pagecage.process import run
from reliability.campaign import repeat_run
from reliability.guest_kills import Kill, killed, kills_section
from reliability.local_kills import SPOOL, KilledLocally, data_dir, own_disk, state


@pytest.mark.limits
def test_what_a_run_leaves_is_seen(checkout: Path) -> None:
    (checkout / "build/tests").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=checkout / "build/tests") as name:
        folder = Path(name)
        (folder / "runs").mkdir()
        group = Cgroupfs(SPOOL).cgroup("left").directories[0]
        with own_disk(folder):
            before = state(folder)
            group.mkdir()
            (folder / "runs/trace.part").touch()
            (data_dir(folder) / "left").touch()
            run(["mount", "--bind", str(folder / "runs"), str(folder / "runs")])
            try:
                left = state(folder) - before
            finally:
                run(["umount", str(folder / "runs")])
                group.rmdir()
        assert {"file trace.part", "file left"} <= set(left)
        assert [one for one in left if one.startswith("cgroup ") and one.endswith(group.name)]
        assert [one for one in left if one.startswith("mount ")]


def test_the_page_counts_kills_misses_and_consequences(tmp_path: Path) -> None:
    assert not list(kills_section(tmp_path))
    agent, tool = Kill("agent", 0.5, 2), Kill("tool", 0.1, 0)
    runs = [
        KilledLocally(1, "killable-io", (agent, tool, agent), 1, 3, -9, 0, 20.0, ()),
        KilledLocally(2, "killable-io", (), 2, 1, 0, 0, 9.0, ("a cgroup is left",)),
    ]
    stored = {"seed": 5, "tries": 2, "runs": [{**asdict(one), "code": "abc"} for one in runs]}
    (tmp_path / "local-kills.json").write_text(json.dumps(stored))
    text = "\n".join(kills_section(tmp_path))
    assert "3 kills in 2 runs, 2 of them after the first result." in text
    assert "**1 of 2 runs had a consequence" in text
    assert "| agent | 2 | 0 | 2 |" in text
    assert "| tool | 1 | 1 | 0 |" in text
    assert "| all | 3 | 1 | 2 | 3 |" in text
    assert killed(tmp_path) == (3, 1)
    assert "- **still wrong**, run 2: a cgroup is left" in text


def test_a_run_that_is_repeated_keeps_what_was_wrong_before(tmp_path: Path) -> None:
    path, kill = tmp_path / "local-kills.json", Kill("agent", 0.5, 2)
    first = KilledLocally(7, "killable-io", (kill,), 0, 3, -9, 0, 20.0, ("a loop is left",))
    stored = {"seed": 5, "tries": 1, "runs": [{**asdict(first), "code": "abc"}]}
    path.write_text(json.dumps(stored))
    assert repeat_run(path, 7, lambda number: replace(first, number=number, wrong=())) == 0
    text = "\n".join(kills_section(tmp_path))
    assert "**0 of 1 runs had a consequence" in text
    assert "- run 7 was repeated, because of this before: a loop is left" in text
    assert repeat_run(path, 7, lambda number: first) == 1
