"""Docker's HTTP API over its unix socket (Engine API v1.44), as far as a trial needs it."""

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
    """HTTP over a socket of the file system."""

    def __init__(self, path: Path) -> None:
        super().__init__("docker", timeout=_ANSWER_SECONDS)
        self._path = path

    def connect(self) -> None:
        """Connect to the engine (unix(7))."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(_ANSWER_SECONDS)
        self.sock.connect(str(self._path))


def socket_of(environment: Mapping[str, str] = os.environ) -> Path:
    """Where the engine listens: DOCKER_HOST where it names a socket, a user's own, or the system's."""
    named = environment.get("DOCKER_HOST", "")
    if named.startswith("unix://"):
        return Path(named.removeprefix("unix://"))
    own = Path(environment.get("XDG_RUNTIME_DIR", "/nonexistent"), "docker.sock")
    return own if os.getuid() and own.exists() else Path("/var/run/docker.sock")


def call(method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
    """The answer to one request, decoded. Raises HostError with the engine's own words."""
    connection = _UnixConnection(socket_of())
    try:
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, {"Content-Type": "application/json"} if text else {})
        answer = connection.getresponse()
        said, status = answer.read(), answer.status
    except (OSError, http.client.HTTPException) as error:
        raise HostError(f"Docker's API does not answer: {error}", "systemctl status docker") from None
    finally:
        connection.close()
    told = _decoded(said)
    if status >= http.client.BAD_REQUEST:
        reason = told.get("message") if isinstance(told, dict) else None
        raise HostError(f"Docker's API refused {method} {path} ({status}): {reason or 'no reason'}", "docker info")
    return told


def _decoded(said: bytes) -> Any:
    try:
        return json.loads(said) if said else {}
    except ValueError:
        return {}
