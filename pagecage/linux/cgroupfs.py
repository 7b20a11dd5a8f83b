"""Cgroups of trials made by their files, where no systemd makes them (cgroups(7)).

A trial's group lies below the group of the agent, so that limits around the agent hold for the
trial too. Each directory is noted in the spool before it is made, because the next start may run in
another group and has to find what a killed agent left.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal as signals
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pagecage.errors import HostError
from pagecage.linux.block_device import Disk
from pagecage.linux.cgroup import (
    CGROUP_ROOT,
    Cgroup,
    ancestors,
    is_real_root,
    members,
    mount_points,
    own_cgroup,
)
from pagecage.linux.cgroup_files import (
    V1_IO_FILE,
    io_limit_writes,
    limited_disks,
    read_limits,
    write_io_limits,
)
from pagecage.linux.procfs import read_text
from pagecage.model.cage import IO_MAX_KEY, Cage, expected_read_back
from pagecage.model.json_codec import Json, JsonView
from pagecage.units import kernel_page_bytes

_UNIFIED_CONTROLLERS = {"memory": "memory", "blkio": "io", "cpu": "cpu"}
"""Controllers that limits need: names in the unified hierarchy by name in version 1."""
_NOTES = "cgroups.json"
_END_SECONDS, _POLL_SECONDS = 15.0, 0.01
_NO_LIMIT = "18446744073709551614"
_ENTER = (
    'while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs" || exit 125; shift; done; shift; exec "$@"'
)
"""A shell that moves itself into groups and becomes the program, so that nothing runs outside."""


@dataclass(frozen=True)
class Obstacle:
    """Why this machine cannot hold a limit on memory, io or cpu by files; a command that helps."""

    controller: str
    reason: str
    hint: str


@dataclass(frozen=True)
class Place:
    """The group below which trials' groups are made, and what it lacks."""

    parent: Cgroup
    obstacles: tuple[Obstacle, ...]

    def to_json(self) -> Json:
        parent = self.parent
        return {
            "hierarchy": parent.hierarchy if parent.directories else None,
            "parent": str(parent) if parent.directories else None,
            "v1": [name for name in _UNIFIED_CONTROLLERS if getattr(parent, name)],
            "obstacles": [vars(obstacle) for obstacle in self.obstacles],
        }


