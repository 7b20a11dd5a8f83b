"""Containers of Docker and podman, by `inspect`."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagecage.errors import UNREADABLE, HostError, PagecageError
from pagecage.importers.document import rows, table
from pagecage.process import find_tool, run

ENGINES = {"docker": "Docker", "podman": "podman"}
_ANSWER_SECONDS = 30.0
_SCOPE = re.compile(r"(?:docker-|libpod-|^)([0-9a-f]{64})(?:\.scope)?$")
_UNKNOWN = re.compile(r"no such (?:object|container)|no container with name or id", re.IGNORECASE)


@dataclass(frozen=True)
class InspectedContainer:
    """A running container: its engine, its first process, and the limits that it was given."""

    engine: str
    name: str
    pid: int
    host_config: dict[str, Any]


def container_id(directory: Path) -> str | None:
    """Return the container's id in the name of a cgroup's directory, or None."""
    match = _SCOPE.search(directory.name)
    return match[1] if match else None


def inspect(name: str) -> InspectedContainer:
    """Return a running container of the first engine that knows it.

    Raises PagecageError if none knows it or if it is not running, HostError if no engine answers.
    """
    engines = [program for program in ENGINES if find_tool(program)]
    if not engines:
        raise HostError("neither docker nor podman is installed", "name a process: --pid N")
    problems: list[str] = []
    for program in engines:
        argv = [program, "inspect", "--type", "container", "--", name]
        done = run(argv, check=False, timeout_seconds=_ANSWER_SECONDS)
        if done.ok:
            return _container(program, name, done.stdout)
        reason = (done.stderr.strip().splitlines() or ["it printed no reason"])[-1]
        if not _UNKNOWN.search(reason):
            problems.append(f"{ENGINES[program]} does not answer: {reason}")
    if problems:
        raise HostError(problems[0], "run this as root, or name a process: --pid N")
    raise PagecageError(f"there is no container {name!r}", f"{engines[0]} ps")


def _container(program: str, name: str, text: str) -> InspectedContainer:
    try:
        [row] = rows(json.loads(text))
        pid, full_name = int(table(row, "State")["Pid"]), str(row.get("Name") or name).lstrip("/")
    except UNREADABLE:
        raise HostError(
            f"`{program} inspect {name}` printed no description of a container", f"{program} info"
        ) from None
    if pid <= 0:
        raise PagecageError(f"the container {full_name!r} is not running", f"{program} ps")
    return InspectedContainer(program, full_name, pid, table(row, "HostConfig"))
