"""Build hook of hatchling: the files of a wheel besides the package, and the wheel's tag.

The project's files lie in pagecage/_data of the wheel as they lie in a checkout
(pagecage/checkout.py).
"""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDERS = (
    "ansible",
    "cgroups",
    "containers/guest",
    "docs",
    "examples",
    "experiments",
    "workloads",
)
FILES = ("action.yml", "ci/gitlab.yml", "containers/versions.env", "LICENSE")
LEFT_OUT = ("ansible/molecule", "docs/gallery", "workloads/testbed", "workloads/contract")
"""Tests and pictures, which take 13 MB."""
LEAST_BINARIES = ("bin/pcgen", "bin/pcprobe", "lib/libpcvolume.so", "lib/pcvolume-fuse")
INSIDE = "build/host"
"""The folder of compiled programs in the wheel. A checkout has those of others in build/MACHINE."""
MANUAL = "build/manual"
"""The manual page and completions, as pagecage/cli/manual.py writes them."""
ELF_MACHINES = {"x86_64": 62, "aarch64": 183}  # elf(5), e_machine


class WheelContents(BuildHookInterface):
    """Adds the files and the tag. Refuses to build without the compiled programs."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before a build."""
        if version == "editable":
            return
        top, machine = Path(self.root), target_machine()
        refusal = refused(top, machine)
        if refusal:
            self.app.abort(f"pagecage: {refusal}\n  fix: make wheel, in a checkout on Linux")
        note = top / "build/revision"
        note.write_text(revision(top))
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-linux_{machine}"
        compiled = compiled_folder(top, machine)
        names = {path: path.relative_to(top).as_posix() for path in contents(top)}
        names |= {path: f"{INSIDE}/{path.relative_to(compiled)}" for path in programs(compiled)}
        build_data["force_include"] |= {
            str(path): f"pagecage/_data/{name}" for path, name in names.items()
        }
        build_data["force_include"][str(note)] = "pagecage/_data/revision"
        pages = top / MANUAL
        build_data["shared_data"] |= {
            str(path): path.relative_to(pages).as_posix()
            for path in sorted(pages.rglob("*"))
            if path.is_file()
        }


def refused(top: Path, machine: str) -> str | None:
    """Return why no wheel can be built here; None if one can."""
    if machine not in ELF_MACHINES:
        return f"there is no wheel for {machine}"
    compiled = compiled_folder(top, machine)
    missing = without(compiled)
    if missing and machine == platform.machine():
        return f"{compiled.relative_to(top)} lacks {missing}"
    if not compiled.is_dir():
        return f"the programs for {machine} are not built"
    for path in programs(compiled):
        found = elf_machine(path)
        if found not in (None, ELF_MACHINES[machine]):
            return f"{path.relative_to(top)} was compiled for another processor than {machine}"
    return None


def target_machine() -> str:
    """Return the architecture of the wheel: PAGECAGE_MACHINE, or this machine's."""
    return os.environ.get("PAGECAGE_MACHINE") or platform.machine()


def compiled_folder(top: Path, machine: str) -> Path:
    """Return the folder of a checkout with the programs for an architecture."""
    return top / "build" / ("host" if machine == platform.machine() else machine)


def programs(compiled: Path) -> list[Path]:
    """Return the compiled programs and libraries."""
    return [path for name in ("bin", "lib") for path in sorted((compiled / name).glob("*"))]


def without(compiled: Path) -> str:
    """Return the programs that every experiment needs and that are not compiled; "" if all are."""
    return ", ".join(name for name in LEAST_BINARIES if not (compiled / name).exists())


def elf_machine(path: Path) -> int | None:
    """Return e_machine of an ELF file; None for any other file."""
    with path.open("rb") as file:
        head = file.read(20)
    return int.from_bytes(head[18:20], "little") if head.startswith(b"\x7fELF") else None


def contents(top: Path) -> Iterator[Path]:
    """Yield the files that are added, without bytecode, build products and hidden folders."""
    for name in FOLDERS:
        for path in sorted((top / name).rglob("*")):
            inside = path.relative_to(top)
            is_hidden = any(
                part.startswith((".", "__pycache__", "target")) for part in inside.parts
            )
            is_left_out = any(inside.is_relative_to(folder) for folder in LEFT_OUT)
            if path.is_file() and not is_hidden and not is_left_out:
                yield path
    yield from (top / name for name in FILES)


def revision(top: Path) -> str:
    """Return the git revision, and `dirty` if tracked files differ from it; empty without git."""
    try:
        head = git(top, "rev-parse", "HEAD")
        return (
            f"{head} dirty" if git(top, "status", "--porcelain", "--untracked-files=no") else head
        )
    except (OSError, subprocess.CalledProcessError):
        return ""


def git(top: Path, *words: str) -> str:
    """Return the output of a git command."""
    done = subprocess.run(["git", "-C", top, *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()