class Cgroupfs:
    """The maker of cgroups by files. `spool` has the notes of what was made."""

    def __init__(self, spool: Path) -> None:
        self._notes = spool / _NOTES
        identity = str(spool)  # another container may have the same path
        with suppress(OSError):  # a plan may be shown before there is a spool
            found = spool.stat()
            identity += f" {found.st_dev} {found.st_ino}"
        self._prefix = f"pagecage-{hashlib.sha256(identity.encode()).hexdigest()[:6]}-"

    @cached_property
    def place(self) -> Place:
        return find_place()

    def cgroup(self, unit: str) -> Cgroup:
        """Return the group of a unit, which may not exist (yet)."""
        name = unit.removeprefix("pagecage-").removesuffix(".slice")
        return self.place.parent.child(f"{self._prefix}{name}")

    def make(
        self, unit: str, cage: Cage, disk: Disk, disks: Mapping[str, Disk] | None = None
    ) -> Cgroup:
        """Make the group with the cage's limits in force. Raises HostError with a refused file.

        `disk` is the data directory's, `disks` the cage's others by name.
        """
        for obstacle in self.place.obstacles:
            if obstacle.controller != "cpu" or "CPUQuota" in cage.properties:
                raise HostError(obstacle.reason, obstacle.hint)
        cgroup = self.cgroup(unit)
        self._note(cgroup.directories)
        numbers = {name: one.maj_min for name, one in (disks or {}).items()}
        try:
            if (parent := self.place.parent.unified) is not None:
                controllers = _UNIFIED_CONTROLLERS.items()
                wanted = {name for v1, name in controllers if getattr(cgroup, v1) is None}
                enabled = set((read_text(parent / "cgroup.subtree_control") or "").split())
                if lacking := sorted(wanted & _controllers(parent) - enabled):
                    self._note(cgroup.directories, {str(parent): lacking})
                    text = " ".join(f"+{name}" for name in lacking)
                    (parent / "cgroup.subtree_control").write_text(text)
            for directory in cgroup.directories:
                directory.mkdir()
            for file, text in _writes(cgroup, cage, disk.maj_min, numbers):
                file.write_text(text)
        except OSError as error:
            reason = f"{error.filename or cgroup}: {error.strerror}"
            sentence = f"the trial's cgroup cannot be made: {reason}"
            raise HostError(sentence, "pagecage doctor") from None
        return cgroup

    def make_commands(
        self, unit: str, cage: Cage, disk: str, disks: Mapping[str, str] | None = None
    ) -> list[list[str]]:
        """Return the commands of `make`, for display in a plan. `disk` stands for the disk."""
        cgroup = self.cgroup(unit)
        made = [["mkdir", *map(str, cgroup.directories)]]
        writes = _writes(cgroup, cage, disk, disks or {})
        return made + [["sh", "-c", f"echo {text} >{file}"] for file, text in writes]

    def enter_command(
        self,
        unit: str,
        argv: Sequence[str],
        name: str | None = None,  # noqa: ARG002
        oom_policy: str = "kill",  # noqa: ARG002
    ) -> list[str]:
        """Return the command that enters the group and execs the workload."""
        directories = [str(path) for path in self.cgroup(unit).directories]
        return ["sh", "-c", _ENTER, "pagecage-enter", *directories, "--", *argv]

    def container_parent(self, unit: str) -> str:
        """Return the group as --cgroup-parent of a container engine (docker-run(1))."""
        directory = self.cgroup(unit).unified or CGROUP_ROOT
        root = mount_points().get("unified", (CGROUP_ROOT, "/"))[0]
        return f"/{directory.relative_to(root)}"

    def signal(self, unit: str, name: str) -> None:
        """Send a signal, such as KILL, to every process in the group."""
        _signal(self.cgroup(unit), name)

    def remove(self, unit: str) -> None:
        """End everything in the unit's group and remove it. Raises HostError if something stays."""
        self._remove(self.cgroup(unit))

    def _remove(self, cgroup: Cgroup) -> None:
        if cgroup.exists():
            for disk in limited_disks(cgroup):  # a process that they hold back cannot be killed
                with suppress(OSError):
                    write_io_limits(cgroup, disk, dict.fromkeys(IO_MAX_KEY.values(), "max"))
            _end(cgroup)
            _remove_directories(cgroup)
        if lost := [str(path) for path in cgroup.directories if _is_unmounted(path)]:
            reason = f"{lost[0]} stays, because its hierarchy is not mounted any more"
            raise HostError(reason, "mount it again; the next run removes the cgroup")
        notes, group = self._read(), [str(path) for path in cgroup.directories]
        if group in notes["groups"]:
            notes["groups"].remove(group)
            self._write(notes)

    def remove_commands(self, unit: str) -> list[list[str]]:
        return [["rmdir", *map(str, self.cgroup(unit).directories)]]

    def sweep(self) -> list[str]:
        """Remove what a killed agent left: groups, and controllers that it enabled.

        Returns the names. What is in a hierarchy that is not mounted any more stays noted. Raises
        HostError if something else stays.
        """
        notes, removed = self._read(), []
        for group in reversed(notes["groups"]):
            noted: dict[str, Path] = {}
            for name, (mount, _) in mount_points().items():
                for directory in map(Path, group):
                    if directory.is_relative_to(mount) and name in Cgroup.__dataclass_fields__:
                        noted.setdefault(name, directory)
            cgroup = Cgroup(**noted)
            if cgroup.exists():
                removed.append(Path(group[0]).name)
            self._remove(cgroup)
        _disable(notes["controllers"])
        kept = [group for group in notes["groups"] if any(map(_is_unmounted, map(Path, group)))]
        if kept:
            self._write({"groups": kept, "controllers": {}})
        else:
            self._notes.unlink(missing_ok=True)
        return removed

    def close(self) -> None:
        """Disable the controllers that were enabled, at the end of a session that left no group."""
        notes = self._read()
        if not notes["groups"]:
            _disable(notes["controllers"])
            self._notes.unlink(missing_ok=True)

    def _read(self) -> Json:
        try:
            notes = json.loads(self._notes.read_text())
            return {"groups": list(notes["groups"]), "controllers": dict(notes["controllers"])}
        except (OSError, ValueError, LookupError, TypeError):
            return {"groups": [], "controllers": {}}

    def _note(
        self, directories: Sequence[Path], enabled: Mapping[str, list[str]] | None = None
    ) -> None:
        notes, group = self._read(), [str(path) for path in directories]
        notes["groups"] += [] if group in notes["groups"] else [group]
        notes["controllers"] |= enabled or {}
        self._write(notes)

    def _write(self, notes: JsonView) -> None:
        self._notes.parent.mkdir(parents=True, exist_ok=True)
        part = self._notes.with_suffix(".part")
        part.write_text(json.dumps(notes))
        part.replace(self._notes)


