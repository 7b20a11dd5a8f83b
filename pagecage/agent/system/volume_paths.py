"""The paths from a simulated volume's server to a block device, best first.

- `fuse-loop`: pcvolume-fuse serves a file, and loop(4) makes a block device of it.
- `nbd`: nbdkit serves a socket, and the kernel's nbd client makes a block device of it.

Each keeps in its folder what a later start needs to undo it.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import random
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from statistics import quantiles
from typing import Any, Protocol

from pagecage.agent.system.block_device import parse_mountinfo
from pagecage.agent.system.kernel_text import read_text
from pagecage.agent.system.volume_server import (
    FUSE_PROGRAM,
    PLUGIN,
    SERVED_FILE,
    VolumeServer,
    require_nbdkit,
)
from pagecage.errors import HostError, PagecageError
from pagecage.process import find_tool, run

SYS_BLOCK = Path("/sys/block")
FUSE_LOOP, NBD = "fuse-loop", "nbd"
_FUSE, _LOOP_CONTROL = Path("/dev/fuse"), Path("/dev/loop-control")
_LOOP_CTL_GET_FREE = 0x4C82  # linux/loop.h
_ATTEMPTS = 5
_NODE_SECONDS = 5.0
_BLOCK_BYTES = 4096
_LARGEST_KB = 1024
"""The longest request of FUSE. A longer one of the loop device would become two."""


class VolumePath(Protocol):
    """One path. Its methods raise PagecageError."""

    name: str

    def require(self) -> None:
        """Raise HostError with what this machine lacks."""

    def serve(self, programs: Path, file: Path, folder: Path) -> VolumeServer:
        """Start the server of a file. `programs` holds pagecage's own."""

    def attach(self, server: VolumeServer, folder: Path) -> Path:
        """Return the block device of a server. Its name is noted before, for `detach`."""

    def detach(self, folder: Path) -> list[str]:
        """Undo `attach`, and what else is left of the path; return the names of what was there."""


class FuseLoop:
    """FUSE and loop(4): needs no program but losetup(8)."""

    name = FUSE_LOOP

    def require(self) -> None:
        """Raise HostError without root, FUSE or loop devices."""
        _require_root()
        for node, module in ((_FUSE, "fuse"), (_LOOP_CONTROL, "loop")):
            if not node.exists():
                raise HostError(f"a simulated volume needs {node}", f"modprobe {module}")
        if find_tool("losetup") is None:
            raise HostError("a simulated volume needs losetup", "apt-get install util-linux")

    def serve(self, programs: Path, file: Path, folder: Path) -> VolumeServer:
        """Start pcvolume-fuse."""
        log = folder / "server.log"
        return VolumeServer.start_fuse(programs / FUSE_PROGRAM, file, folder, log)

    def attach(self, server: VolumeServer, folder: Path) -> Path:  # noqa: ARG002
        """Make a loop device of the served file. Another process may take the free one first."""
        # Until a stat, the inode has the size 0, which loop(4) of older kernels takes over
        # (get_loop_size in drivers/block/loop.c, seen on Linux 6.12).
        (folder / SERVED_FILE).stat()
        for attempt in range(_ATTEMPTS):
            node = _free_loop()
            settings = ["--direct-io=on", "--sector-size", str(_BLOCK_BYTES)]
            done = run(
                ["losetup", *settings, node, folder / SERVED_FILE],
                check=attempt == _ATTEMPTS - 1,
                timeout_seconds=30,
            )
            if done.ok:
                break
        queue = SYS_BLOCK / node.name / "queue/max_sectors_kb"
        queue.write_text(str(_LARGEST_KB))
        return node

    def detach(self, folder: Path) -> list[str]:
        """Detach the loop devices of the served file, and unmount it, even if its server died."""
        served, removed = folder / SERVED_FILE, []
        for name in _loops_of(served):
            run(["losetup", "--detach", Path("/dev") / name], check=False, timeout_seconds=60)
            _await_gone(served, name)
            removed.append(name)
        while is_mounted(served):
            run(["umount", "--lazy", served], timeout_seconds=60)
            removed.append(str(served))
        return removed


def _free_loop() -> Path:
    """Return the node of a free loop device, made where nothing makes nodes, as in a container."""
    with _LOOP_CONTROL.open("rb") as control:
        node = Path(f"/dev/loop{fcntl.ioctl(control, _LOOP_CTL_GET_FREE)}")
    if not node.exists():
        major, minor = (SYS_BLOCK / node.name / "dev").read_text().split(":")
        with suppress(FileExistsError):
            os.mknod(node, stat.S_IFBLK | 0o600, os.makedev(int(major), int(minor)))
    return node


def _loops_of(served: Path) -> list[str]:
    """Return the names of the loop devices of a file."""
    files = SYS_BLOCK.glob("loop*/loop/backing_file")
    return sorted(
        path.parts[-3] for path in files if (read_text(path) or "").strip() == str(served)
    )


def _await_gone(served: Path, name: str) -> None:
    """Wait until a loop device is free. Raises PagecageError if a program holds it open."""
    deadline = time.monotonic() + _NODE_SECONDS
    while name in _loops_of(served):
        if time.monotonic() > deadline:
            raise PagecageError(f"/dev/{name} is still in use", f"fuser -vm /dev/{name}")
        time.sleep(0.02)


