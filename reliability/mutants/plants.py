"""Lies in the fake kernel and in the fake workload, by name.

A plant of IN_WORKLOAD is called by the workload at `launch` (before `ready`), `middle`, `late`
(after three quarters) and `last` (after the last read). One of IN_AGENT is called at the beginning
of a phase of the agent, and at its events `go` and `end`. Only the standard library is needed.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from reliability.mutants.kernel import MAJ_MIN, Kernel

RAISED = {"rbps": "100000000", "memory.max": str(64 * 1024**2)}
HELD = {"rbps": "20000000", "memory.max": str(8 * 1024**2)}
NEIGHBOUR_BYTES = 20_000_000


@dataclass(frozen=True)
class Conduct:
    """The behaviour of the workload. The defaults are those of an honest one."""

    reads_file: bool = True
    reads_cached: bool = True
    reads_twice: bool = False
    is_charged_elsewhere: bool = False
    is_outside: bool = False
    is_warm: bool = False
    skips_from: int | None = None
    waits: bool = True
    exits_from: int | None = None
    claims: float = 1.0
    clock: float = 1.0
    cpus: float = 0.2
    claims_success: bool = True


@dataclass(frozen=True)
class Place:
    root: Path
    file: Path
    kernel: Kernel
    moment: str

    def is_now(self, moment: str) -> bool:
        return moment == self.moment


Plant = Callable[[Place, str], None]


def raised(name: str, value: str | None = None, *, is_put_back: bool) -> Plant:
    """Raise a limit at the moment; put it back at the next that this side knows."""
    after = {"middle": "last", "before": "collectors", "collectors": "run", "go": "end"}

    def plant(place: Place, moment: str) -> None:
        if place.is_now(moment):
            place.kernel.limit(name, value or RAISED[name])
        elif is_put_back and after.get(place.moment) == moment:
            place.kernel.limit(name, HELD[name])

    return plant


def ancestor(name: str, *, is_put_back: bool) -> Plant:
    tight = {"io.max": f"{MAJ_MIN} rbps=5000000 wbps=max riops=max wiops=max"}

    def plant(place: Place, moment: str) -> None:
        if place.is_now(moment):
            place.kernel.limit_of_parent(name, tight.get(name, "4194304"))
        elif is_put_back and moment == "last":
            place.kernel.limit_of_parent(name, "" if name == "io.max" else "max")

    return plant


def warm(place: Place, moment: str) -> None:
    """Another process reads the file; the workload then finds it in memory."""
    if place.is_now(moment):
        place.file.read_bytes()
        (place.root / "foreign").touch()
        place.kernel.read(place.file.stat().st_size, 96, slice_=False, cached=False)


def drop(place: Place, moment: str) -> None:
    """Another process drops the file from the page cache, and the workload reads it again."""
    if place.is_now(moment):
        descriptor = os.open(place.file, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
        (place.root / "foreign").unlink(missing_ok=True)


def on_disk(place: Place, moment: str) -> None:
    """A neighbour reads 20 MB from the disk."""
    if place.is_now(moment):
        place.kernel.read(NEIGHBOUR_BYTES, 160, slice_=False, cached=False)


def on_cpu(place: Place, moment: str) -> None:
    if place.is_now(moment):
        place.kernel.use_cpu(0.5, by_slice=False)
        place.kernel.wait("cpu", 0.3)


def beside_threads(place: Place, moment: str) -> None:
    """A neighbour computes beside a trial of many threads, whose waits may be its own."""
    if place.is_now(moment):
        place.kernel.use_cpu(0.6, by_slice=False)
        place.kernel.wait("cpu", 0.3)


def stolen(place: Place, moment: str) -> None:
    if place.is_now(moment):
        place.kernel.use_cpu(0.0, by_slice=False, steal=0.3)


def leave(place: Place, moment: str) -> None:
    if place.is_now(moment):
        for scope in place.kernel.slice.glob("*.scope"):
            (scope / "cgroup.procs").write_text("")


def wrap(bits: int) -> Plant:

    def plant(place: Place, moment: str) -> None:
        if moment == "launch":
            place.kernel.set_io({**place.kernel.io(), "rbytes": 2**bits - 6 * 1024**2})
        if moment == "late":
            io = place.kernel.io()
            place.kernel.set_io({**io, "rbytes": io["rbytes"] % 2**bits})

    return plant


def wrap_disk(place: Place, moment: str) -> None:
    """Let the disk's counter begin again in the middle."""
    if moment == "middle":
        disk = place.kernel.disk()
        disk.sectors_read = 8
        place.kernel.set_disk(disk)


def freeze_disk(place: Place, moment: str) -> None:
    """Let the disk's counters stand still from the middle on."""
    if moment == "middle":
        shutil.copy(place.kernel.proc / "diskstats", place.root / "frozen")
    if moment == "last":
        shutil.copy(place.root / "frozen", place.kernel.proc / "diskstats")


def less(name: str) -> Plant:

    def plant(place: Place, moment: str) -> None:
        if moment == "last" and name == "cpu.stat":
            (place.kernel.slice / name).write_text("usage_usec 3\nthrottled_usec 0\n")
        if moment == "last" and name == "rios":
            place.kernel.set_io({**place.kernel.io(), "rios": -5})
        if moment == "launch" and name == "io.pressure":
            place.kernel.wait("io", 3.0)
        if moment == "last" and name == "io.pressure":
            place.kernel.wait("io", -9.0)

    return plant


def pause(seconds: float) -> Plant:

    def plant(place: Place, moment: str) -> None:
        if place.is_now(moment):
            (place.root / "paused").touch()
            time.sleep(seconds)
            (place.root / "paused").unlink()

    return plant


def read_ahead(*, is_put_back: bool) -> Plant:

    def plant(place: Place, moment: str) -> None:
        setting = place.root / "sys/block/fakedisk/queue/read_ahead_kb"
        if place.is_now(moment):
            (place.root / "read_ahead_kb").write_text(setting.read_text())
            setting.write_text("4096\n")
        elif is_put_back and moment == "last":
            setting.write_text((place.root / "read_ahead_kb").read_text())

    return plant


IN_WORKLOAD: Mapping[str, Plant] = {
    **{
        f"{name} {how}": raised(name, value, is_put_back="back" in how)
        for name in RAISED
        for how, value in (
            ("raised", None),
            ("raised, put back", None),
            ("max", "max"),
            ("max, put back", "max"),
        )
    },
    "ancestor memory.max": ancestor("memory.max", is_put_back=False),
    "ancestor memory.max, put back": ancestor("memory.max", is_put_back=True),
    "ancestor io.max": ancestor("io.max", is_put_back=False),
    "ancestor io.max, put back": ancestor("io.max", is_put_back=True),
    "warm": warm,
    "drop": drop,
    "on disk": on_disk,
    "on cpu": on_cpu,
    "beside threads": beside_threads,
    "stolen": stolen,
    "leave": leave,
    "wrap 2^32": wrap(32),
    "wrap 2^64": wrap(64),
    "wrap disk": wrap_disk,
    "freeze disk": freeze_disk,
    **{f"less {name}": less(name) for name in ("cpu.stat", "rios", "io.pressure")},
    "pause": pause(2.0),
    "short pause": pause(0.8),
    "read-ahead": read_ahead(is_put_back=False),
    "read-ahead, put back": read_ahead(is_put_back=True),
}
IN_AGENT = IN_WORKLOAD
"""Both sides call every plant; each acts at the moments that its side has."""
