"""Names of processes, which may have any bytes: the kernel cuts a long one within a character."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from pagecage.agent.drivers import supervise
from pagecage.linux.procfs import name_of
from pagecage.process import Process, spawn, stat_fields, wait_until


@pytest.fixture
def cut_off(tmp_path: Path) -> Iterator[Process[bytes]]:
    """A process whose name is seven letters of two bytes, and the first byte of an eighth."""
    program = tmp_path / "ééééééééé"
    program.symlink_to(shutil.which("sleep") or "sleep")
    process = spawn([program, "60"])
    comm = Path(f"/proc/{process.pid}/comm")
    wait_until(lambda: comm.read_bytes().startswith("é".encode()), 5.0)
    yield process
    process.kill()
    process.wait()


def test_a_name_that_is_not_text_hides_no_process(cut_off: Process[bytes]) -> None:
    fields = stat_fields(cut_off.pid)
    assert fields is not None
    assert int(fields[1]) == os.getpid() == supervise.parents()[cut_off.pid]
    assert name_of(cut_off.pid) == "ééééééé\ufffd"
