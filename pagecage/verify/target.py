"""The unit, container or process to verify, and its cgroup."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pagecage.agent.system.cgroup import cgroup_of
from pagecage.agent.system.kernel_text import read_text
from pagecage.errors import HostError, PagecageError
from pagecage.process import ProcessId, identify
from pagecage.verify.engines import ENGINES, InspectedContainer, inspect
from pagecage.verify.kernel import KernelTrees
from pagecage.verify.units import control_group


@dataclass(frozen=True)
class Subject:
    """The words that select what is verified: exactly one of unit, container and pid.

    `user` selects a unit of the user's own systemd.
    """

    unit: str | None = None
    container: str | None = None
    pid: int | None = None
    user: bool = False

    def check(self) -> None:
        """Raise PagecageError unless exactly one is given, and `user` only with a unit."""
        given = [one for one in (self.unit, self.container, self.pid) if one is not None]
        example = "--unit postgresql.service"
        if len(given) != 1:
            count = "none" if not given else "several"
            message = f"verify takes one of --unit, --container and --pid, and {count} was given"
            raise PagecageError(message, example)
        if self.user and self.unit is None:
            raise PagecageError("--user applies only to --unit", "remove --user")
        if self.pid is None and not _is_name(str(given[0])):
            option = "--unit" if self.unit is not None else "--container"
            raise PagecageError(f"{option}: {given[0]!r} is not a valid name", example)


def _is_name(text: str) -> bool:
    return text.isprintable() and bool(text) and len(text) < 256 and not set(text) & set("/ *?[")


@dataclass(frozen=True)
class Target:
    """A running program: its description, its cgroup, and its container or process, if any."""

    description: str
    cgroup: Path
    container: InspectedContainer | None = None
    process: ProcessId | None = None


def find_target(subject: Subject, kernel: KernelTrees) -> Target:
    """Return the target of a checked subject, with its cgroup.

    Raises PagecageError if it does not exist or is not running, HostError if it cannot be asked
    for.
    """
    if subject.unit is not None:
        path = control_group(subject.unit, subject.user)
        cgroup = kernel.cgroup / path.lstrip("/")
        return Target(f"unit {cgroup.name or path}", _existing(cgroup, subject.unit))
    if subject.container is not None:
        found = inspect(subject.container)
        cgroup = _cgroup_of(found.pid, kernel)
        return Target(f"{ENGINES[found.engine]} container {found.name}", cgroup, found)
    assert subject.pid is not None
    name = (read_text(kernel.proc / str(subject.pid) / "comm") or "?").strip()
    cgroup = _cgroup_of(subject.pid, kernel)
    return Target(
        f"process {subject.pid} ({name})", cgroup, process=identify(subject.pid, kernel.proc)
    )


def _existing(cgroup: Path, unit: str) -> Path:
    if not cgroup.is_dir():
        raise HostError(
            f"the cgroup of {unit} is not visible here: {cgroup} does not exist",
            "run this outside of a container",
        )
    return cgroup


def _cgroup_of(pid: int, kernel: KernelTrees) -> Path:
    """Return the cgroup of a running process.

    A path that begins with `/..` is outside of this cgroup namespace (cgroup_namespaces(7)).
    """
    found = cgroup_of(pid, kernel.proc, kernel.cgroup)
    cgroup = found.unified if found else None
    if cgroup is None or identify(pid, kernel.proc) is None:
        raise PagecageError(f"there is no process {pid}", "ps -e")
    if ".." in cgroup.parts or not cgroup.is_dir():
        raise HostError(
            f"process {pid} is outside of this cgroup namespace, so its limits are hidden",
            "run this outside of the container",
        )
    return cgroup
