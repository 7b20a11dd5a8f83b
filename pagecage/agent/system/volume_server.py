"""The server of a simulated volume: pcvolume-fuse, or nbdkit with a plugin (volume/README.md).

It serves one file, as a file of its own (FUSE) or over a unix socket (NBD), and takes commands over
another socket. Each command and each answer is a line of JSON.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pagecage.errors import HostDied, HostError
from pagecage.process import Process, dying_with_parent, find_tool, replay, spawn

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
        deadline = time.monotonic() + _START_SECONDS
        while not all((sockets / name).exists() for name in awaited):
            if process.poll() is not None or time.monotonic() > deadline:
                server.end()
                reason, name = server.last_line(), Path(argv[0]).name
                raise HostError(
                    f"{name} did not start: {reason}", f"run it by hand: {replay(argv)}"
                )
            time.sleep(0.01)
        return server

    @property
    def data_socket(self) -> Path:
        """The socket that serves the data (NBD)."""
        return self._sockets / DATA_SOCKET

    @property
    def control_socket(self) -> Path:
        """The socket that takes commands."""
        return self._sockets / CONTROL_SOCKET

    @property
    def pid(self) -> int:
        """The process of the server, which setpriv(1) became."""
        return self._process.pid

    def alive(self) -> bool:
        """Return whether the server is running."""
        return self._process.poll() is None

    def command(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a command.

        Raises HostDied if the server has ended, and HostError if it refuses the command.
        """
        try:
            return send_command(self.control_socket, command)
        except HostError:
            if not self.alive():
                raise HostDied(
                    f"the simulated volume ended: {self.last_line()}",
                    "run it again; finished trials are kept",
                ) from None
            raise

    def last_line(self) -> str:
        """Return the last line that the server printed."""
        text = self._log.read_text(errors="replace") if self._log.exists() else ""
        return (text.strip().splitlines() or ["it printed no reason"])[-1]

    def end(self) -> None:
        """Kill and reap the server and remove its sockets. Safe at any time."""
        self._process.kill()
        self._process.wait()
        _remove_sockets(self._sockets)


def _remove_sockets(directory: Path) -> None:
    for name in (DATA_SOCKET, CONTROL_SOCKET):
        (directory / name).unlink(missing_ok=True)


def server_argv(plugin: Path, file: Path, sockets: Path) -> list[str]:
    """Return the command that serves a file (nbdkit(1))."""
    return [
        "nbdkit",
        "--foreground",
        "--unix",
        str(sockets / DATA_SOCKET),
        "--threads",
        str(THREADS),
        str(plugin),
        f"file={file}",
        f"control={sockets / CONTROL_SOCKET}",
    ]


def require_nbdkit() -> None:
    """Raise HostError if nbdkit is not installed."""
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
        raise HostError(
            f"{plugin.name} needs glibc {needed[0]}.{needed[1]} or newer, and this machine has"
            f" {here}",
            "use --enforced-by cgroup, or a machine with a newer C library",
        )


def glibc_version() -> tuple[int, int] | None:
    """Return the version of this machine's glibc; None with another C library, such as musl."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (OSError, ValueError):
        return None
    major, _, minor = version.partition(".")
    return (int(major), int(minor)) if name == "glibc" else None


def send_command(control: Path, command: Mapping[str, Any]) -> dict[str, Any]:
    """Send one command to a control socket and return the answer.

    Raises HostError if nobody answers within the time limit, or if the command is refused.
    """
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_ANSWER_SECONDS)
            connection.connect(str(control))
            connection.sendall(json.dumps(command).encode() + b"\n")
            with connection.makefile("rb") as lines:
                answer: dict[str, Any] = json.loads(lines.readline() or b"{}")
    except (OSError, ValueError) as error:
        raise HostError(f"the simulated volume does not answer: {error}") from None
    if "error" in answer:
        raise HostError(f"the simulated volume refused a command: {answer['error']}")
    return answer
