"""Drivers that start the workload in a container.

The limits are set on the trial's slice or on the container itself.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
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
from pagecage.agent.drivers.engine import IMAGE, ContainerEngine, call
from pagecage.errors import HostError
from pagecage.linux.cgroup import Cgroup
from pagecage.model.cage import Cage
from pagecage.process import run

_CREATE_SECONDS = 120.0
_CONTAINER = re.compile(r"docker-[0-9a-f]+\.scope|[0-9a-f]{64}")


class DockerDriver(ClientDriver):
    """Docker or podman, with the trial's slice as the container's parent.

    The engine sets no limits.
    """

    def __init__(self, engine: ContainerEngine) -> None:
        self._engine = engine
        self.name = engine.program
        self._is_made = False

    def prepare(self) -> dict[str, Any]:
        """Start the engine if it is not running, and load the containers' root."""
        facts = self._engine.ready()
        self._engine.load_root()
        return {"engine": facts.to_json()}

    def command(self, context: LaunchContext, argv: Sequence[str], /) -> list[str]:
        """Return `docker run`.

        If the data belong in the container's layer, create it and return `docker start`.
        """
        self._is_made = True
        if context.data_dir is not None:
            return run_command(
                self._engine.program, container_of(context, argv), self._limits(context)
            )
        run(self._create(context, argv), timeout_seconds=_CREATE_SECONDS)
        self._put_into_layer(context)
        return self._start(context)

    def preview_commands(self, context: LaunchContext, argv: Sequence[str], /) -> list[list[str]]:
        """Return `docker run`; for data in the layer, `docker create` and `docker start`."""
        if context.data_dir is None:
            return [self._create(context, argv), self._start(context)]
        return [
            run_command(self._engine.program, container_of(context, argv), self._limits(context))
        ]

    def clear(self, context: LaunchContext, /) -> None:
        """Remove the container if it still exists."""
        if self._is_made:
            self._engine.remove(context.name)

    def _limits(self, _: LaunchContext) -> list[str]:
        return []

    def _create(self, context: LaunchContext, argv: Sequence[str]) -> list[str]:
        container = container_of(context, argv)
        return [
            self._engine.program,
            "create",
            *options(container),
            *self._limits(context),
            IMAGE,
            *container.argv,
        ]

    def _start(self, context: LaunchContext) -> list[str]:
        return [self._engine.program, "start", "--attach", "--interactive", context.name]

    def _put_into_layer(self, context: LaunchContext) -> None:
        """Link the files into the container's writable layer, which is mounted at its start.

        A link keeps the cache state of the file; `docker cp` would read and write every page.
        """
        done = run(
            [
                self._engine.program,
                "inspect",
                "--format",
                "{{.GraphDriver.Data.UpperDir}}",
                context.name,
            ]
        )
        upper = Path(done.stdout.strip())
        if not upper.is_dir():
            raise HostError(
                f"{self._engine.program} has no writable layer for a container", "docker info"
            )
        for file in context.files:
            target = upper / str(file).lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(file, target)


class DockerFlagsDriver(DockerDriver):
    """Docker with its own limits, set by options of `docker run`.

    The trial's slice has no limits.
    """

    def __init__(self, engine: ContainerEngine) -> None:
        super().__init__(engine)
        self.name = "docker-flags"

    def slice_cage(self, cage: Cage, /) -> Cage:
        """Return the limits that Docker lacks: MemoryHigh, and swap without a memory limit.

        Docker's --memory-reservation sets memory.low, which protects and does not limit.
        """
        return cage_for_slice(cage)

    def own_cgroup(self, context: LaunchContext, /) -> Cgroup | None:
        """Return the container's group: docker-ID.scope, or ID with Docker's driver cgroupfs.

        Returns None before it exists.
        """
        unified = context.cgroup.unified
        found = (
            (path for path in unified.iterdir() if _CONTAINER.fullmatch(path.name))
            if unified
            else ()
        )
        return next((context.cgroup.child(path.name) for path in found), None)

    def _limits(self, context: LaunchContext) -> list[str]:
        return limit_options(context.cage, context.disk.node)


class DockerApiDriver(DockerFlagsDriver):
    """Docker with its own limits, set by its HTTP API instead of its command line."""

    def __init__(self, engine: ContainerEngine) -> None:
        super().__init__(engine)
        self.name = "docker-api"

    def command(self, context: LaunchContext, argv: Sequence[str], /) -> list[str]:
        """Create the container by the API; return `docker start`, which attaches to it."""
        self._is_made = True
        call("POST", f"/containers/create?name={context.name}", self._body(context, argv))
        if context.data_dir is None:
            self._put_into_layer(context)
        return self._start(context)

    def preview_commands(self, context: LaunchContext, argv: Sequence[str], /) -> list[list[str]]:
        """Return the request as a curl command, and `docker start`."""
        url, body = (
            f"http://docker/containers/create?name={context.name}",
            json.dumps(self._body(context, argv)),
        )
        kind = "Content-Type: application/json"
        return [
            ["curl", "--unix-socket", "/var/run/docker.sock", "-H", kind, "-d", body, url],
            self._start(context),
        ]

    def _body(self, context: LaunchContext, argv: Sequence[str]) -> dict[str, Any]:
        body = create_body(container_of(context, argv), os.environ)
        body["HostConfig"] |= limit_body(context.cage, context.disk.node)
        return body


def cage_for_slice(cage: Cage) -> Cage:
    """Return the limits that stay on the slice when the engine sets its own."""
    lacking = {"MemoryHigh"} | (set() if "MemoryMax" in cage.properties else {"MemorySwapMax"})
    kept = {key: value for key, value in cage.properties.items() if key in lacking}
    return Cage(cage.name, kept)
