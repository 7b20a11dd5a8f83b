"""A probe of a few seconds for the speed of the disk under a directory."""

from __future__ import annotations

import json
import mmap
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from pagecage.planning.size import WINDOW_BYTES, DiskSpeed
from pagecage.units import BLOCK_BYTES, MIB
from pagecage.whole_files import write_whole

ASSUMED = DiskSpeed(500e6, 400e6, 100e-6, 500e-6)
"""The speed of a disk that cannot be probed: one of a cloud, or a SATA drive."""
_FILE_BYTES = 128 * MIB
_CHUNK_BYTES = MIB
_MOST_SECONDS = 1.0  # per rate
_MOST_READS = 200
_STRIDE = 7919
_FEWEST_BYTES = 16 * MIB


def disk_speed(folder: Path, machine: str) -> DiskSpeed:
    """Return the speed of the disk under a directory; ASSUMED if it takes no direct writes.

    It is measured once per `machine`, a text that names disk and boot, and kept in the directory.
    """
    kept = folder / "disk-speed.json"
    with suppress(OSError, ValueError, TypeError):
        found = json.loads(kept.read_text())
        if found.pop("machine") == machine:
            return DiskSpeed(**found)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        speed = _measure(folder)
    except OSError:
        return ASSUMED
    with suppress(OSError):
        write_whole(kept, json.dumps({"machine": machine, **asdict(speed)}))
    return speed


def _measure(folder: Path) -> DiskSpeed:
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".probe-") as file:
        direct = os.open(file.name, os.O_WRONLY | os.O_DIRECT)
        try:
            with mmap.mmap(-1, _CHUNK_BYTES) as buffer:
                buffer.write(os.urandom(_CHUNK_BYTES))
                write_rate = _rate(lambda offset: os.pwritev(direct, [buffer], offset))
            os.fsync(direct)
            descriptor = file.fileno()
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            return DiskSpeed(
                _rate(lambda offset: len(os.pread(descriptor, _CHUNK_BYTES, offset))),
                write_rate,
                _read_seconds(file.fileno(), BLOCK_BYTES),
                _read_seconds(file.fileno(), WINDOW_BYTES),
            )
        finally:
            os.close(direct)


def _rate(step: Callable[[int], int]) -> float:
    """Return the bytes per second of steps, each of which is given its offset."""
    done, begin = 0, time.perf_counter()
    while done < _FILE_BYTES:
        if not (moved := step(done)):
            break
        done += moved
        if time.perf_counter() - begin > _MOST_SECONDS and done >= _FEWEST_BYTES:
            break
    return done / max(time.perf_counter() - begin, 1e-6)


def _read_seconds(descriptor: int, size_bytes: int) -> float:
    """Return the mean time of cold reads of this size through the page cache, out of order."""
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # no read-ahead besides
    places = os.fstat(descriptor).st_size // WINDOW_BYTES
    reads, begin = 0, time.perf_counter()
    while reads < min(places, _MOST_READS) and time.perf_counter() - begin < _MOST_SECONDS:
        # Multiples of a prime that does not divide the number of places visit each of them once.
        os.pread(descriptor, size_bytes, reads * _STRIDE % places * WINDOW_BYTES)
        reads += 1
    return (time.perf_counter() - begin) / max(reads, 1)
