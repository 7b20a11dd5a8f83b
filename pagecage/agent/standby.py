"""An agent that has loaded everything and waits for a client, so that a restored guest need not start one.

Starting Python, importing the agent and attaching bpftrace take an emulated CPU about ten seconds. A machine state that
is saved with an agent in standby has that behind it. The client hands over its standard streams (SCM_RIGHTS, unix(7)),
from then on the agent behaves as if the client's shell had started it.
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
    """One agent in standby: its tracers, and the socket at which it waits. It serves one client."""

    def __init__(self, spool: Path, data_dir: Path, tracer_names: Collection[str]) -> None:
        """Attach the named tracers and ask every tool for its version, which takes seconds, before anybody waits."""
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
        """Wait for the client and take over its standard input, output and error for the time of the block.

        The socket exists as long as the agent waits: a client that finds none has to start an agent.
        """
        aside = self._path.with_suffix(".part")
        for path in (aside, self._path):
            path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(aside))
            listener.listen(1)
            aside.rename(self._path)
            self._client, _ = listener.accept()
        self._path.unlink()
        with self._client:
            _, streams, _, _ = socket.recv_fds(self._client, 1, len(_STREAMS))
            for ours, theirs in zip(_STREAMS, streams, strict=True):
                os.dup2(theirs, ours)
                os.close(theirs)
            yield

    def finish(self, status: int) -> None:
        """Send the client the exit status that it ends with. A client that has gone needs none."""
        assert self._client is not None, "finish() belongs into the block of accept()"
        with suppress(OSError):
            self._client.sendall(bytes([status]))
