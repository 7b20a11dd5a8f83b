"""The server of a simulated volume, and the path from it to a block device."""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import random
import re
import socket
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import quantiles

from pagecage.errors import HostDied, HostError, PagecageError
from pagecage.linux.block_device import parse_mountinfo, read_mountinfo
from pagecage.linux.procfs import read_text
from pagecage.model.json_codec import Json, JsonView
from pagecage.process import (
    Process,
    dying_with_parent,
    find_tool,
    last_line,
    replay,
    run,
    spawn,
    wait_until,
)

PLUGIN = "libpcvolume.so"
FUSE_PROGRAM = "pcvolume-fuse"
SERVED_FILE = "served"
"""The file over which pcvolume-fuse mounts the volume, in the folder of its control socket."""
DATA_SOCKET, CONTROL_SOCKET = "volume", "volume-control"
THREADS = 64
"""Requests that are served at the same time; each sleeps until the time of its reply."""
_START_SECONDS = 10.0
_ANSWER_SECONDS = 10.0
_GLIBC_SYMBOLS = re.compile(rb"GLIBC_(\d+)\.(\d+)")


class VolumeServer:
    """A running server. Its sockets are in a directory of their own or of its caller."""

    def __init__(self, process: Process[bytes], sockets: Path, log: Path) -> None:
        self._process, self._sockets, self._log = process, sockets, log

    @classmethod
    def start(cls, plugin: Path, file: Path, sockets: Path, log: Path) -> VolumeServer:
        """Serve a file by nbdkit, without a limit at first; return when the volume can be used.

        Sockets that a killed server left in the directory are removed. The server ends with the
        calling thread. Raises HostError with nbdkit's message if it ends at once, and if the plugin
        needs a newer C library.
        """
        require_c_library(plugin)
        argv = server_argv(plugin, file, sockets)
        return cls._running(argv, sockets, log, (DATA_SOCKET, CONTROL_SOCKET))

    @classmethod
    def start_fuse(cls, program: Path, file: Path, folder: Path, log: Path) -> VolumeServer:
        """Serve a file as the file SERVED_FILE of a folder, as `start` does. Only root may."""
        at = folder / SERVED_FILE
        at.touch()
        control = folder / CONTROL_SOCKET
        argv = [str(program), f"file={file}", f"at={at}", f"control={control}"]
        return cls._running(argv, folder, log, (CONTROL_SOCKET,))

    @classmethod
    def _running(
        cls, argv: list[str], sockets: Path, log: Path, awaited: Sequence[str]
    ) -> VolumeServer:
        _remove_sockets(sockets)
        with log.open("wb") as output:
            process = spawn(dying_with_parent(argv), stdout=output, stderr=output, new_session=True)
        server = cls(process, sockets, log)

        def serves() -> bool:
            return all((sockets / name).exists() for name in awaited)

        wait_until(lambda: serves() or process.poll() is not None, _START_SECONDS)
        if not serves():
            server.end()
            reason = f"{Path(argv[0]).name} did not start: {server.last_line()}"
            raise HostError(reason, f"run it by hand: {replay(argv)}")
        return server

    @property
    def data_socket(self) -> Path:
        return self._sockets / DATA_SOCKET

    @property
    def control_socket(self) -> Path:
        return self._sockets / CONTROL_SOCKET

    @property
    def pid(self) -> int:
        """The process of the server, which setpriv(1) became."""
        return self._process.pid

    def alive(self) -> bool:
        return self._process.poll() is None

    def command(self, command: JsonView) -> Json:
        """Return the answer to a command. Raises HostDied if the server has ended, or HostError."""
        try:
            return send_command(self.control_socket, command)
        except HostError:
            if not self.alive():
                reason = f"the simulated volume ended: {self.last_line()}"
                raise HostDied(reason, "run it again; finished trials are kept") from None
            raise

    def last_line(self) -> str:
        return last_line(self._log.read_text(errors="replace") if self._log.exists() else "")

    def end(self) -> None:
        """Kill and reap the server and remove its sockets. Safe at any time."""
        self._process.kill()
        self._process.wait()
        _remove_sockets(self._sockets)


def _remove_sockets(directory: Path) -> None:
    for name in (DATA_SOCKET, CONTROL_SOCKET):
        (directory / name).unlink(missing_ok=True)


def server_argv(plugin: Path, file: Path, sockets: Path) -> list[str]:
    options = ["--foreground", "--unix", str(sockets / DATA_SOCKET), "--threads", str(THREADS)]
    control = f"control={sockets / CONTROL_SOCKET}"
    return ["nbdkit", *options, str(plugin), f"file={file}", control]


def require_nbdkit() -> None:
    if find_tool("nbdkit") is None:
        raise HostError("a simulated volume needs nbdkit", "apt-get install nbdkit")


def require_c_library(plugin: Path) -> None:
    """Raise HostError if the plugin was linked with a newer glibc, or if this machine has another.

    The workloads are static; the plugin is loaded by the machine's own nbdkit.
    """
    found = _GLIBC_SYMBOLS.findall(plugin.read_bytes())
    needed = max(((int(major), int(minor)) for major, minor in found), default=(0, 0))
    present = glibc_version()
    if needed > (present or (0, 0)):
        here = f"glibc {present[0]}.{present[1]}" if present else "a C library other than glibc"
        reason = f"{plugin.name} needs glibc {needed[0]}.{needed[1]} or newer, and this machine has"
        hint = "use --enforced-by cgroup, or a machine with a newer C library"
        raise HostError(f"{reason} {here}", hint)


