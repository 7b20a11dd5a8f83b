from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

from pagecage.linux.cgroup import Cgroup, members, outside


def test_a_cgroup_removed_during_the_walk_is_no_error(tmp_path: Path) -> None:
    """systemd may remove the scope of a short command during the walk."""
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
            assert [member.pid for member in members(Cgroup(unified=tmp_path))] == [os.getpid()]
    finally:
        is_over.set()
        churn.join()


def test_an_exited_process_has_not_escaped(tmp_path: Path) -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    assert outside(child.pid, Cgroup(unified=tmp_path)) == []
