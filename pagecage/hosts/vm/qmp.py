"""Synchronous client of QEMU's control socket, on the asynchronous library `qemu.qmp`."""

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
# The library logs errors that are also raised; without a handler Python would print them.
logging.getLogger("qemu.qmp").addHandler(logging.NullHandler())


class QmpClient:
    """A connection to QEMU's QMP socket.

    Its methods raise HostDied if QEMU has ended, and HostError if QEMU rejects a command.
    """

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._loop = asyncio.new_event_loop()
        self._client = QMPClient("pagecage")

    def connect(self, timeout_seconds: float) -> bool:
        """Try to connect until the time limit; return whether it succeeded."""
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
        """Return the result of a QMP command; underscores in argument names become dashes."""
        return self.execute_verbatim(
            command, {name.replace("_", "-"): value for name, value in arguments.items()}
        )

    def execute_verbatim(self, command: str, arguments: Mapping[str, Any]) -> Any:
        """Return the result of a QMP command whose argument names contain underscores."""
        try:
            return self._wait(
                asyncio.wait_for(
                    self._client.execute(command, dict(arguments) or None), _ANSWER_SECONDS
                )
            )
        except ExecuteError as error:
            raise HostError(f"QEMU rejected {command}: {error}") from None
        except (TimeoutError, QMPError, OSError, asyncio.IncompleteReadError) as error:
            raise HostDied(
                f"QEMU no longer answers ({type(error).__name__})", "run it again"
            ) from None

    def status(self) -> str:
        """Return QEMU's run state (running, paused, inmigrate, postmigrate...)."""
        return str(self.execute("query-status")["status"])

    def forwarded_port(self) -> int:
        """Return the loopback port that QEMU forwards to the guest's ssh."""
        table = self.execute("human-monitor-command", command_line="info usernet")
        return parse_forwarded_port(table)

    def close(self) -> None:
        """Close the connection; QEMU continues."""
        if not self._loop.is_closed():
            self._wait(self._disconnect())
            self._loop.close()

    async def _disconnect(self) -> None:
        with contextlib.suppress(
            QMPError, OSError, EOFError
        ):  # QEMU may have closed the connection first
            await self._client.disconnect()

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(coroutine)


def parse_forwarded_port(table: str) -> int:
    """Return the source port in the HOST_FORWARD line of `info usernet`.

    Raises HostError if there is none.
    """
    found = re.search(r"TCP\[HOST_FORWARD\]\s+\d+\s+127\.0\.0\.1\s+(\d+)\s", table)
    if not found:
        raise HostError("QEMU forwards no port to the guest", "pagecage host rebuild vm")
    return int(found.group(1))
