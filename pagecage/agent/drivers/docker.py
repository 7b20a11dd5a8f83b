"""Drivers that start the workload in a container.

The limits are set on the trial's slice or on the container itself.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pagecage.agent.drivers.container import (
    container_of,
    create_body,
    limit_body,
    limit_options,
    options,
    run_command,
)
from pagecage.agent.drivers.driver import ClientDriver, LaunchContext
from pagecage.agent.drivers.engine import IMAGE, ContainerEngine
from pagecage.errors import HostError
from pagecage.linux.cgroup import Cgroup
from pagecage.model.cage import Cage
from pagecage.model.json_codec import Json, JsonView
from pagecage.process import run

_ANSWER_SECONDS = 60.0
_CREATE_SECONDS = 120.0
_CONTAINER = re.compile(r"docker-[0-9a-f]+\.scope|[0-9a-f]{64}")


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("docker", timeout=_ANSWER_SECONDS)
        self._path = path

    def connect(self) -> None:
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


def call(method: str, path: str, body: JsonView | None = None) -> Any:
    """Send a request; return the decoded answer. Raises HostError with the engine's message."""
    connection = _UnixConnection(socket_of())
    try:
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, {"Content-Type": "application/json"} if text else {})
        answer = connection.getresponse()
        content, status = answer.read(), answer.status
    except (OSError, http.client.HTTPException) as error:
        sentence = f"Docker's API does not answer: {error}"
        raise HostError(sentence, "systemctl status docker") from None
    finally:
        connection.close()
    try:
        decoded = json.loads(content) if content else {}
    except ValueError:
        decoded = {}
    if status >= http.client.BAD_REQUEST:
        reason = decoded.get("message") if isinstance(decoded, dict) else None
        refusal = f"Docker's API refused {method} {path} ({status})"
        raise HostError(f"{refusal}: {reason or 'no reason given'}", "docker info")
    return decoded


class DockerDriver(ClientDriver):
    """Docker, with the trial's slice as the container's parent. The engine sets no limits."""

    name = program = "docker"
    _is_made = False

    @property
    def _engine(self) -> ContainerEngine:
        return self._services.engines.get(self.program)

    def prepare(self) -> Json:
        facts = self._engine.ready()
        self._engine.load_root()
        return {"engine": vars(facts)}

    def command(self, context: LaunchContext, argv: Sequence[str], /) -> list[str]:
        self._is_made = True
        *create, start = self.preview_commands(context, argv)
        for command in create:
            run(command, timeout_seconds=_CREATE_SECONDS)
            self._put_into_layer(context)
        return start

    def preview_commands(self, context: LaunchContext, argv: Sequence[str], /) -> list[list[str]]:
        """Return `docker run`; for data in the layer, `docker create` and `docker start`."""
        container, limits = container_of(context, argv), self._limits(context)
        if context.data_dir is not None:
            return [run_command(self.program, container, limits)]
        create = [self.program, "create", *options(container), *limits, IMAGE, *container.argv]
        return [create, self._start(context)]

    def clear(self, context: LaunchContext, /) -> None:
        if self._is_made:
            self._engine.remove(context.name)

    def _limits(self, _: LaunchContext) -> list[str]:
        return []

    def _start(self, context: LaunchContext) -> list[str]:
        return [self.program, "start", "--attach", "--interactive", context.name]

    def _put_into_layer(self, context: LaunchContext) -> None:
        """Link the files into the layer: `docker cp` would change the cache state of every page."""
        template = "{{.GraphDriver.Data.UpperDir}}"
        done = run([self.program, "inspect", "--format", template, context.name])
        upper = Path(done.stdout.strip())
        if not upper.is_dir():
            raise HostError(f"{self.program} has no writable layer for a container", "docker info")
        for file in context.files:
            target = upper / str(file).lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(file, target)


class DockerFlagsDriver(DockerDriver):
    """Docker with its own limits, set by options of `docker run`; the slice has the others."""

    name = "docker-flags"

    def slice_cage(self, cage: Cage, /) -> Cage:
        return cage_for_slice(cage)

    def own_cgroup(self, context: LaunchContext, /) -> Cgroup | None:
        """Return docker-ID.scope, or ID with the driver cgroupfs; None before it exists."""
        unified = context.cgroup.unified
        names = [path.name for path in unified.iterdir()] if unified else []
        return next((context.cgroup.child(one) for one in names if _CONTAINER.fullmatch(one)), None)

    def _limits(self, context: LaunchContext) -> list[str]:
        return limit_options(context.cage, context.disk.node)


class DockerApiDriver(DockerFlagsDriver):
    """Docker with its own limits, set by its HTTP API instead of its command line."""

    name = "docker-api"

    def command(self, context: LaunchContext, argv: Sequence[str], /) -> list[str]:
        self._is_made = True
        call("POST", f"/containers/create?name={context.name}", self._body(context, argv))
        if context.data_dir is None:
            self._put_into_layer(context)
        return self._start(context)

    def preview_commands(self, context: LaunchContext, argv: Sequence[str], /) -> list[list[str]]:
        url = f"http://docker/containers/create?name={context.name}"
        curl = ["curl", "--unix-socket", "/var/run/docker.sock"]
        body = ["-H", "Content-Type: application/json", "-d", json.dumps(self._body(context, argv))]
        return [[*curl, *body, url], self._start(context)]

    def _body(self, context: LaunchContext, argv: Sequence[str]) -> Json:
        body = create_body(container_of(context, argv), os.environ)
        body["HostConfig"] |= limit_body(context.cage, context.disk.node)
        return body


def cage_for_slice(cage: Cage) -> Cage:
    """Return the limits that Docker lacks: MemoryHigh, and swap without a memory limit.

    Docker's --memory-reservation sets memory.low, which protects and does not limit.
    """
    lacking = {"MemoryHigh"} | (set() if "MemoryMax" in cage.properties else {"MemorySwapMax"})
    return Cage(cage.name, {k: v for k, v in cage.properties.items() if k in lacking})
