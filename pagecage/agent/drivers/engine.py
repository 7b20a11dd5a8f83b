"""Container engines: their store, their API, and the engine of a trial."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import tarfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from pagecage.agent.settings import OF_OURS
from pagecage.errors import HostError, PagecageError
from pagecage.linux.systemd import Systemd
from pagecage.model.json_codec import Json, JsonView
from pagecage.model.requirements import delegation_command
from pagecage.process import Completed, find_tool, last_line, run

IMAGE = "localhost/pagecage-root:1"
LABEL = "pagecage=trial"
_START_SECONDS = 180.0
_ENGINE_SECONDS = 60.0
_UNITS = ("docker.socket", "docker.service", "containerd.service")
# An otherwise empty root file system with the links of a merged /usr; the host's own /usr is
# mounted into it.
_FOLDERS = ("usr", "etc", "tmp", "var", "run", "root")
_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")


class ContainerEngine:
    """Docker or podman, used by its command line. Its facts are read once."""

    def __init__(self, program: str, machine: ContainerEngines) -> None:
        self.program, self.machine = program, machine
        self.undo = ExitStack()
        """Closed at the end of the session, to return the engine to its previous state."""
        self._facts: EngineFacts | None = None

    def run(self, *words: str, seconds: float | None = _ENGINE_SECONDS) -> Completed:
        """Run the engine's command line; its failure is the caller's to judge."""
        return run([self.program, *words], check=False, timeout_seconds=seconds)

    def ready(self) -> EngineFacts:
        """Start the engine and check its facts. Raises HostError if it is unusable."""
        if self._facts is None:
            if not find_tool(self.program):
                package = "docker.io" if self.program == "docker" else self.program
                reason = f"{self.program} is not installed on this host"
                raise HostError(reason, f"apt-get install {package}")
            self._start()
            facts = self._read_facts()
            machine = self.machine
            if unfit := unfit_reason(facts, machine.systemd.user, machine.cgroup_driver):
                raise HostError(*unfit)
            left = self.run("ps", "--all", "--quiet", "--filter", f"label={LABEL}", seconds=None)
            for name in left.stdout.split():  # by a killed agent
                self.remove(name)
            self._facts = facts
        return self._facts

    def remove(self, name: str) -> None:
        self.run("rm", "--force", "--volumes", name)

    def stop(self) -> None:
        """Remove what this object has loaded; stop the engine if this object started it."""
        self.undo.close()
        self._facts = None

    def has_running_daemon(self) -> bool:
        return self.program == "docker" and not self._idle_units()

    def inspect_image(self, name: str) -> Json | None:
        done = self.run("image", "inspect", name)
        try:
            found = json.loads(done.stdout) if done.ok else []
        except ValueError:
            found = []
        return dict(found[0]) if found else None

    def _idle_units(self) -> tuple[str, ...]:
        """Return Docker's inactive units; none if the engine runs, or is started by hand."""
        if not find_tool("systemctl"):
            return ()
        command = self.machine.systemd.systemctl("is-active", *_UNITS)
        states = run(command, check=False).stdout.split()
        idle = tuple(unit for unit, state in zip(_UNITS, states, strict=False) if state != "active")
        return idle if "docker.service" in idle else ()

    def _start(self) -> None:
        if self.program != "docker" or self.has_running_daemon():
            return
        systemctl = self.machine.systemd.systemctl
        stop, start = systemctl("stop", *self._idle_units()), systemctl("start", "docker.service")
        self.undo.callback(run, stop, check=False, timeout_seconds=_START_SECONDS)
        done = run(start, check=False, timeout_seconds=_START_SECONDS)
        if not done.ok:
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[0]
            reason = f"the Docker engine cannot be started: {reason}"
            raise HostError(reason, "systemctl status docker")

    def _read_facts(self) -> EngineFacts:
        is_docker = self.program == "docker"
        done = self.run("info", "--format", "{{json .}}" if is_docker else "json")
        try:
            info = json.loads(done.stdout) if done.ok else {}
            return (docker_facts if is_docker else podman_facts)(info)
        except (ValueError, LookupError, TypeError):
            reason = last_line(done.stderr, "it printed no JSON")
            reason = f"{self.program} does not answer: {reason}"
            raise HostError(reason, f"{self.program} info") from None

    def load_root(self) -> None:
        """Load the image with an empty root, in which the host's programs run, if it is missing."""
        if self.inspect_image(IMAGE) is not None:
            return
        archive = self.machine.spool / "image.tar"
        archive.write_bytes(empty_root())
        try:
            run([self.program, "import", archive, IMAGE], timeout_seconds=_ENGINE_SECONDS)
            self.undo.callback(self.run, "image", "rm", "--force", IMAGE)
        except PagecageError as error:
            reason = f"{self.program} cannot import the image: {error.message}"
            raise HostError(reason, f"{self.program} info") from None
        finally:
            archive.unlink()


