"""A container engine of this host: started when a trial asks for one, left as it was found."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

from pagecage.agent.drivers.engine_facts import EngineFacts, docker_facts, podman_facts, why_unfit
from pagecage.agent.systemd import Systemd
from pagecage.errors import HostError, PagecageError
from pagecage.process import find_tool, run

IMAGE = "localhost/pagecage-root:1"
LABEL = "pagecage=trial"
_START_SECONDS = 180.0
_ANSWER_SECONDS = 60.0
_UNITS = ("docker.socket", "docker.service", "containerd.service")
# A file system that is empty but for what a merged /usr is reached by; the host's own /usr is mounted into it.
_FOLDERS = ("usr", "etc", "tmp", "var", "run", "root")
_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")


class Engine:
    """Docker or podman, asked by its command line; what it is is asked once."""

    def __init__(self, program: str, systemd: Systemd, spool: Path) -> None:
        self.program = program
        self._systemd, self._spool = systemd, spool
        self._facts: EngineFacts | None = None
        self._started: tuple[str, ...] = ()
        self._was_loaded = False

    def ready(self) -> EngineFacts:
        """Start it, look whether it can serve, load the image. Raises HostError with the one thing that is missing."""
        if self._facts is None:
            if not find_tool(self.program):
                package = "docker.io" if self.program == "docker" else self.program
                raise HostError(f"{self.program} is not installed on this host", f"apt-get install {package}")
            self._start()
            facts = self._ask()
            if unfit := why_unfit(facts, self._systemd.user):
                raise HostError(*unfit)
            self._sweep()
            self._load()
            self._facts = facts
        return self._facts

    def remove(self, name: str) -> None:
        """Remove a container and all in it; one that is gone already is none to miss."""
        run([self.program, "rm", "--force", "--volumes", name], check=False, timeout_seconds=_ANSWER_SECONDS)

    def stop(self) -> None:
        """Take the image away, and end the engine, where it was us who brought them."""
        if self._was_loaded:
            run([self.program, "image", "rm", "--force", IMAGE], check=False, timeout_seconds=_ANSWER_SECONDS)
        if self._started:
            run(self._systemd.systemctl("stop", *self._started), check=False, timeout_seconds=_START_SECONDS)
        self._facts, self._was_loaded, self._started = None, False, ()

    def _start(self) -> None:
        """Podman has no daemon. Of Docker's units those that do not run now are ours to stop."""
        if self.program != "docker":
            return
        states = run(self._systemd.systemctl("is-active", *_UNITS), check=False).stdout.split()
        idle = tuple(unit for unit, state in zip(_UNITS, states, strict=False) if state != "active")
        if "docker.service" not in idle:
            return
        self._started = idle
        done = run(self._systemd.systemctl("start", "docker.service"), check=False, timeout_seconds=_START_SECONDS)
        if not done.ok:
            said = (done.stderr.strip().splitlines() or ["no reason"])[0]
            raise HostError(f"there is no Docker engine here: {said}", "systemctl status docker")

    def _ask(self) -> EngineFacts:
        form = "{{json .}}" if self.program == "docker" else "json"
        done = run([self.program, "info", "--format", form], check=False, timeout_seconds=_ANSWER_SECONDS)
        try:
            info = json.loads(done.stdout) if done.ok else {}
            return docker_facts(info) if self.program == "docker" else podman_facts(info)
        except (ValueError, LookupError, TypeError):
            said = (done.stderr.strip().splitlines() or ["it printed no JSON"])[-1]
            raise HostError(f"{self.program} does not answer: {said}", f"{self.program} info") from None

    def _sweep(self) -> None:
        """Remove containers that a killed harness left."""
        listed = run([self.program, "ps", "--all", "--quiet", "--filter", f"label={LABEL}"], check=False)
        for name in listed.stdout.split():
            self.remove(name)

    def _load(self) -> None:
        if run([self.program, "image", "inspect", IMAGE], check=False, timeout_seconds=_ANSWER_SECONDS).ok:
            return
        archive = self._spool / "image.tar"
        archive.write_bytes(empty_root())
        try:
            run([self.program, "import", archive, IMAGE], timeout_seconds=_ANSWER_SECONDS)
            self._was_loaded = True
        except PagecageError as error:
            raise HostError(f"{self.program} takes no image: {error.message}", f"{self.program} info") from None
        finally:
            archive.unlink()


def empty_root(top: Path = Path("/")) -> bytes:
    """The image of a trial's container as a tar: mount points, and this host's links into /usr."""
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


class Engines:
    """The engines of one machine state, each made when it is first asked for."""

    def __init__(self, systemd: Systemd, spool: Path) -> None:
        self._systemd, self._spool = systemd, spool
        self._known: dict[str, Engine] = {}

    def get(self, program: str) -> Engine:
        """Docker or podman."""
        return self._known.setdefault(program, Engine(program, self._systemd, self._spool))

    def stop(self) -> None:
        """Leave each as it was found."""
        for engine in self._known.values():
            engine.stop()
