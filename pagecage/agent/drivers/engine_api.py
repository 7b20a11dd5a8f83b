"""The part of Docker's HTTP API that a trial needs, over its Unix socket (Engine API v1.44)."""

from __future__ import annotations

import http.client
import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pagecage.errors import HostError

_ANSWER_SECONDS = 60.0


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("docker", timeout=_ANSWER_SECONDS)
        self._path = path

    def connect(self) -> None:
        """Connect to the engine's socket (unix(7))."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(_ANSWER_SECONDS)
        self.sock.connect(str(self._path))


def socket_of(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the engine's socket: DOCKER_HOST, else the user's if it exists, else the system's."""
    named = environment.get("DOCKER_HOST", "")
    if named.startswith("unix://"):
        return Path(named.removeprefix("unix://"))
    own = Path(environment.get("XDG_RUNTIME_DIR", "/nonexistent"), "docker.sock")
    return own if os.getuid() and own.exists() else Path("/var/run/docker.sock")


def call(method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
    """Send one request and return the decoded answer.

    Raises HostError with the engine's message.
    """
    connection = _UnixConnection(socket_of())
    try:
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, {"Content-Type": "application/json"} if text else {})
        answer = connection.getresponse()
        content, status = answer.read(), answer.status
    except (OSError, http.client.HTTPException) as error:
        raise HostError(
            f"Docker's API does not answer: {error}", "systemctl status docker"
        ) from None
    finally:
        connection.close()
    decoded = _decode(content)
    if status >= http.client.BAD_REQUEST:
        reason = decoded.get("message") if isinstance(decoded, dict) else None
        raise HostError(
            f"Docker's API refused {method} {path} ({status}): {reason or 'no reason given'}",
            "docker info",
        )
    return decoded


def _decode(content: bytes) -> Any:
    try:
        return json.loads(content) if content else {}
    except ValueError:
        return {}