def _disable(enabled: Mapping[str, Sequence[str]]) -> None:
    for directory, controllers in enabled.items():
        text = " ".join(f"-{name}" for name in controllers)
        with suppress(OSError):  # a group of another program may need them by now
            Path(directory, "cgroup.subtree_control").write_text(text)


def _writes(
    cgroup: Cgroup, cage: Cage, disk: str, disks: Mapping[str, str]
) -> Iterator[tuple[Path, str]]:
    wanted = expected_read_back(cage, kernel_page_bytes())
    io = {key.removeprefix("io.max."): n for key, n in wanted.items() if "io.max" in key}
    yield from _io_writes(cgroup, disk, io)
    for name, number in disks.items():
        properties = cage.disks[name].properties if name in cage.disks else {}
        limits = {IO_MAX_KEY[key]: str(n) for key, n in properties.items()}
        yield from _io_writes(cgroup, number, limits)
    if cgroup.memory is None and cgroup.unified is not None:
        yield cgroup.unified / "memory.oom.group", "1"  # as OOMPolicy=kill (systemd.scope(5))
        for name in ("memory.max", "memory.high", "memory.swap.max"):
            if name in wanted:
                yield cgroup.unified / name, wanted[name]
    elif cgroup.memory is not None:
        yield from _v1_memory_writes(cgroup.memory, wanted)
    quota = wanted.get("cpu.max")
    if quota and cgroup.cpu is not None:
        share, period = quota.split()
        yield cgroup.cpu / "cpu.cfs_period_us", period
        yield cgroup.cpu / "cpu.cfs_quota_us", share
    elif quota and cgroup.unified is not None:
        yield cgroup.unified / "cpu.max", quota


def _io_writes(
    cgroup: Cgroup, number: str, limits: Mapping[str, str]
) -> Iterator[tuple[Path, str]]:
    """Yield I/O limits. Version 1 counts no I/O before a first limit (blk_throtl_init)."""
    if cgroup.blkio is not None:
        read = cgroup.blkio / V1_IO_FILE["rbps"]
        yield read, f"{number} {_NO_LIMIT}"
        yield read, f"{number} 0"
    if limits and (cgroup.blkio or cgroup.unified):
        yield from io_limit_writes(cgroup, number, limits)


