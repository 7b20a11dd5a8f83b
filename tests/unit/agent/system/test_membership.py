from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

from pagecage.agent.system.cgroupfs import members, outside


def test_a_cgroup_that_goes_while_it_is_looked_at_is_no_error(tmp_path: Path) -> None:
    """Of a command that is over at once, systemd removes the scope in the middle of the walk."""
    (tmp_path / "cgroup.procs").write_text(f"{os.getpid()}\n")
    is_over = threading.Event()

    def come_and_go() -> None:
        while not is_over.is_set():
            for number in range(20):
                (tmp_path / f"run-{number}.scope").mkdir()
            for number in range(20):
                (tmp_path / f"run-{number}.scope").rmdir()

    churn = threading.Thread(target=come_and_go)
    churn.start()
    try:
        for _ in range(300):
            assert [member.pid for member in members(tmp_path)] == [os.getpid()]
    finally:
        is_over.set()
        churn.join()


def test_a_process_that_has_gone_is_outside_of_nothing(tmp_path: Path) -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    assert outside(child.pid, tmp_path) == []
