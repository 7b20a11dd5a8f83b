"""Templates of workloads that speak the handshake: their files, their build and an experiment.

The libraries are those of pagecage's own workloads (docs/HANDSHAKE.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pagecage.definitions.project_writer import LEVELS, data_sizes


@dataclass(frozen=True)
class WorkloadTemplate:
    """A workload in one language.

    `files` has the path below pagecage's own files of each file, or folder, of the workload.
    `program` is the path of the finished program, and `copies` are the files that the guest gets.
    `build` is the command that makes the program, `packages` are those of Debian that it needs, and
    `made` is what it leaves; empty for a script.
    """

    files: Mapping[str, str]
    program: str
    copies: tuple[str, ...]
    build: str = ""
    packages: str = ""
    made: str = ""


_FOLDER = "workloads"
_TEMPLATES = f"{_FOLDER}/templates"
TEMPLATES: Mapping[str, WorkloadTemplate] = {
    "rust": WorkloadTemplate(
        {
            "Cargo.toml": f"{_TEMPLATES}/rust/Cargo.toml",
            ".cargo/config.toml": f"{_TEMPLATES}/rust/cargo-config.toml",
            "src": f"{_TEMPLATES}/rust/src",
            "pagecage-workload": f"{_FOLDER}/pagecage-workload",
        },
        program="target/release/workload",
        copies=("target/release/workload",),
        build="cargo build --release",
        packages="cargo",
        made="/target/\n",
    ),
    "c": WorkloadTemplate(
        {
            "Makefile": f"{_TEMPLATES}/c/Makefile",
            "workload.c": f"{_TEMPLATES}/c/workload.c",
            "pagecage_workload.h": f"{_FOLDER}/c/pagecage_workload.h",
            "pagecage_workload.c": f"{_FOLDER}/c/pagecage_workload.c",
        },
        program="workload",
        copies=("workload",),
        build="make",
        packages="gcc libc6-dev make",
        made="/workload\n",
    ),
    "python": WorkloadTemplate(
        {
            "workload.py": f"{_TEMPLATES}/python/workload.py",
            "pagecage_workload.py": f"{_FOLDER}/python/pagecage_workload.py",
        },
        program="workload.py",
        copies=("workload.py", "pagecage_workload.py"),
        made="__pycache__/\n",
    ),
}
_EXPERIMENT = """question = "What does a slow disk cost {name}?"
# Seconds of the whole work: `seconds` of `end`, divided by its `covered_fraction`.
response = "full_pass_seconds"
repeats = 3
collectors = []
# Copied to the guest. On this machine they are used in place.
copies = [{copies}]

# A program that speaks the handshake (docs/HANDSHAKE.md of pagecage).
[workload]
kind = "handshake"
program = "./{folder}/{program}"
arguments = ["{{file}}"]

# `uncaged` is the control without limits. The other levels are cages: those of cgroups/, and
# pagecage's own (`pagecage cage list`).
[factors]
cage = ["uncaged", "slow-disk"]
{levels}
# Sizes differ in `dataset` (a file that pagecage makes, {{file}}), repeats and limits of time.
{sizes}"""


def folder_of(name: str) -> str:
    """Return the folder in the project of a workload."""
    return f"{_FOLDER}/{name}"


def template_files(template: WorkloadTemplate, name: str, top: Path) -> dict[str, bytes]:
    """Return the contents of a workload's files by path in the project.

    `top` is the folder of pagecage's own files.
    """
    folder = folder_of(name)
    found = {f"{folder}/.gitignore": template.made.encode()}
    for target, source in template.files.items():
        found |= {f"{folder}/{path}": data for path, data in _contents(target, top / source)}
    return found


def _contents(target: str, source: Path) -> list[tuple[str, bytes]]:
    if source.is_file():
        return [(target, source.read_bytes())]
    paths = sorted(path for path in source.rglob("*") if path.is_file())
    return [(f"{target}/{path.relative_to(source)}", path.read_bytes()) for path in paths]


def template_experiment(template: WorkloadTemplate, name: str) -> str:
    """Return the definition of an experiment with a workload made from a template."""
    folder = folder_of(name)
    return _EXPERIMENT.format(
        name=name,
        folder=folder,
        program=template.program,
        copies=", ".join(f'"{folder}/{path}"' for path in template.copies),
        levels=LEVELS,
        sizes=data_sizes(),
    )
