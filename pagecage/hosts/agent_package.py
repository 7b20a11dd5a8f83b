"""What travels to a host: the agent as one zipapp, and the workload binaries."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pagecage.errors import HostError
from pagecage.model.trial import Trial

PACKAGE = Path(__file__).resolve().parent.parent
_PARTS = ("__init__.py", "errors.py", "units.py", "process.py", "model", "agent")
"""What the agent may import (tests/test_imports.py); nothing else of pagecage is on a host."""
_MAIN = b"import sys\nfrom pagecage.agent.main import main\nsys.exit(main(sys.argv[1:]))\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # equal sources make an equal file, so its hash names it


@dataclass(frozen=True)
class AgentPackage:
    """Files for a host; `agent_sha256` stands in every record."""

    agent: Path
    programs: tuple[Path, ...]
    agent_sha256: str

    @property
    def sha256(self) -> str:
        """Changes when the agent or any program does."""
        digest = hashlib.sha256(self.agent_sha256.encode())
        for program in self.programs:
            digest.update(f"\0{program.name}\0".encode() + program.read_bytes())
        return digest.hexdigest()


def require_workloads(kit: AgentPackage) -> None:
    """Raise HostError when no workload was compiled: before a plan is made, which takes longer."""
    if not kit.programs:
        raise HostError("the workload binaries are not built", "make build")


def require_programs(kit: AgentPackage, trials: Iterable[Trial]) -> None:
    """Raise HostError naming the workloads that these trials start and that were not compiled."""
    wanted = {name for trial in trials for name in _programs_of(trial)}
    missing = sorted(wanted - {path.name for path in kit.programs})
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise HostError(f"{', '.join(missing)} {verb} not built", "make build")


def _programs_of(trial: Trial) -> Iterator[str]:
    if trial.workload.kind == "handshake":
        yield trial.workload.program
    if trial.before is not None:
        yield trial.before.program
    if trial.datasets or (trial.workload.kind == "command" and trial.cage.limits_io):
        yield "pcgen"  # makes datasets, and what a command's I/O limits are driven against


class Receiving(Protocol):
    """A host that files can be copied to."""

    spool_dir: str

    def push(self, sources: Sequence[Path], directory: str) -> None:
        """Copy files into a directory on the host (made if missing), keeping names and the executable bit."""


def push_kit(host: Receiving, kit: AgentPackage) -> None:
    """Copy the agent and the workloads to where agent_argv() and the requests expect them."""
    host.push([kit.agent], host.spool_dir)
    host.push(kit.programs, f"{host.spool_dir}/bin")


def agent_path(spool_dir: str) -> str:
    """Path on the host to which push_kit() copies the agent."""
    return f"{spool_dir}/agent.pyz"


def agent_argv(spool_dir: str) -> list[str]:
    """The command, on the host, that starts the agent."""
    return ["python3", agent_path(spool_dir), "run"]


def agent_bytes(package: Path = PACKAGE) -> bytes:
    """The agent's zipapp: runs with any Python 3.11 or newer, needs nothing installed."""
    paths = [package / part for part in _PARTS]
    sources = sorted(source for path in paths for source in (path.rglob("*.py") if path.is_dir() else [path]))
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(zipfile.ZipInfo("__main__.py", _EPOCH), _MAIN)
        for source in sources:
            name = source.relative_to(package.parent).as_posix()
            file.writestr(zipfile.ZipInfo(name, _EPOCH), source.read_bytes(), zipfile.ZIP_DEFLATED)
    return archive.getvalue()


def make_kit(top: Path) -> AgentPackage:
    """Write the agent to build/host/ and find the workloads there; `require_programs` tells which are missing."""
    build = top / "build/host"
    programs = tuple(sorted(path for path in (build / "bin").glob("*") if path.is_file()))
    content = agent_bytes()
    agent = build / "agent.pyz"
    build.mkdir(parents=True, exist_ok=True)
    if not agent.exists() or agent.read_bytes() != content:
        agent.write_bytes(content)
    return AgentPackage(agent, programs, hashlib.sha256(content).hexdigest())
