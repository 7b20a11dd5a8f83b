"""Processes that map a file, and touch every page of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pagecage.process import PIPE, Process, spawn

_PROGRAM = """
import ctypes, mmap, sys
path, how = sys.argv[1:]
writes = how == "dirty"
file = open(path, "r+b" if writes else "rb")
memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_WRITE if writes else mmap.ACCESS_READ)
for place in range(0, len(memory), 4096):
    if writes:
        memory[place] = 1
    else:
        memory[place]
if how == "locked" and ctypes.CDLL(None, use_errno=True).mlockall(1):
    sys.exit("mlockall failed")
print("mapped", flush=True)
sys.stdin.read()
"""


@contextmanager
def mapped(path: Path, how: str = "read") -> Iterator[Process[bytes]]:
    """Run a process that maps a file: read, dirty or locked."""
    process = spawn(
        [sys.executable, "-I", "-S", "-c", _PROGRAM, path, how],
        stdin=PIPE,
        stdout=PIPE,
        stderr=None,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"mapped\n"
        yield process
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(30)
