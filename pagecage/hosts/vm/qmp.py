"""QEMU's control socket: the asynchronous `qemu.qmp` library, asked one thing at a time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

from qemu.qmp import ExecuteError, QMPClient, QMPError

from pagecage.errors import HostDied, HostError

T = TypeVar("T")
_ANSWER_SECONDS = 30.0
# What the library logs we raise; without a handler of its own Python would print it as well.
logging.getLogger("qemu.qmp").addHandler(logging.NullHandler())


class QmpClient:
    """A connection to the QMP socket of one QEMU. Raises HostDied when QEMU is gone, HostError when it refuses."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._loop = asyncio.new_event_loop()
        self._client = QMPClient("pagecage")

    def connect(self, timeout_seconds: float) -> bool:
        """Try until the socket answers; False when it did not in that time."""
        deadline = time.monotonic() + timeout_seconds
        while time.monotonic() < deadline:
            if self._socket.exists() and self._connect():
                return True
            time.sleep(0.01)
        return False

    def _connect(self) -> bool:
        try:
            self._wait(self._client.connect(str(self._socket)))
            return True
        except (QMPError, OSError):
            self._wait(self._disconnect())
            self._client = QMPClient("pagecage")
            return False

    def execute(self, command: str, **arguments: Any) -> Any:
        """The return value of one QMP command; underscores in argument names stand for QMP's dashes."""
        return self.execute_as_spelt(command, {name.replace("_", "-"): value for name, value in arguments.items()})

    def execute_as_spelt(self, command: str, arguments: Mapping[str, Any]) -> Any:
        """The same for an older command, whose argument names have underscores."""
        given = dict(arguments) or None
        try:
            return self._wait(asyncio.wait_for(self._client.execute(command, given), _ANSWER_SECONDS))
        except ExecuteError as error:
            raise HostError(f"QEMU refused {command}: {error}") from None
        except (TimeoutError, QMPError, OSError, asyncio.IncompleteReadError) as error:
            raise HostDied(f"QEMU no longer answers ({type(error).__name__})", "run it again") from None

    def status(self) -> str:
        """The run state as QEMU names it (running, paused, inmigrate, postmigrate...)."""
        return str(self.execute("query-status")["status"])

    def forwarded_port(self) -> int:
        """The loopback port behind which the guest's ssh listens, as slirp bound it."""
        table = self.execute("human-monitor-command", command_line="info usernet")
        return parse_forwarded_port(table)

    def close(self) -> None:
        """Let go of the socket; QEMU goes on."""
        if not self._loop.is_closed():
            self._wait(self._disconnect())
            self._loop.close()

    async def _disconnect(self) -> None:
        with contextlib.suppress(QMPError, OSError, EOFError):  # the other end went first: nothing is left to close
            await self._client.disconnect()

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(coroutine)


def parse_forwarded_port(table: str) -> int:
    """The source port of the HOST_FORWARD line in `info usernet`. Raises HostError when there is none."""
    found = re.search(r"TCP\[HOST_FORWARD\]\s+\d+\s+127\.0\.0\.1\s+(\d+)\s", table)
    if not found:
        raise HostError("QEMU forwards no port to the guest", "pagecage host rebuild vm")
    return int(found.group(1))
