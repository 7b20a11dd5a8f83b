"""The fake kernel of a simulated trial as files, and the lies in it and in the fake workload."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

MAJ_MIN, OTHER_MAJ_MIN = "259:7", "259:8"
CPUS, HZ = 2, 100
_ROOM = 512
"""Bytes of each file. Text is written in place, since the sampler keeps the files open."""


def put(path: Path, text: str) -> None:
    """Write a file in one call, without truncating it first."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    os.pwrite(descriptor, text.encode().ljust(_ROOM, b"\n"), 0)
    os.close(descriptor)


@dataclass
class Disk:
    reads: int = 1000
    sectors_read: int = 80_000
    writes: int = 100
    sectors_written: int = 8_000
    io_ticks: int = 500
    weighted_io_ticks: int = 600


class Kernel:
    """The kernel of the fake machine below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.proc = root / "proc"

    @property
    def slice(self) -> Path:
        """The slice of the trial; there is one at a time."""
        found = sorted((self.root / "cgroup/pagecage.slice").glob("pagecage-*.slice"))
        return found[0]

    def make(self) -> None:
        self.proc.mkdir()
        put(self.proc / "vmstat", "pgpgin 1\npgpgout 1\npgfault 1\npgmajfault 1\npgfree 1\n")
        put(self.proc / "meminfo", "MemTotal: 4000000 kB\nMemAvailable: 3000000 kB\n")
        put(self.proc / "born", repr(time.monotonic()))
        (self.root / "cgroup/pagecage.slice").mkdir()
        for name, text in {"memory.max": "max", "io.max": "", "cpu.max": "max 100000"}.items():
            self.limit_of_parent(name, text)
        self.set_disk(Disk())
        self.set_cpu(user=1000, steal=0)

    def disk(self) -> Disk:
        words = (self.proc / "diskstats").read_text().split("\n")[0].split()
        numbers = [int(word) for word in words[3:]]
        return Disk(numbers[0], numbers[2], numbers[4], numbers[6], numbers[9], numbers[10])

    def set_disk(self, disk: Disk) -> None:
        line = (
            f"{disk.reads} 0 {disk.sectors_read} 1 {disk.writes} 0 {disk.sectors_written} 1 0"
            f" {disk.io_ticks} {disk.weighted_io_ticks} 0 0 0 0 0 0"
        )
        other = "7 0 56 1 1 0 8 1 0 1 1 0 0 0 0 0 0"
        put(self.proc / "diskstats", f"259 7 fakedisk {line}\n259 8 otherdisk {other}")

    def cpu(self) -> tuple[int, int]:
        """Return the ticks that all processes used, and those that were stolen."""
        words = (self.proc / "stat").read_text().split("\n")[0].split()
        return int(words[1]), int(words[8])

    def set_cpu(self, user: int, steal: int) -> None:
        """Write /proc/stat; what is left of the CPUs' time is idle."""
        passed = time.monotonic() - float((self.proc / "born").read_text())
        idle = max(0, int(passed * CPUS * HZ) + 1000 - user - steal)
        put(self.proc / "stat", f"cpu  {user} 0 0 {idle} 0 0 0 {steal} 0 0")

    def use_cpu(self, seconds: float, *, by_slice: bool = True, steal: float = 0.0) -> None:
        user, stolen = self.cpu()
        self.set_cpu(user + round(seconds * HZ), stolen + round(steal * HZ))
        if by_slice:
            usage = self.flat("cpu.stat")["usage_usec"] + round(seconds * 1e6)
            put(self.slice / "cpu.stat", f"usage_usec {usage}\nthrottled_usec 0\n")

    def flat(self, name: str) -> dict[str, int]:
        words = (self.slice / name).read_text().split()
        return dict(zip(words[::2], map(int, words[1::2]), strict=True))

    def io(self) -> dict[str, int]:
        """Return the slice's line of io.stat for the measured disk; zeros if it has none."""
        for line in (self.slice / "io.stat").read_text().splitlines():
            if line.startswith(f"{MAJ_MIN} "):
                pairs = (word.split("=") for word in line.split()[1:])
                return {key: int(value) for key, value in pairs}
        return dict.fromkeys(("rbytes", "wbytes", "rios", "wios"), 0)

    def set_io(self, io: dict[str, int]) -> None:
        put(self.slice / "io.stat", f"{MAJ_MIN} " + " ".join(f"{k}={v}" for k, v in io.items()))

    def read(
        self, size: int, ios: int, *, slice_: bool = True, disk: bool = True, cached: bool = True
    ) -> None:
        """Count reads: by the slice, by the disk, and as page cache that the slice is charged."""
        if slice_:
            io = self.io()
            self.set_io({**io, "rbytes": io["rbytes"] + size, "rios": io["rios"] + ios})
        if disk:
            was = self.disk()
            was.reads, was.sectors_read = was.reads + ios, was.sectors_read + size // 512
            was.io_ticks += 5
            was.weighted_io_ticks += 5
            self.set_disk(was)
        if cached:
            self.charge(size)

    def charge(self, size: int) -> None:
        file = self.flat("memory.stat")["file"] + size
        put(self.slice / "memory.stat", f"anon 0\nfile {file}\npgsteal 0\n")

    def wait(self, resource: str, seconds: float) -> None:
        """Let a task of the slice wait for `cpu`, `io` or `memory`."""
        path = self.slice / f"{resource}.pressure"
        total = int(path.read_text().split("total=")[1].split()[0]) + round(seconds * 1e6)
        line = f"avg10=0.00 avg60=0.00 avg300=0.00 total={total}"
        put(path, f"some {line}\nfull {line}\n")

    def meet_memory_limit(self, peak: int) -> None:
        events = self.flat("memory.events")
        text = f"low 0\nhigh 0\nmax {events['max'] + 40}\noom 0\noom_kill 0\n"
        put(self.slice / "memory.events", text)
        put(self.slice / "memory.peak", f"{peak}\n")

    def limit(self, name: str, value: str) -> None:
        """Write a limit of the slice: `memory.max`, or `rbps` of io.max."""
        if name != "rbps":
            put(self.slice / name, f"{value}\n")
            return
        text = "" if value == "max" else f"{MAJ_MIN} rbps={value} wbps=max riops=max wiops=max"
        put(self.slice / "io.max", text)

    def limit_of_parent(self, name: str, value: str) -> None:
        put(self.root / "cgroup/pagecage.slice" / name, f"{value}\n")


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