def empty_root(top: Path = Path("/")) -> bytes:
    """Return a container's image as a tar archive: mount points, and the host's links to /usr."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name in _FOLDERS:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            archive.addfile(entry)
        for name in (link for link in _LINKS if (top / link).is_symlink()):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, str((top / name).readlink())
            archive.addfile(entry)
    return out.getvalue()


@dataclass(frozen=True)
class ContainerEngines:
    """The engines of one machine state, each created on first use.

    `cgroup_driver` is the maker of the trials' cgroups, systemd or cgroupfs: an engine has to make
    its containers' groups by the same (`native.cgroupdriver` of dockerd(8)).
    """

    systemd: Systemd
    spool: Path
    data_dir: Path
    cgroup_driver: str = "systemd"
    _known: dict[str, ContainerEngine] = field(default_factory=dict)

    def get(self, program: str) -> ContainerEngine:
        return self._known.setdefault(program, ContainerEngine(program, self))

    def stop(self) -> None:
        for engine in self._known.values():
            engine.stop()


# Docker's warnings that it will discard I/O limits: moby, pkg/sysinfo/cgroup2_linux.go and
# daemon/info_unix.go.
_NO_IO = re.compile(r"io controller|io\.max|blkio", re.IGNORECASE)


@dataclass(frozen=True)
class EngineFacts:
    """Facts of an engine, for the record; `data_root` has the images and container layers."""

    engine: str
    version: str
    storage_driver: str
    cgroup_driver: str
    cgroup_version: int
    rootless: bool
    data_root: str
    lacks_io: bool


def docker_facts(info: JsonView) -> EngineFacts:
    return EngineFacts(
        engine="docker",
        version=str(info.get("ServerVersion")),
        storage_driver=str(info.get("Driver")),
        cgroup_driver=str(info.get("CgroupDriver")),
        cgroup_version=int(info.get("CgroupVersion") or 1),
        rootless=any("rootless" in option for option in info.get("SecurityOptions") or ()),
        data_root=str(info.get("DockerRootDir")),
        lacks_io=any(_NO_IO.search(warning) for warning in info.get("Warnings") or ()),
    )


def podman_facts(info: JsonView) -> EngineFacts:
    host, store = info["host"], info["store"]
    return EngineFacts(
        engine="podman",
        version=str(info["version"]["Version"]),
        storage_driver=str(store["graphDriverName"]),
        cgroup_driver=str(host["cgroupManager"]),
        cgroup_version=2 if host["cgroupVersion"] == "v2" else 1,
        rootless=bool(host["security"]["rootless"]),
        data_root=str(store["graphRoot"]),
        lacks_io="io" not in host["cgroupControllers"],
    )


def unfit_reason(
    facts: EngineFacts, user: bool, cgroup_driver: str = "systemd"
) -> tuple[str, str] | None:
    """Return why the engine cannot run a trial, and the fix; None if it can.

    `user` is True if trials run under a user's own systemd. `cgroup_driver` is the maker of the
    trials' cgroups. In cgroup v1 a trial's limits on I/O would not hold for a container below it.
    """
    name = facts.engine
    if facts.cgroup_version != 2:
        reason = "uses cgroup v1, where a trial's limits on I/O do not hold for its containers"
        return f"{name} {reason}", "use HOST=vm"
    if facts.cgroup_driver != cgroup_driver:
        reason = f"{name} makes its cgroups by {facts.cgroup_driver} and trials have theirs from"
        setting = f'{{"exec-opts": ["native.cgroupdriver={cgroup_driver}"]}}'
        hint = f"put {setting} into /etc/docker/daemon.json and restart it"
        return f"{reason} {cgroup_driver}, so none can contain its containers", hint
    if facts.lacks_io:
        full_name = f"rootless {name}" if facts.rootless else name
        reason = f"{full_name} has no io controller and discards limits on I/O with a warning"
        return reason, delegation_command(os.getuid()) if facts.rootless else "use HOST=vm"
    if facts.rootless != user:
        engine, manager = ("a user", "root's") if facts.rootless else ("root", "a user's")
        reason = f"so it cannot put a container into a slice of {manager} systemd"
        return f"{name} runs as {engine}, {reason}", "run both as the same user"
    return None


_ROOTS = {"docker": Path("/var/lib/docker"), "podman": Path("/var/lib/containers/storage")}
_FOLDER = "pagecage-engines"
_MOUNT_SECONDS = 60.0


def keep_on_data_disk(engine: ContainerEngine) -> None:
    """Bind a new directory of the data disk over the engine's own until the end of the session.

    Only in a guest that pagecage made, and only for an engine that is not running yet. Elsewhere
    the images stay where they are, and that disk is measured.
    """
    if not OF_OURS.exists() or os.getuid() or engine.has_running_daemon():
        return
    root, folder = _ROOTS[engine.program], engine.machine.data_dir / _FOLDER / engine.program
    if os.path.ismount(root):
        return
    for path in (root, folder):
        path.mkdir(parents=True, exist_ok=True)
    run(["mount", "--bind", folder, root], timeout_seconds=_MOUNT_SECONDS)
    engine.undo.callback(shutil.rmtree, folder, ignore_errors=True)
    unmount = ["umount", "--recursive", "--lazy", str(root)]  # podman mounts directories below it
    engine.undo.callback(run, unmount, check=False, timeout_seconds=_MOUNT_SECONDS)
