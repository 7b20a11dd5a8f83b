"""Files that are copied to a host: the agent as one zipapp, and the workload binaries."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pagecage.agent.drivers.image_container import GATE
from pagecage.agent.system.volume_server import FUSE_PROGRAM, PLUGIN
from pagecage.checkout import BUILD, IS_INSTALLED, TOP
from pagecage.errors import HostError
from pagecage.hosts.architecture import build_folder, target_machine
from pagecage.model.trial import Trial
from pagecage.whole_files import write_whole

PACKAGE_DIR = Path(__file__).resolve().parent.parent
_PARTS = (
    *("__init__.py", "errors.py", "units.py", "process.py", "whole_files.py"),
    *("model", "agent"),
)
"""All modules that the agent may import (tests/test_imports.py). No others are copied to a host."""
_MAIN = b"import sys\nfrom pagecage.agent.main import main\nsys.exit(main(sys.argv[1:]))\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # a fixed time, so that equal sources give an equal hash


@dataclass(frozen=True)
class AgentPackage:
    """The agent and the workloads. Every record contains `agent_sha256`.

    `volume_plugin` is nbdkit's plugin of simulated volumes, and `volume_server` their server by
    FUSE; None if they are not compiled.
    """

    agent: Path
    programs: tuple[Path, ...]
    agent_sha256: str
    volume_plugin: Path | None = None
    volume_server: Path | None = None

    @property
    def volume_files(self) -> list[Path]:
        """The compiled files of simulated volumes, which lie next to the workloads on a host."""
        return [path for path in (self.volume_plugin, self.volume_server) if path is not None]

    @property
    def sha256(self) -> str:
        """A hash of the agent and all programs."""
        digest = hashlib.sha256(self.agent_sha256.encode())
        for program in self.programs:
            digest.update(f"\0{program.name}\0".encode() + program.read_bytes())
        return digest.hexdigest()


def require_workloads(package: AgentPackage) -> None:
    """Raise HostError if no workload is compiled.

    Called before a plan is made, which takes longer.
    """
    if not package.programs:
        raise HostError("the workload binaries are not built", "make build")


_BUILT_FOR = {"pclucene-java": "NAME=lucene-search"}
"""Workloads that `make build` leaves out, because their libraries are fetched by Maven."""


def require_programs(package: AgentPackage, trials: Collection[Trial]) -> None:
    """Raise HostError naming the workloads that these trials start and that are not compiled."""
    wanted = {name for trial in trials for name in _programs_of(trial)}
    missing = sorted(wanted - {path.name for path in package.programs})
    if any(trial.cage.is_volume for trial in trials):
        compiled = {path.name for path in package.volume_files}
        missing += [name for name in (PLUGIN, FUSE_PROGRAM) if name not in compiled]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        if IS_INSTALLED and set(missing) - set(_BUILT_FOR):
            machine = target_machine()
            raise HostError(
                f"{', '.join(missing)} {verb} not in this package for {machine}",
                f"install a wheel that was made with Rust's standard library for {machine}",
            )
        hint = (
            "make build"
            if set(missing) - set(_BUILT_FOR)
            else f"make setup {_BUILT_FOR[missing[0]]}"
        )
        raise HostError(f"{', '.join(missing)} {verb} not built", hint)


def _programs_of(trial: Trial) -> Iterator[str]:
    if trial.workload.is_built_in:
        yield trial.workload.program
    if trial.before is not None:
        yield trial.before.program
    if trial.workload.command and trial.workload.command.image:
        yield GATE
    is_tested = trial.workload.kind in ("command", "service") and trial.cage.limits_io
    if trial.datasets or trial.cage.disks or is_tested:
        yield "pcgen"  # makes datasets, and the file that a command's I/O limits are tested against


class CopyTarget(Protocol):
    """A host to which files can be copied."""

    spool_dir: str

    def push(self, sources: Sequence[Path], directory: str) -> None:
        """Copy files to a directory on the host, created if missing; names and modes are kept."""


def push_agent_package(host: CopyTarget, package: AgentPackage) -> None:
    """Copy the agent and the workloads to the paths that agent_argv() and requests use."""
    host.push([package.agent], host.spool_dir)
    host.push(package.programs, f"{host.spool_dir}/bin")


def agent_path(spool_dir: str) -> str:
    """Return the path of the agent on the host."""
    return f"{spool_dir}/agent.pyz"


def agent_argv(spool_dir: str) -> list[str]:
    """Return the command that starts the agent on the host."""
    return ["python3", agent_path(spool_dir), "run"]


def agent_bytes(package_dir: Path = PACKAGE_DIR) -> bytes:
    """Return the agent's zipapp, which needs only Python 3.11 or newer."""
    paths = [package_dir / part for part in _PARTS]
    sources = (
        source for path in paths for source in (path.rglob("*.py") if path.is_dir() else [path])
    )
    return zipapp_bytes(_MAIN, sources, package_dir)


def zipapp_bytes(
    main: bytes, sources: Iterable[Path], package_dir: Path = PACKAGE_DIR, first_line: bytes = b""
) -> bytes:
    """Return a zipapp of some modules of pagecage (PEP 441); equal sources give equal bytes.

    `main` is the text of __main__.py. `first_line`, if any, names the interpreter.
    """
    archive = io.BytesIO(first_line)
    archive.seek(0, io.SEEK_END)
    with zipfile.ZipFile(archive, "a", zipfile.ZIP_DEFLATED) as file:
        file.writestr(zipfile.ZipInfo("__main__.py", _EPOCH), main)
        for source in sorted(sources):
            name = source.relative_to(package_dir.parent).as_posix()
            file.writestr(zipfile.ZipInfo(name, _EPOCH), source.read_bytes(), zipfile.ZIP_DEFLATED)
    return archive.getvalue()


def make_agent_package(top: Path) -> AgentPackage:
    """Write the agent to the folder of built files, and return it with the workloads of `top`.

    They are those for the hosts' architecture. Workloads may be missing; see require_programs().
    Raises HostError if the folder cannot be written.
    """
    built = top / "build" / build_folder()
    programs = tuple(sorted(path for path in (built / "bin").glob("*") if path.is_file()))
    content = agent_bytes()
    agent = (BUILD if top == TOP else top / "build") / "host/agent.pyz"
    if not agent.exists() or agent.read_bytes() != content:
        _replace(agent, content)
    plugin = top / "build/host/lib" / PLUGIN  # nbdkit runs here, beside QEMU
    server = built / "lib" / FUSE_PROGRAM
    return AgentPackage(
        agent,
        programs,
        hashlib.sha256(content).hexdigest(),
        plugin if plugin.exists() else None,
        server if server.exists() else None,
    )


def _replace(agent: Path, content: bytes) -> None:
    """Write the agent at once, because another run may be copying it."""
    try:
        agent.parent.mkdir(parents=True, exist_ok=True)
        write_whole(agent, content)
    except OSError as error:
        raise HostError(
            f"{agent} cannot be written: {error.strerror}", f"ls -ld {agent.parent}"
        ) from None
