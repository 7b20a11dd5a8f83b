"""The target of a verification: a unit, container or process, and its cgroup."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pagecage.errors import UNREADABLE, HostError, PagecageError
from pagecage.importers.document import Table, docker_bytes, rows, table
from pagecage.importers.result import BANDWIDTH, BlockLimit
from pagecage.importers.systemd import UnitProperties, shown_properties
from pagecage.linux.cgroup import V1_CONTROLLERS, Cgroup, cgroup_of, cgroup_paths
from pagecage.linux.procfs import name_of
from pagecage.process import Completed, ProcessId, find_tool, identify, run
from pagecage.verify.kernel import SYSTEMD, KernelTrees, directories_around

_PROPERTIES = (
    "Id,LoadState,ActiveState,ControlGroup,MemoryMax,MemoryHigh,MemorySwapMax,MemoryLimit,"
    "CPUQuotaPerSecUSec,IOReadBandwidthMax,IOWriteBandwidthMax,IOReadIOPSMax,IOWriteIOPSMax,"
    "BlockIOReadBandwidth,BlockIOWriteBandwidth"
)
_ANSWER_SECONDS = 30.0
_UNIT = re.compile(r"^[^/]+\.(?:service|slice|scope|socket|mount|swap)$")
_USER_MANAGER = re.compile(r"^user@([0-9]+)\.service$")
Properties = dict[str, str]


def control_group(unit: str, user: bool) -> str:
    """Return the cgroup of an active unit, as a path below the mount point.

    Raises PagecageError if there is no such unit or if it is inactive, HostError if systemd does
    not answer.
    """
    if not find_tool("systemctl"):
        raise HostError("systemctl is not installed", "name a process: --pid N")
    done = _show([unit], user)
    if not done.ok:
        raise HostError(f"systemd does not answer: {_last_line(done)}", "systemctl status")
    blocks = _blocks(done.stdout)
    found = dict(blocks[0]) if len(blocks) == 1 else {}
    manager = "systemctl --user" if user else "systemctl"
    if found.get("LoadState") in (None, "not-found", "bad-setting", "error"):
        other = "" if user else "; a unit of your own systemd needs --user"
        raise PagecageError(f"there is no unit {unit!r}{other}", f"{manager} list-units --all")
    if not found.get("ControlGroup"):
        state = found.get("ActiveState", "inactive")
        message = f"the unit {found.get('Id', unit)} is {state} and has no cgroup"
        raise PagecageError(f"{message}, so no limit is in force", f"{manager} start {unit}")
    return found["ControlGroup"]


def unit_of(cgroup: Path) -> str | None:
    return cgroup.name if _UNIT.match(cgroup.name) else None


def manager_uid(cgroup: Path) -> int | None:
    above = (match for parent in cgroup.parents if (match := _USER_MANAGER.match(parent.name)))
    return next((int(match[1]) for match in above), None)


def requested_properties(cgroups: Sequence[Path]) -> dict[Path, UnitProperties]:
    """Return the properties set on the cgroups' units, without those of another user's systemd."""
    found: dict[Path, UnitProperties] = {}
    for uid, user in ((None, False), (os.getuid(), True)):
        own = [one for one in cgroups if unit_of(one) and manager_uid(one) == uid]
        done = _show([cgroup.name for cgroup in own], user) if own else None
        blocks = _blocks(done.stdout) if done else []
        by_id = {dict(lines).get("Id"): shown_properties(lines) for lines in blocks}
        found |= {cgroup: by_id[cgroup.name] for cgroup in own if cgroup.name in by_id}
    return found


def _show(units: Sequence[str], user: bool) -> Completed:
    manager = ["--user"] if user else []
    argv = ["systemctl", *manager, "show", f"--property={_PROPERTIES}", "--", *units]
    return run(argv, check=False, timeout_seconds=_ANSWER_SECONDS)


def _last_line(done: Completed) -> str:
    return (done.stderr.strip().splitlines() or ["it printed no reason"])[-1]


def _blocks(text: str) -> list[list[tuple[str, str]]]:
    """Return the lines of each unit; an empty line separates units (systemctl(1))."""
    blocks = (block.splitlines() for block in text.strip().split("\n\n"))
    pairs = ([line.partition("=")[::2] for line in block if "=" in line] for block in blocks)
    return [lines for lines in pairs if lines]


ENGINES = {"docker": "Docker", "podman": "podman"}
_SCOPE = re.compile(r"(?:docker-|libpod-|^)([0-9a-f]{64})(?:\.scope)?$")
_UNKNOWN = re.compile(r"no such (?:object|container)|no container with name or id", re.IGNORECASE)


@dataclass(frozen=True)
class InspectedContainer:
    """A running container: its engine, its first process, and the limits that it was given."""

    engine: str
    name: str
    pid: int
    host_config: Table


def container_id(directory: Path) -> str | None:
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
        if not _UNKNOWN.search(reason := _last_line(done)):
            problems.append(f"{ENGINES[program]} does not answer: {reason}")
    if problems:
        raise HostError(problems[0], "run this as root, or name a process: --pid N")
    raise PagecageError(f"there is no container {name!r}", f"{engines[0]} ps")


def _container(program: str, name: str, text: str) -> InspectedContainer:
    try:
        [row] = rows(json.loads(text))
        pid, full_name = int(table(row, "State")["Pid"]), str(row.get("Name") or name).lstrip("/")
    except UNREADABLE:
        reason = f"`{program} inspect {name}` printed no description of a container"
        raise HostError(reason, f"{program} info") from None
    if pid <= 0:
        raise PagecageError(f"the container {full_name!r} is not running", f"{program} ps")
    return InspectedContainer(program, full_name, pid, table(row, "HostConfig"))


_OPTIONS = {
    f"--device-{way}-{unit}": f"IO{way.title()}{kind}Max"
    for way in ("read", "write")
    for unit, kind in (("bps", "Bandwidth"), ("iops", "IOPS"))
}
# Options of docker-run(1) and podman-run(1) without a value; all others take one.
_FLAGS = {
    *("--detach", "--disable-content-trust", "--env-host", "--init", "--interactive"),
    *("--no-healthcheck", "--no-hosts", "--oom-kill-disable", "--privileged", "--publish-all"),
    *("--quiet", "--read-only", "--replace", "--rm", "--rmi", "--sig-proxy", "--tls-verify"),
    "--tty",
}


def typed_limits(name: str, kernel: KernelTrees) -> list[BlockLimit]:
    """Return the I/O limits that a running client was given for the container of this name."""
    found: list[BlockLimit] = []
    for entry in kernel.proc.iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # the process has ended
                words = (entry / "cmdline").read_bytes().split(b"\0")
                options = list(run_options([os.fsdecode(word) for word in words]))
                if ("--name", name) in options:
                    found += [limit for option in options if (limit := _limit(*option))]
    return found


def run_options(argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the options of `docker run` with their values, up to the name of the image."""
    if not argv or Path(argv[0]).name not in ENGINES or "run" not in argv[1:]:
        return
    words = iter(argv[argv.index("run", 1) + 1 :])
    for word in words:
        option, is_joined, value = word.partition("=")
        if not word.startswith("-") or word == "--":
            return
        if is_joined:
            yield option, value
        elif option.startswith("--") and option not in _FLAGS:
            yield option, next(words, "")
        elif not option.startswith("--") and len(option.strip("-ditPq")) == 1:
            next(words, "")  # the value of the last of some short options, as in `-itv`