def is_mounted(path: Path) -> bool:
    """Return whether something is mounted here. The kernel's list tells it of dead servers too."""
    text = os.fsdecode(Path("/proc/self/mountinfo").read_bytes())
    return any(mount.mount_point == str(path) for mount in parse_mountinfo(text))


class NbdClient:
    """nbdkit and the kernel's nbd client, which fails all I/O when nbdkit has ended."""

    name = NBD

    def require(self) -> None:
        """Raise HostError without root, nbdkit or nbd-client."""
        require_nbdkit()
        if not find_tool("nbd-client"):
            raise HostError("a simulated volume needs nbd-client", "apt-get install nbd-client")
        _require_root()

    def serve(self, programs: Path, file: Path, folder: Path) -> VolumeServer:
        """Start nbdkit."""
        return VolumeServer.start(programs / PLUGIN, file, folder, folder / "server.log")

    def attach(self, server: VolumeServer, folder: Path) -> Path:
        """Attach the kernel's client to the volume's socket."""
        run(["modprobe", "nbd"], timeout_seconds=30)
        node = _free_nbd()
        (folder / "node").write_text(node.name)
        size = ["-timeout", "30", "-block-size", str(_BLOCK_BYTES)]
        run(["nbd-client", "-unix", server.data_socket, node, *size], timeout_seconds=30)
        deadline = time.monotonic() + _NODE_SECONDS
        while (read_text(SYS_BLOCK / node.name / "size") or "0").strip() == "0":
            if time.monotonic() > deadline:
                raise HostError(f"{node} has no size", "use HOST=vm")
            time.sleep(0.02)
        return node

    def detach(self, folder: Path) -> list[str]:
        """Detach the client whose name was noted."""
        noted, removed = folder / "node", []
        if noted.exists():
            node = noted.read_text().strip()
            if (SYS_BLOCK / node / "pid").exists():
                done = run(["nbd-client", "-d", f"/dev/{node}"], check=False, timeout_seconds=60)
                if not done.ok:
                    reason = f"/dev/{node} cannot be detached: {done.stderr.strip()}"
                    raise PagecageError(reason, "restart the host")
                removed.append(node)
            noted.unlink()
        return removed


def _free_nbd(sys_block: Path = SYS_BLOCK) -> Path:
    """Return a node of the kernel's client that nobody uses: it has a `pid` while in use."""
    names = sorted(path.name for path in sys_block.glob("nbd*") if not (path / "pid").exists())
    if not names:
        raise HostError("no free /dev/nbd: the kernel's module nbd is missing", "use HOST=vm")
    return Path("/dev") / names[0]


def _require_root() -> None:
    if os.getuid() != 0:
        raise HostError("only root may attach a simulated volume", "use HOST=vm")


PATHS: tuple[VolumePath, ...] = (FuseLoop(), NbdClient())


def choose_path() -> VolumePath:
    """Return the best path of this machine. Raises HostError with what the best one lacks."""
    obstacles = []
    for path in PATHS:
        try:
            path.require()
        except HostError as error:
            obstacles.append(error)
        else:
            return path
    raise obstacles[0]


_SET_US = 500.0
_READS, _MOST_CPUS, _MOST_SECONDS = 600, 4, 0.8


def path_latency_us(node: Path, command: Callable[[Mapping[str, Any]], dict[str, Any]]) -> float:
    """Return what the path to a volume adds to a read at depth 1 of 4 KiB, in microseconds.

    The volume answers after a constant time, in which its bytes are read, so that the file below
    takes no part. Without this wait the CPUs would not go idle, as they do between the requests of
    a program. To wake another CPU takes twice as long as to go on with the same one, so the result
    is the longest of several CPUs. Of each it is the lowest decile, because a median rises to
    milliseconds where another program uses the CPU. The volume has no limit afterwards.
    """
    latency = {"size_bytes": _BLOCK_BYTES, "quantiles": [[0.5, _SET_US]]}
    command({"configure": {"read_latency": [latency]}})
    took_us = max(quantiles(reads, n=10)[0] for reads in _reads_us(node))
    account = command({"account": True})
    command({"configure": {}})
    reads, inside_us = account["total_read_ops"], _SET_US
    if account["pcvolume"]["late_ops"] > reads / 2:  # the file below needs more than that time
        inside_us = account["total_read_time"] / reads
    return max(0.0, round(took_us - inside_us, 1))


def _reads_us(node: Path) -> Iterator[list[float]]:
    """Yield the times of reads at random, one after another, on each of some CPUs."""
    chosen, allowed = random.Random(1), os.sched_getaffinity(0)
    cpus = sorted(allowed)[:_MOST_CPUS]
    device = os.open(node, os.O_RDONLY | os.O_DIRECT)
    try:
        blocks = os.lseek(device, 0, os.SEEK_END) // _BLOCK_BYTES
        with mmap.mmap(-1, _BLOCK_BYTES) as page:  # aligned, as direct I/O needs it
            for cpu in cpus:
                os.sched_setaffinity(0, {cpu})
                until = time.monotonic() + _MOST_SECONDS / len(cpus)
                took: list[float] = []
                while len(took) < _READS / len(cpus) and (
                    time.monotonic() < until or len(took) < 2
                ):
                    offset = chosen.randrange(blocks) * _BLOCK_BYTES
                    began_ns = time.perf_counter_ns()
                    os.preadv(device, [page], offset)
                    took.append((time.perf_counter_ns() - began_ns) / 1000)
                yield took
    finally:
        os.sched_setaffinity(0, allowed)
        os.close(device)
