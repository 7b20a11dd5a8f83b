"""The agent and verify as one file each, for a host's architecture."""

from __future__ import annotations

import ast
import hashlib
import io
import os
import platform
import zipfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pagecage.agent.drivers.container import GATE
from pagecage.agent.volume_server import FUSE_PROGRAM, PLUGIN
from pagecage.checkout import BUILD, IS_INSTALLED, TOP
from pagecage.errors import EXIT_HOST, HostError
from pagecage.model.trial import Trial
from pagecage.whole_files import write_whole

VARIABLE = "PAGECAGE_MACHINE"


@dataclass(frozen=True)
class Architecture:
    """An architecture by the kernel's name (`machine`) and that of packages (`debian`).

    `board` and `devices` are QEMU's, `console` and `boot_option` the kernel's; "" for none.
    """

    machine: str
    debian: str
    board: str
    console: str
    early_console: str
    boot_option: str = ""
    devices: tuple[str, ...] = ()

    @property
    def is_native(self) -> bool:
        return self.machine == platform.machine()

    @property
    def qemu(self) -> str:
        return f"qemu-system-{self.machine}"


_KNOWN = (
    Architecture(
        *("x86_64", "amd64", "q35", "ttyS0", "earlyprintk=serial,ttyS0"),
        devices=("vmgenid,guid=auto",),  # reseeds at a restore; the guest's daemon does so too
    ),
    # QEMU's default is GICv2, which KVM lacks on most servers (docs/system/arm/virt.rst).
    Architecture(
        *("aarch64", "arm64", "virt,gic-version=max", "ttyAMA0", "earlycon"),
        boot_option="systemd.getty_auto=no",  # the image masks the login of ttyS0 only
    ),
)
ARCHITECTURES = {known.machine: known for known in _KNOWN}


def target_machine() -> str:
    return os.environ.get(VARIABLE) or platform.machine()


def architecture(machine: str | None = None) -> Architecture:
    """Return an architecture, by default the hosts'. Raises HostError if nothing is made for it."""
    wanted = machine or target_machine()
    if wanted not in ARCHITECTURES:
        reason = f"there is no guest for {wanted}"
        raise HostError(reason, "run on x86_64 or aarch64, or use HOST=local")
    return ARCHITECTURES[wanted]


def is_foreign_target() -> bool:
    return target_machine() != platform.machine()


def require_native_target() -> None:
    if is_foreign_target():
        raise HostError(
            f"{VARIABLE} is {target_machine()}, and this machine is {platform.machine()}",
            f"use HOST=vm or a group of {target_machine()} hosts, or: unset {VARIABLE}",
        )


PACKAGE_DIR = Path(__file__).resolve().parent.parent
_PARTS = (
    *("__init__.py", "errors.py", "units.py", "process.py", "whole_files.py"),
    *("model", "linux", "agent"),
)
"""All modules that the agent may import (tests/test_imports.py). No others are copied to a host."""
_MAIN = b"import sys\nfrom pagecage.agent.main import main\nsys.exit(main(sys.argv[1:]))\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # a fixed time, so that equal sources give an equal hash


@dataclass(frozen=True)
class AgentPackage:
    """The agent and the workloads; None for a server of volumes that is not compiled."""

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
        digest = hashlib.sha256(self.agent_sha256.encode())
        for program in self.programs:
            digest.update(f"\0{program.name}\0".encode() + program.read_bytes())
        return digest.hexdigest()


def require_workloads(package: AgentPackage) -> None:
    """Raise HostError if no workload is compiled, before a plan is made, which takes longer."""
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
        verb, is_usual = "is" if len(missing) == 1 else "are", set(missing) - set(_BUILT_FOR)
        if IS_INSTALLED and is_usual:
            machine = target_machine()
            raise HostError(
                f"{', '.join(missing)} {verb} not in this package for {machine}",
                f"install a wheel that was made with Rust's standard library for {machine}",
            )
        hint = "make build" if is_usual else f"make setup {_BUILT_FOR[missing[0]]}"
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
    return f"{spool_dir}/agent.pyz"


def agent_argv(spool_dir: str) -> list[str]:
    return ["python3", agent_path(spool_dir), "run"]