def _limit(option: str, value: str) -> BlockLimit | None:
    name, (device, _, rate) = _OPTIONS.get(option), value.rpartition(":")
    if name is None or not device:
        return None
    try:
        number = docker_bytes(rate) if name in BANDWIDTH else int(rate)
    except (PagecageError, ValueError):
        return None
    return BlockLimit(name, device, number, f"{option} {value}")


@dataclass(frozen=True)
class Subject:
    """Exactly one of unit, container and pid; `user` selects a unit of the user's own systemd."""

    unit: str | None = None
    container: str | None = None
    pid: int | None = None
    user: bool = False

    def check(self) -> None:
        """Raise PagecageError unless exactly one is given, and `user` only with a unit."""
        given = [one for one in (self.unit, self.container, self.pid) if one is not None]
        example = "--unit postgresql.service"
        if len(given) != 1:
            count, verb = ("several", "were") if given else ("none", "was")
            message = f"{count} of --unit, --container and --pid {verb} given"
            raise PagecageError(message, f"name one program: {example}")
        if self.user and self.unit is None:
            raise PagecageError("--user applies only to --unit", "remove --user")
        name = str(given[0])
        is_name = name.isprintable() and 0 < len(name) < 256 and not set(name) & set("/ *?[")
        if self.pid is None and not is_name:
            option = "--unit" if self.unit is not None else "--container"
            raise PagecageError(f"{option}: {given[0]!r} is not a valid name", example)


@dataclass(frozen=True)
class Target:
    """A running program, and its container or process, if any.

    `cgroup` is without real roots. `directory` has all processes of the cgroup; its path is that of
    systemd's hierarchy if systemd made the cgroup.
    """

    description: str
    cgroup: Cgroup
    directory: Path
    container: InspectedContainer | None = None
    process: ProcessId | None = None


def find_target(subject: Subject, kernel: KernelTrees) -> Target:
    """Return a checked subject's target. Raises PagecageError for none, HostError if hidden."""
    if subject.unit is not None:
        path = control_group(subject.unit, subject.user)
        cgroup, directory = _of_unit(path, subject.unit, kernel)
        return Target(f"unit {directory.name or path}", cgroup, directory)
    if subject.container is not None:
        found = inspect(subject.container)
        description = f"{ENGINES[found.engine]} container {found.name}"
        return Target(description, *_of_process(found.pid, kernel), found)
    assert subject.pid is not None
    name = name_of(subject.pid, kernel.proc)
    place, process = _of_process(subject.pid, kernel), identify(subject.pid, kernel.proc)
    return Target(f"process {subject.pid} ({name})", *place, process=process)


def _of_unit(path: str, unit: str, kernel: KernelTrees) -> tuple[Cgroup, Path]:
    """Return the cgroup of a unit, and its directory in systemd's hierarchy.

    In version 1 a controller has a group of the unit only where systemd needs it; the processes are
    in the nearest one above otherwise.
    """
    directory = kernel.directory_of(SYSTEMD if SYSTEMD in kernel.mounts else "unified", path)
    if directory is None or not directory.is_dir():
        reason = f"the cgroup of {unit} is not visible here: {directory or path} does not exist"
        raise HostError(reason, "run this outside of a container")
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
        reason = f"process {pid} is outside of this cgroup namespace, so its limits are hidden"
        raise HostError(reason, "run this outside of the container")
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
