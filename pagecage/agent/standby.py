"""An agent that waits, fully loaded, for a client, so that a restored guest need not start one.

Starting Python, importing the agent and attaching bpftrace take about ten seconds on an emulated
CPU. A machine state that is saved with an agent in standby saves this time. The client passes its
standard streams to the agent (SCM_RIGHTS, unix(7)), which then behaves as if the client's shell had
started it.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pagecage.agent.collectors.tracers import Tracers
from pagecage.agent.system.facts import read_facts

SOCKET_NAME = "standby.sock"
_STREAMS = (0, 1, 2)


class Standby:
    """An agent in standby, with its tracers and its socket. It serves one client."""

    def __init__(self, spool: Path, data_dir: Path, tracer_names: Collection[str]) -> None:
        """Attach the named tracers and read each tool's version, which takes seconds."""
        self.tracers = Tracers.of(spool)
        self._path = spool / SOCKET_NAME
        self._client: socket.socket | None = None
        for tracer in self.tracers.missing(tracer_names):
            tracer.begin()
        read_facts(data_dir, os.getuid() != 0)
        for tracer in self.tracers.all:
            tracer.wait_until_attached()

    @contextmanager
    def accept(self) -> Iterator[None]:
        """Wait for the client and use its standard input, output and error during the block.

        The socket exists while the agent waits. A client that finds no socket must start an agent.
        """
        unlisted = self._path.with_suffix(".part")
        for path in (unlisted, self._path):
            path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(unlisted))
            listener.listen(1)
            unlisted.rename(self._path)
            self._client, _ = listener.accept()
        self._path.unlink()
        with self._client:
            _, streams, _, _ = socket.recv_fds(self._client, 1, len(_STREAMS))
            for stream, received in zip(_STREAMS, streams, strict=True):
                os.dup2(received, stream)
                os.close(received)
            yield

    def finish(self, status: int) -> None:
        """Send the client its exit status, if it is still connected."""
        assert self._client is not None, "finish() must be called within the block of accept()"
        with suppress(OSError):
            self._client.sendall(bytes([status]))
