"""Kills and lies in the real guest: what the kills look for, and how the page tells both."""

from __future__ import annotations

import json
import socket
import sys
from dataclasses import asdict
from pathlib import Path

from pagecage.hosts.vm.cache import CacheLock, GuestCache
from pagecage.process import PIPE, spawn
from reliability import guest_state
from reliability.guest_kills import Kill, KilledRun, kills_section, state_outside
from reliability.guest_lies.campaign import guest_lies_section

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
    assert "**2 of 4 runs had a consequence" in text
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
    assert "1 of 2 lies were caught" in text
    assert "- a neighbour: expected not_quiet, found enforced" in text