def _v1_memory_writes(memory: Path, wanted: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    """Yield memory limits of version 1. A memsw of memory alone would hide failed charges."""
    limit, swap = wanted.get("memory.max"), wanted.get("memory.swap.max")
    if limit is not None:
        yield memory / "memory.limit_in_bytes", limit
    if swap == "0":
        yield memory / "memory.swappiness", "0"
    elif swap is not None and limit is not None:
        yield memory / "memory.memsw.limit_in_bytes", str(int(limit) + int(swap))


# --- Removal --------------------------------------------------------------------------------------


def _signal(cgroup: Cgroup, name: str) -> None:
    kill = cgroup.unified / "cgroup.kill" if cgroup.unified else None
    if name == "KILL" and kill is not None and kill.exists():
        with suppress(OSError):
            kill.write_text("1")
    for member in members(cgroup):
        with suppress(ProcessLookupError):
            os.kill(member.pid, signals.Signals[f"SIG{name}"])


def _end(cgroup: Cgroup) -> None:
    deadline = time.monotonic() + _END_SECONDS
    while left := members(cgroup):
        if time.monotonic() > deadline:
            names = ", ".join(f"{one.name} ({one.pid})" for one in left)
            raise HostError(f"processes in {cgroup} do not end: {names}", "restart the host")
        _signal(cgroup, "KILL")
        time.sleep(_POLL_SECONDS)


def _remove_directories(cgroup: Cgroup) -> None:
    deadline = time.monotonic() + _END_SECONDS
    for directory in cgroup.directories:
        while directory.is_dir():
            try:
                for folder, _, _ in os.walk(directory, topdown=False):
                    Path(folder).rmdir()
            except FileNotFoundError:
                continue
            except OSError as error:
                if error.errno != errno.EBUSY or time.monotonic() > deadline:
                    reason = f"{error.filename} cannot be removed: {error.strerror}"
                    is_read_only = error.errno == errno.EROFS
                    hint = _remount(directory) if is_read_only else f"rmdir {error.filename}"
                    raise HostError(reason, hint) from None
                _end(cgroup)
                time.sleep(_POLL_SECONDS)


def _is_unmounted(directory: Path) -> bool:
    there = next(path for path in (directory, *directory.parents) if path.is_dir())
    return there != directory and not (there / "cgroup.procs").exists()


# --- The place of trials' groups ------------------------------------------------------------------


def find_place(own: Cgroup | None = None) -> Place:
    """Return the group below which trials' groups can be made, and what stands against it.

    In version 1 it is this process' own group of each hierarchy. In the unified hierarchy it is the
    nearest group that may have both processes and controllers below: one without processes of its
    own, or the real root (cgroup-v2.rst, "No Internal Process Constraint").
    """
    mounted = mount_points()
    places = (own_cgroup() if own is None else own).by_controller
    unified, blocked = places.pop("unified", None), None
    if unified is not None and "unified" in mounted and not {"memory", "blkio"} <= set(places):
        unified, blocked = _inner_node(unified, mounted["unified"][0])
    if "unified" in mounted:
        places.pop("cpuacct", None)  # the unified hierarchy counts CPU time itself
    parent = Cgroup(unified=unified if "unified" in mounted else None, **places)
    return Place(parent, (blocked,) if blocked else tuple(_obstacles(parent)))


def _inner_node(own: Path, root: Path) -> tuple[Path, Obstacle | None]:
    reason = f"{root} is a cgroup namespace's root with processes"
    for group in (own, *own.parents):
        is_top = (group / "cgroup.controllers").exists() and is_real_root(group, "unified")
        if is_top or not (read_text(group / "cgroup.procs") or "").strip():
            return group, None
        held = read_limits(Cgroup(unified=group), "").items()
        if limits := " and ".join(name for name, value in held if not value.startswith("max")):
            root, reason = group, f"{group} limits {limits} and has processes"
            break
        if group == root:
            break
    move = (
        f"mkdir {root}/init && while read p; do echo $p >{root}/init/cgroup.procs; done"
        f" <{root}/cgroup.procs"
    )
    return root, Obstacle("memory", f"{reason}, so no cgroup can be made below it", move)


def _controllers(group: Path | None) -> set[str]:
    return set((read_text(group / "cgroup.controllers") or "").split()) if group else set()


def _obstacles(parent: Cgroup) -> Iterator[Obstacle]:
    unified = parent.unified
    above = [one.unified for one in ancestors(Cgroup(unified=unified))] if unified else []
    for v1, name in _UNIFIED_CONTROLLERS.items():
        if getattr(parent, v1) is not None or name in _controllers(unified):
            continue
        if not parent.directories:
            reason, hint = "no cgroup hierarchy is mounted here", "use HOST=vm"
        elif unified and any(name in _controllers(one) for one in above):
            reason = f"the {name} controller is not delegated to {unified}"
            hint = f"echo +{name} >{unified.parent}/cgroup.subtree_control"
        else:
            reason = f"this machine has no {name} controller for cgroups"
            hint = "use HOST=vm" + (", or boot with cgroup_enable=memory" if v1 == "memory" else "")
        yield Obstacle(name, reason, hint)
    for v1, name in _UNIFIED_CONTROLLERS.items():
        place = getattr(parent, v1) or unified
        if place is None or not place.is_dir():
            continue
        if os.statvfs(place).f_flag & os.ST_RDONLY:
            yield Obstacle(name, f"{place} is mounted read-only", _remount(place))
        elif not os.access(place, os.W_OK):
            yield Obstacle(name, f"this user may make no cgroup in {place}", "run it as root")


def _remount(directory: Path) -> str:
    mount = next(path for path in (directory, *directory.parents) if os.path.ismount(path))
    return f"mount -o remount,rw {mount}"