def agent_bytes(package_dir: Path = PACKAGE_DIR) -> bytes:
    paths = [package_dir / part for part in _PARTS]
    sources = (file for path in paths for file in (path.rglob("*.py") if path.is_dir() else [path]))
    return zipapp_bytes(_MAIN, sources, package_dir)


def zipapp_bytes(
    main: bytes, sources: Iterable[Path], package_dir: Path = PACKAGE_DIR, first_line: bytes = b""
) -> bytes:
    """Return a zipapp of some modules of pagecage (PEP 441); equal sources give equal bytes."""
    archive = io.BytesIO(first_line)
    archive.seek(0, io.SEEK_END)
    with zipfile.ZipFile(archive, "a", zipfile.ZIP_DEFLATED) as file:
        file.writestr(zipfile.ZipInfo("__main__.py", _EPOCH), main)
        for source in sorted(sources):
            name = source.relative_to(package_dir.parent).as_posix()
            file.writestr(zipfile.ZipInfo(name, _EPOCH), source.read_bytes(), zipfile.ZIP_DEFLATED)
    return archive.getvalue()


def make_agent_package(top: Path) -> AgentPackage:
    """Write the agent and return it with the workloads of `top`, which may be missing.

    Raises HostError if the folder of built files cannot be written.
    """
    built = top / "build" / (architecture().machine if is_foreign_target() else "host")
    programs = tuple(sorted(path for path in (built / "bin").glob("*") if path.is_file()))
    content = agent_bytes()
    agent = (BUILD if top == TOP else top / "build") / "host/agent.pyz"
    if not agent.exists() or agent.read_bytes() != content:
        try:
            agent.parent.mkdir(parents=True, exist_ok=True)
            write_whole(agent, content)
        except OSError as error:
            reason = f"{agent} cannot be written: {error.strerror}"
            raise HostError(reason, f"ls -ld {agent.parent}") from None
    # nbdkit runs here, beside QEMU.
    servers = (top / "build/host/lib" / PLUGIN, built / "lib" / FUSE_PROGRAM)
    plugin, server = (path if path.exists() else None for path in servers)
    return AgentPackage(agent, programs, hashlib.sha256(content).hexdigest(), plugin, server)


def module_files(entry: str, package_dir: Path = PACKAGE_DIR) -> dict[str, Path]:
    """Return the modules of pagecage that `entry` imports, directly or not, with their files."""
    found: dict[str, Path] = {}
    waiting = [entry]
    while waiting:
        name = waiting.pop()
        place = package_dir.parent.joinpath(*name.split("."))
        candidates = (place.with_suffix(".py"), place / "__init__.py")
        path = next((path for path in candidates if path.exists()), None)
        if name in found or path is None:
            continue
        found[name] = path
        waiting += [name.rpartition(".")[0]] if "." in name else []
        for node in ast.walk(ast.parse(path.read_text())):
            module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
            if isinstance(node, ast.ImportFrom) and module.startswith("pagecage"):
                waiting += [module, *(f"{module}.{alias.name}" for alias in node.names)]
    return found


FILE_NAME = "pagecage-verify.pyz"
OLDEST_PYTHON = (3, 9)
_FIRST_LINE = b"#!/usr/bin/env python3\n"
ENTRY = "pagecage.verify.main"
_OLDEST = ".".join(map(str, OLDEST_PYTHON))
_VERIFY_MAIN = f"""import sys
if sys.version_info < {OLDEST_PYTHON}:
    sys.stderr.write("pagecage-verify: Python {_OLDEST} or newer is needed\\n")
    sys.exit({EXIT_HOST})
from {ENTRY} import main
sys.exit(main(sys.argv[1:]))
""".encode()


def verify_bytes(package_dir: Path = PACKAGE_DIR) -> bytes:
    sources = module_files(ENTRY, package_dir).values()
    return zipapp_bytes(_VERIFY_MAIN, sources, package_dir, _FIRST_LINE)


def write_verify_package(folder: Path, package_dir: Path = PACKAGE_DIR) -> Path:
    """Write the file to a folder, executable, and return its path."""
    path, content = folder / FILE_NAME, verify_bytes(package_dir)
    folder.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_bytes() != content:
        write_whole(path, content, 0o777)
    path.chmod(0o755)
    return path