def glibc_version() -> tuple[int, int] | None:
    """Return the version of this machine's glibc; None with another C library, such as musl."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (OSError, ValueError):
        return None
    major, _, minor = version.partition(".")
    return (int(major), int(minor)) if name == "glibc" else None


def ask_socket(place: Path, question: JsonView, seconds: float) -> Json | None:
    """Send a line of JSON to a unix socket; return the answer's, None if it closes.

    Raises OSError and ValueError.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(seconds)
        connection.connect(str(place))
        connection.sendall(json.dumps(question).encode() + b"\n")
        with connection.makefile("rb") as lines:
            answer: Json | None = json.loads(lines.readline() or b"null")
    return answer


def send_command(control: Path, command: JsonView) -> Json:
    """Send one command; return the answer. Raises HostError if refused or not answered."""
    try:
        answer = ask_socket(control, command, _ANSWER_SECONDS) or {}
    except (OSError, ValueError) as error:
        raise HostError(f"the simulated volume does not answer: {error}") from None
    if "error" in answer:
        raise HostError(f"the simulated volume refused a command: {answer['error']}")
    return answer


SYS_BLOCK = Path("/sys/block")
FUSE_LOOP, NBD = "fuse-loop", "nbd"
_FUSE, _LOOP_CONTROL = Path("/dev/fuse"), Path("/dev/loop-control")
_LOOP_CTL_GET_FREE = 0x4C82  # linux/loop.h
_ATTEMPTS = 5
_NODE_SECONDS = 5.0
_BLOCK_BYTES = 4096
_LARGEST_KB = 1024
"""The longest request of FUSE. A longer one of the loop device would become two."""


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
        log = folder / "server.log"
        return VolumeServer.start_fuse(programs / FUSE_PROGRAM, file, folder, log)

    def attach(self, server: VolumeServer, folder: Path) -> Path:  # noqa: ARG002
        """Make a loop device of the served file. Another process may take the free one first."""
        # Until a stat, the inode has the size 0, which loop(4) of older kernels takes over
        # (get_loop_size in drivers/block/loop.c, seen on Linux 6.12).
        (folder / SERVED_FILE).stat()
        for attempt in range(_ATTEMPTS):
            # The node is made where nothing makes nodes, as in a container.
            with _LOOP_CONTROL.open("rb") as control:
                node = Path(f"/dev/loop{fcntl.ioctl(control, _LOOP_CTL_GET_FREE)}")
            if not node.exists():
                major, minor = (SYS_BLOCK / node.name / "dev").read_text().split(":")
                with suppress(FileExistsError):
                    os.mknod(node, stat.S_IFBLK | 0o600, os.makedev(int(major), int(minor)))
            settings = ["--direct-io=on", "--sector-size", str(_BLOCK_BYTES)]
            done = run(
                ["losetup", *settings, node, folder / SERVED_FILE],
                check=attempt == _ATTEMPTS - 1,
                timeout_seconds=30,
            )
            if done.ok:
                break
        (SYS_BLOCK / node.name / "queue/max_sectors_kb").write_text(str(_LARGEST_KB))
        return node

    def detach(self, folder: Path) -> list[str]:
        """Detach the loop devices of the served file, and unmount it, even if its server died."""
        served, removed = folder / SERVED_FILE, []
        for name in _loops_of(served):
            node = Path("/dev") / name
            run(["losetup", "--detach", node], check=False, timeout_seconds=60)
            in_use = PagecageError(f"{node} is still in use", f"fuser -vm {node}")
            await_device(partial(_is_detached, served, name), in_use)
            removed.append(name)
        while is_mounted(served):
            run(["umount", "--lazy", served], timeout_seconds=60)
            removed.append(str(served))
        return removed


def _loops_of(served: Path) -> list[str]:
    files = SYS_BLOCK.glob("loop*/loop/backing_file")
    return sorted(
        path.parts[-3] for path in files if (read_text(path) or "").strip() == str(served)
    )


def _is_detached(served: Path, loop: str) -> bool:
    return loop not in _loops_of(served)


def await_device(is_so: Callable[[], bool], error: PagecageError) -> None:
    """Wait up to 5 s for a state of a block device; raise the error if it does not come."""
    if not wait_until(is_so, _NODE_SECONDS, 0.02):
        raise error


def is_mounted(path: Path) -> bool:
    """Return whether something is mounted here. The kernel's list tells it of dead servers too."""
    return any(mount.mount_point == str(path) for mount in parse_mountinfo(read_mountinfo()))


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
        return VolumeServer.start(programs / PLUGIN, file, folder, folder / "server.log")

    def attach(self, server: VolumeServer, folder: Path) -> Path:
        """Attach the kernel's client to the volume's socket."""
        run(["modprobe", "nbd"], timeout_seconds=30)
        # A client in use has the file `pid`.
        free = sorted(path.name for path in SYS_BLOCK.glob("nbd*") if not (path / "pid").exists())
        if not free:
            raise HostError("no free /dev/nbd: the kernel's module nbd is missing", "use HOST=vm")
        node = Path("/dev") / free[0]
        (folder / "node").write_text(node.name)
        size = ["-timeout", "30", "-block-size", str(_BLOCK_BYTES)]
        run(["nbd-client", "-unix", server.data_socket, node, *size], timeout_seconds=30)
        size_file = SYS_BLOCK / node.name / "size"
        await_device(
            lambda: (read_text(size_file) or "0").strip() != "0",
            HostError(f"{node} has no size", "use HOST=vm"),
        )
        return node

    def detach(self, folder: Path) -> list[str]:
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


def _require_root() -> None:
    if os.getuid() != 0:
        raise HostError("only root may attach a simulated volume", "use HOST=vm")


VolumePath = FuseLoop | NbdClient
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


def path_latency_us(node: Path, command: Callable[[JsonView], Json]) -> float:
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
