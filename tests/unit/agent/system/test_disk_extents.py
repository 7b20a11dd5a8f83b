"""Bytes of a real file that must come from the disk."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from pagecage.linux.block_device import on_disk_bytes
from pagecage.units import BLOCK_BYTES

PIECES = 300  # more extents than one call takes


@pytest.fixture
def file(on_disk: Path) -> Path:
    return on_disk / "file"


def write(path: Path, *places: int, size: int | None = None) -> None:
    with path.open("wb") as file:
        for place in places:
            os.pwrite(file.fileno(), os.urandom(BLOCK_BYTES), place * BLOCK_BYTES)
        if size is not None:
            file.truncate(size)
        os.fsync(file.fileno())


def test_a_written_file_is_all_on_the_disk(file: Path) -> None:
    write(file, 0, 1, 2, size=2 * BLOCK_BYTES + 1)
    assert on_disk_bytes(file) == 3 * BLOCK_BYTES


def test_a_hole_is_nowhere_and_extents_of_several_calls_are_added(file: Path) -> None:
    write(file, *range(0, 2 * PIECES, 2), size=4 * PIECES * BLOCK_BYTES)
    assert on_disk_bytes(file) == PIECES * BLOCK_BYTES


def test_preallocated_extents_need_no_request(file: Path) -> None:
    """This holds even after a read through the page cache, when SEEK_DATA would report data."""
    write(file, 0, size=BLOCK_BYTES)
    with file.open("r+b") as opened:
        os.posix_fallocate(opened.fileno(), 0, 16 * BLOCK_BYTES)
        os.fsync(opened.fileno())
    assert len(file.read_bytes()) == 16 * BLOCK_BYTES
    assert on_disk_bytes(file) == BLOCK_BYTES


def test_an_empty_file_and_one_in_memory_have_nothing_there(file: Path) -> None:
    file.touch()
    assert on_disk_bytes(file) == 0
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as other:
        other.write(b"x" * BLOCK_BYTES)
        other.flush()
        assert on_disk_bytes(Path(other.name)) == 0
