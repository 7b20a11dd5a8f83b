"""The workload in a container within the trial's slice; the limits lie on the slice, or on the container itself."""

from __future__ import annotations

import json
import os
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
from pagecage.agent.drivers.engine import IMAGE, ContainerEngine
from pagecage.agent.drivers.engine_api import call
from pagecage.errors import HostError
from pagecage.model.cage import Cage
from pagecage.process import run

_CREATE_SECONDS = 120.0


class Docker(ClientDriver):
    """Docker or podman with our slice as the container's parent: nothing for the engine to set, or to lose."""

    def __init__(self, engine: ContainerEngine) -> None:
        self._engine = engine
        self.name = engine.program
        self._is_made = False

    def prepare(self) -> dict[str, Any]:
        """Start the engine, where it does not run."""
        return {"engine": self._engine.ready().to_json()}

    def command(self, place: LaunchContext, argv: Sequence[str], /) -> list[str]:
        """`docker run`, or where the data are to lie in the container's own layer: create, put them there, start."""
        self._is_made = True
        if place.data_dir is not None:
            return run_command(self._engine.program, container_of(place, argv), self._limits(place))
        run(self._create(place, argv), timeout_seconds=_CREATE_SECONDS)
        self._put_into_layer(place)
        return self._start(place)

    def shown(self, place: LaunchContext, argv: Sequence[str], /) -> list[list[str]]:
        """One command, or two around the files."""
        if place.data_dir is None:
            return [self._create(place, argv), self._start(place)]
        return [run_command(self._engine.program, container_of(place, argv), self._limits(place))]

    def clear(self, place: LaunchContext, /) -> None:
        """Remove the container, which is gone already where its command ended by itself."""
        if self._is_made:
            self._engine.remove(place.name)

    def _limits(self, _: LaunchContext) -> list[str]:
        return []

    def _create(self, place: LaunchContext, argv: Sequence[str]) -> list[str]:
        container = container_of(place, argv)
        return [self._engine.program, "create", *options(container), *self._limits(place), IMAGE, *container.argv]

    def _start(self, place: LaunchContext) -> list[str]:
        return [self._engine.program, "start", "--attach", "--interactive", place.name]

    def _put_into_layer(self, place: LaunchContext) -> None:
        """Link the files into the layer that the container writes to, which is not mounted before its start.

        A link keeps the file's pages, cold or resident as they were made; `docker cp` would read and write them all.
        """
        done = run([self._engine.program, "inspect", "--format", "{{.GraphDriver.Data.UpperDir}}", place.name])
        upper = Path(done.stdout.strip())
        if not upper.is_dir():
            raise HostError(f"{self._engine.program} keeps no layer of its own for a container", "docker info")
        for file in place.files:
            target = upper / str(file).lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(file, target)


class DockerFlags(Docker):
    """Docker's own limits, by the options of `docker run`. The slice above has none."""

    def __init__(self, engine: ContainerEngine) -> None:
        super().__init__(engine)
        self.name = "docker-flags"

    def on_slice(self, cage: Cage, /) -> Cage:
        """Only what Docker has no word for: swap without a limit on memory."""
        return cage_for_slice(cage)

    def limited(self, place: LaunchContext, /) -> Path | None:
        """The container's own scope (systemd cgroup driver: docker-ID.scope)."""
        return next(place.cgroup.glob("docker-*.scope"), None)

    def _limits(self, place: LaunchContext) -> list[str]:
        return limit_options(place.cage, place.disk.node)


class DockerApi(DockerFlags):
    """The same limits by the Engine's HTTP API, past the command line."""

    def __init__(self, engine: ContainerEngine) -> None:
        super().__init__(engine)
        self.name = "docker-api"

    def command(self, place: LaunchContext, argv: Sequence[str], /) -> list[str]:
        """Create by the API; the command line only attaches."""
        self._is_made = True
        call("POST", f"/containers/create?name={place.name}", self._body(place, argv))
        if place.data_dir is None:
            self._put_into_layer(place)
        return self._start(place)

    def shown(self, place: LaunchContext, argv: Sequence[str], /) -> list[list[str]]:
        """The request as curl would make it."""
        url, body = f"http://docker/containers/create?name={place.name}", json.dumps(self._body(place, argv))
        kind = "Content-Type: application/json"
        return [["curl", "--unix-socket", "/var/run/docker.sock", "-H", kind, "-d", body, url], self._start(place)]

    def _body(self, place: LaunchContext, argv: Sequence[str]) -> dict[str, Any]:
        body = create_body(container_of(place, argv), os.environ)
        body["HostConfig"] |= limit_body(place.cage, place.disk.node)
        return body


def cage_for_slice(cage: Cage) -> Cage:
    """What of a cage stays on the slice where the engine's own limits are used."""
    kept = {} if "MemoryMax" in cage.properties else {
        key: value for key, value in cage.properties.items() if key == "MemorySwapMax"
    }  # fmt: skip
    return Cage(cage.name, kept)
