"""The unit, container or process to verify, and its cgroup."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from pagecage.agent.system.cgroup import V1_CONTROLLERS, Cgroup, cgroup_of, cgroup_paths
from pagecage.agent.system.kernel_text import read_text
from pagecage.errors import HostError, PagecageError
from pagecage.process import ProcessId, identify
from pagecage.verify.engines import ENGINES, InspectedContainer, inspect
from pagecage.verify.kernel import SYSTEMD, KernelTrees, directories_around
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
    """A running program: its description, its cgroup, and its container or process, if any.

    `cgroup` is without real roots. `directory` has all processes of the cgroup; its path is that of
    systemd's hierarchy if systemd made the cgroup.
    """

    description: str
    cgroup: Cgroup
    directory: Path
    container: InspectedContainer | None = None
    process: ProcessId | None = None


def find_target(subject: Subject, kernel: KernelTrees) -> Target:
    """Return the target of a checked subject, with its cgroup.

    Raises PagecageError if it does not exist or is not running, HostError if it cannot be asked
    for.
    """
    if subject.unit is not None:
        path = control_group(subject.unit, subject.user)
        cgroup, directory = _of_unit(path, subject.unit, kernel)
        return Target(f"unit {directory.name or path}", cgroup, directory)
    if subject.container is not None:
        found = inspect(subject.container)
        cgroup, directory = _of_process(found.pid, kernel)
        return Target(f"{ENGINES[found.engine]} container {found.name}", cgroup, directory, found)
    assert subject.pid is not None
    name = (read_text(kernel.proc / str(subject.pid) / "comm") or "?").strip()
    cgroup, directory = _of_process(subject.pid, kernel)
    process = identify(subject.pid, kernel.proc)
    return Target(f"process {subject.pid} ({name})", cgroup, directory, process=process)


def _of_unit(path: str, unit: str, kernel: KernelTrees) -> tuple[Cgroup, Path]:
    """Return the cgroup of a unit, and its directory in systemd's hierarchy.

    In version 1 a controller has a group of the unit only where systemd needs it; the processes are
    in the nearest one above otherwise.
    """
    directory = kernel.directory_of(SYSTEMD if SYSTEMD in kernel.mounts else "unified", path)
    if directory is None or not directory.is_dir():
        raise HostError(
            f"the cgroup of {unit} is not visible here: {directory or path} does not exist",
            "run this outside of a container",
        )
    found = Cgroup()
    for name in ("unified", *V1_CONTROLLERS):
        if (place := kernel.directory_of(name, path)) is not None:
            there = next(one for one in (place, *place.parents) if one.is_dir())
            found = replace(found, **{name: there})
    return _own(found, directory, kernel), directory


def _of_process(pid: int, kernel: KernelTrees) -> tuple[Cgroup, Path]:
    """Return the cgroup of a running process, and the directory that has its processes."""
    cgroup = cgroup_of(pid, kernel.proc)
    if cgroup is None or identify(pid, kernel.proc) is None:
        raise PagecageError(f"there is no process {pid}", "ps -e")
    paths = cgroup_paths(pid, kernel.proc)
    if any(_is_hidden(name, path, kernel) for name, path in paths.items()):
        raise HostError(
            f"process {pid} is outside of this cgroup namespace, so its limits are hidden",
            "run this outside of the container",
        )
    directory = _deepest(cgroup, kernel.directory_of(SYSTEMD, paths.get(SYSTEMD, "/")), kernel)
    return _own(cgroup, directory, kernel), directory


def _is_hidden(name: str, path: str, kernel: KernelTrees) -> bool:
    """Return whether a process' group is outside of what is mounted here.

    Its path begins with `/..` in a cgroup namespace (cgroup_namespaces(7)). Without one it may be
    the host's path, which is not mounted, but this process' own group is.
    """
    directory = kernel.directory_of(name, path)
    if directory is None or path.startswith("/.."):
        return directory is not None
    is_own = name != "unified" and path == cgroup_paths("self", kernel.proc).get(name)
    return not directory.is_dir() and not is_own


def _deepest(cgroup: Cgroup, of_systemd: Path | None, kernel: KernelTrees) -> Path:
    """Return the deepest directory of a cgroup; a controller may have a group above alone.

    Engines with version 1 leave their containers in the engine's own group of the unified
    hierarchy, so that one is the last choice.
    """
    v1 = (of_systemd, *(getattr(cgroup, name) for name in V1_CONTROLLERS))
    places: list[Path] = [place for place in v1 if place is not None and place.is_dir()]
    found = max(places, key=lambda place: len(directories_around(place, kernel)), default=None)
    if found is not None and (directories_around(found, kernel) or cgroup.unified is None):
        return found
    assert cgroup.unified is not None
    return cgroup.unified


def _own(cgroup: Cgroup, directory: Path, kernel: KernelTrees) -> Cgroup:
    """Return the cgroup without real roots, and without another program's unified group."""
    is_needed = not {"memory", "blkio", "cpu"} <= kernel.mounts.keys()
    if cgroup.unified and cgroup.unified.name != directory.name and not is_needed:
        cgroup = replace(cgroup, unified=None)
    return cgroup.without_roots()
