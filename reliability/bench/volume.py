"""The speed of the simulated volume: its path without a model, and what its model costs.

`python -m reliability.bench.volume [DIR]` runs these alone, on this machine. The same reads take
three paths by turns, each compared with the volume's:

- QEMU's file driver past the page cache, as the guest's data disk is attached. The volume's file is
  not in the page cache either, so that the disk takes part.
- QEMU's file driver with the file in the page cache, where only memory and CPUs decide. It copies a
  byte once, within one process. nbdkit copies it three times between two processes (file, socket,
  client), so that reads of 1 MiB cannot be as fast.
- nbdkit's own plugin `file`, with the file in the page cache. The rest is the volume's own part.

The volume attached to this machine (FUSE and a loop device) is compared with its file, both past
the page cache. Its added latency is what remains after the path's own was taken off.

Through nbdkit a thread sleeps for every I/O. The I/Os that one core carries follow from the CPU
time of the server, which other programs disturb less than the clock.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from pagecage.agent.volume_server import PLUGIN, FuseLoop, VolumeServer, path_latency_us
from pagecage.checkout import TOP
from pagecage.process import run
from reliability.bench.bed import (
    Figure,
    by_turns,
    figure_of_pairs,
    scratch,
    show,
    single_figure,
    spread_figure,
)
from reliability.campaign import tell

PAIRS = 9
VOLUME_BYTES = 1 << 30
LEAST = 0.9
SET_US = 500.0
MOST_ADDED_US = 100.0
LEAST_PER_CORE = 50_000
KIB, MIB = 1 << 10, 1 << 20
CACHED = ("-t", "writeback")
DIRECT = ("-t", "none", "-i", "io_uring")


@dataclass(frozen=True)
class Reads:
    """Reads in the order of the file, of one size, with a number in flight."""

    block_bytes: int
    depth: int
    number: int

    def seconds(self, image: str, *options: str) -> float:
        """Return the seconds that `qemu-img bench` needs for them."""
        load = map(str, ["-c", self.number, "-d", self.depth, "-s", self.block_bytes])
        words = ["qemu-img", "bench", "-f", "raw", *(options or CACHED), *load, image]
        done = run(words, timeout_seconds=300)
        return float(done.stdout.split("completed in ")[1].split()[0])


SMALL, LARGE = Reads(4 * KIB, 16, 50_000), Reads(MIB, 16, 1_000)
SINGLE = Reads(4 * KIB, 1, 4_000)


@contextmanager
def servers(parent: Path) -> Iterator[tuple[Path, VolumeServer, str]]:
    """Serve a file twice: by the volume, and by nbdkit's own plugin `file` under the image that is
    the third result.
    """
    parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=parent) as data, TemporaryDirectory(prefix="pcv-") as sockets:
        file, folder = Path(data, "volume.raw"), Path(sockets)
        write_random(file)
        plugin = TOP / "build/host/lib" / PLUGIN
        server = VolumeServer.start(plugin, file, folder, folder / "log")
        sockets_of = ("-U", folder / "file", "-P", folder / "pid")
        run(["nbdkit", *sockets_of, "-t", "64", "file", file])
        try:
            yield file, server, f"nbd+unix:///?socket={folder}/file"
        finally:
            server.end()
            os.kill(int((folder / "pid").read_text()), 15)


def write_random(file: Path) -> None:
    with file.open("wb") as volume:
        for _ in range(VOLUME_BYTES // MIB):
            volume.write(os.urandom(MIB))
        volume.flush()
        os.fsync(volume.fileno())  # pages that are not written yet cannot be evicted


def attached(parent: Path) -> Iterator[Figure]:
    """Yield the figures of a volume that is attached to this machine. Only root may do that."""
    path = FuseLoop()
    path.require()
    with TemporaryDirectory(dir=parent) as name:
        folder = Path(name).resolve()
        file = folder / "volume.raw"
        write_random(file)
        server = path.serve(TOP / "build/host/lib", file, folder)
        try:
            node = path.attach(server, folder)
            for reads in (SMALL, LARGE):
                ours, direct = (partial(reads.seconds, str(one), *DIRECT) for one in (node, file))
                yield compare("direct file, attached", reads, ours, direct)
            path_us = path_latency_us(node, server.command)
            yield added(server, str(node), *DIRECT, path_us=path_us)
        finally:
            path.detach(folder)
            server.end()


def natively(parent: Path) -> Iterator[Figure]:
    """Yield all figures on this machine, with the file below `parent`."""
    with servers(parent) as (file, server, other):
        volume = f"nbd+unix:///?socket={server.data_socket}"
        for reads in (SMALL, LARGE):
            ours = partial(reads.seconds, volume)
            direct = partial(reads.seconds, str(file), *DIRECT)
            yield compare("direct file", reads, partial(_cold, file, ours), direct)
            yield compare("cached file", reads, ours, partial(reads.seconds, str(file)))
            yield compare("nbdkit file", reads, ours, partial(reads.seconds, other))
        yield added(server, volume)
        yield per_core(server, volume)
    if os.getuid() == 0:
        yield from attached(parent)
    yield model_alone()


def _cold(file: Path, seconds: Callable[[], float]) -> float:
    """Evict a file from the page cache, and return the seconds of what follows."""
    with file.open("rb") as volume:
        os.posix_fadvise(volume.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return seconds()


def compare(
    name: str, reads: Reads, volume: Callable[[], float], other: Callable[[], float]
) -> Figure:
    """Return the speed of the volume without a model, divided by that of another path."""
    size = f"{reads.block_bytes // KIB} KiB"
    tell(f"volume / {name}, {size}: {PAIRS} times each")
    ours, theirs = by_turns(PAIRS, volume, other)
    us = [median(side) / reads.number * 1e6 for side in (ours, theirs)]
    says = f"reads a second, {reads.depth} in flight: {us[0]:.1f} us each to {us[1]:.1f} us"
    return figure_of_pairs(f"volume / {name} {size}", theirs, ours, says, least_low=LEAST)


def configure(
    server: VolumeServer, latency_us: Sequence[tuple[float, float]], path_us: float = 0.0
) -> None:
    """Set limits that are never reached, and a latency of reads."""
    limits = [
        {"layer": layer, "scope": "both", "unit": unit, "per_second": 1e12}
        for layer, unit in (("volume", "operations"), ("instance", "bytes"))
    ]
    latency = [{"size_bytes": 4 * KIB, "quantiles": latency_us}]
    model = {"limits": limits, "read_latency": latency, "path_us": path_us}
    server.command({"configure": model})


def added(server: VolumeServer, volume: str, *options: str, path_us: float = 0.0) -> Figure:
    """Return what the path adds to a latency with one request in flight, divided by the aim.

    `path_us` is taken off each latency.
    """
    tell(f"one request in flight: {PAIRS} times")
    configure(server, [(0.0, SET_US)], path_us)
    seconds = [SINGLE.seconds(volume, *options) for _ in range(PAIRS)]
    added_us = [one / SINGLE.number * 1e6 - SET_US for one in seconds]
    counted = server.command({"account": True})
    late_us = counted["pcvolume"]["delay_us"] / counted["total_read_ops"]
    ratios = [us / MOST_ADDED_US for us in added_us]
    says = (
        f"{median(added_us):.0f} us added to {SET_US:.0f} us of a read of 4 KiB, {late_us:.0f} us"
        " of them in the volume"
    )
    aim = f"{MOST_ADDED_US:.0f} us or less"
    name = "added latency, attached" if path_us else "added latency"
    return spread_figure(name, ratios, aim, lambda middle: middle <= 1, says)


def per_core(server: VolumeServer, volume: str) -> Figure:
    """Return the modelled I/Os that one core carries through nbdkit, divided by the aim."""
    tell(f"modelled I/Os through nbdkit: {PAIRS} times")
    configure(server, [(0.5, 100.0), (0.99, 200.0)])
    rates = []
    for _ in range(PAIRS):
        before = cpu_seconds(server)
        SMALL.seconds(volume)
        rates.append(SMALL.number / (cpu_seconds(server) - before) / LEAST_PER_CORE)
    carried = median(rates) * LEAST_PER_CORE
    says = f"{carried:,.0f} I/Os a second of the server's CPU time, 16 in flight"
    aim = f"{LEAST_PER_CORE:,} or more"
    return spread_figure("modelled I/Os", rates, aim, lambda middle: middle >= 1, says)


def cpu_seconds(server: VolumeServer) -> float:
    """Return the CPU time of a server (proc_pid_stat(5))."""
    fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def model_alone() -> Figure:
    """Return the requests that the model decides on one core, divided by the aim."""
    tell("the model alone, in simulated time")
    target = f"{platform.machine()}-unknown-linux-gnu"
    argv = ["cargo", "run", "--release", "--locked", "--quiet", "--package=pcvolume"]
    path = f"{os.environ['PATH']}:{Path.home() / '.cargo/bin'}"
    folders = ["--target", target, "--target-dir", "build/cargo", "--example=model_speed"]
    done = run([*argv, *folders], cwd=TOP, timeout_seconds=600, env={"PATH": path})
    measured: dict[str, Any] = json.loads(done.stdout)
    ratio = measured["requests_per_second"] / LEAST_PER_CORE
    says = f"{measured['requests_per_second']:,.0f} requests a second, four limits with credits"
    aim = f"{LEAST_PER_CORE:,} or more"
    return single_figure("model alone", ratio, aim, ratio >= 1, says)


if __name__ == "__main__":
    for made in natively(Path(sys.argv[1]) if len(sys.argv) > 1 else scratch()):
        show(made)
