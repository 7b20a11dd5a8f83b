"""Kills in the guest and on this machine: states that are seen, and their section of the page."""

from __future__ import annotations

import json
import socket
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from pagecage.hosts.vm.cache import CacheLock, GuestCache
from pagecage.linux.cgroupfs import Cgroupfs
from pagecage.process import PIPE, run, spawn
from reliability import guest_state
from reliability.campaign import repeat_run
from reliability.guest_kills import Kill, KilledRun, killed, kills_section, state_outside
from reliability.guest_lies.campaign import guest_lies_section
from reliability.local_kills import SPOOL, KilledLocally, data_dir, own_disk, state

SLEEP = [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"]


def test_what_a_run_leaves_outside_the_guest_is_seen(tmp_path: Path) -> None:
    cache, folder = GuestCache(tmp_path / "vm"), tmp_path / "folder"
    cache.make()
    assert not state_outside(cache, folder)
    lock = CacheLock(cache.lock_file)
    lock.acquire()
    (cache.scratch / "vl.AbCdEf").touch()
    (folder / "runs/one").mkdir(parents=True)
    (folder / "runs/one/trace.part").touch()
    left = spawn(SLEEP, stdout=PIPE, env={"PAGECAGE_RUNS": str(folder / "runs")})
    try:
        assert left.stdout is not None
        left.stdout.readline()
        [process] = [one for one in state_outside(cache, folder) if one.startswith("process")]
        assert process.startswith("process python")
        expected = {"lock of the guest", "file vl.AbCdEf", "file trace.part", process}
        assert set(state_outside(cache, folder)) == expected
    finally:
        left.kill()
        left.wait()
        lock.release()


def test_what_a_run_leaves_in_the_guest_is_seen(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        name = str(tmp_path / "standby.sock")
        listener.bind(name)
        assert f"socket {name}" in set(guest_state.sockets())
    assert f"socket {name}" not in set(guest_state.sockets())
    left = spawn(SLEEP, stdout=PIPE)
    try:
        assert left.stdout is not None
        left.stdout.readline()
        line = f"process {' '.join(SLEEP)}"[:100]
        assert [one for one in guest_state.processes() if one == line[: len(one)]]
    finally:
        left.kill()
        left.wait()
    assert any(one.startswith("mount proc /proc") for one in guest_state.mounts())
    assert any("dirty_ratio" in one for one in guest_state.settings())


def a_run(number: int, *kills: Kill, **changed: object) -> dict[str, object]:
    return {**asdict(KilledRun(number, "kept", kills, 0, 0, 40.0, ())), **changed}


def test_the_page_counts_the_kills_and_names_a_consequence(tmp_path: Path) -> None:
    assert not list(kills_section(tmp_path))
    agent, qemu = Kill("agent", 7.5, 1), Kill("QEMU", 2.0, 0)
    runs = [a_run(1, agent), a_run(2, agent, agent)]
    runs.append(a_run(3, qemu, guest="own", wrong=["a lock is left"]))
    runs.append(a_run(4, wrong=["a record was lost"]))  # no kill met its target in time
    (tmp_path / "guest-kills.json").write_text(json.dumps({"seed": 5, "runs": runs}))
    text = "\n".join(kills_section(tmp_path))
    assert "4 kills in 4 runs, 3 of them after the first result." in text
    assert "**2 of 4 runs had a forbidden consequence" in text
    assert "| the emulated guest | agent | 3 | 0 | 3 |" in text
    assert "| the emulated guest | QEMU | 1 | 1 | 0 |" in text
    assert "- **still wrong**, run 3: a lock is left" in text
    assert "- **still wrong**, run 4: a record was lost" in text


def test_the_page_counts_the_lies_that_were_caught_as_expected(tmp_path: Path) -> None:
    assert not list(guest_lies_section(tmp_path))
    lie = {"lie": "a neighbour", "moment": "go", "expected": "not_quiet", "found": "enforced"}
    rows = [{**lie, "lie": "no lie", "moment": "", "expected": "enforced"}, lie]
    rows.append({**lie, "found": "not_quiet"})
    (tmp_path / "guest-lies.json").write_text(json.dumps({"lies": rows}))
    text = "\n".join(guest_lies_section(tmp_path))
    assert "caught 1 of 2 lies" in text
    assert "- a neighbour: expected not_quiet, found enforced" in text


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
    assert "**1 of 2 runs had a forbidden consequence" in text
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
    assert "**0 of 1 runs had a forbidden consequence" in text
    assert "- run 7 was repeated, because of this before: a loop is left" in text
    assert repeat_run(path, 7, lambda number: first) == 1
