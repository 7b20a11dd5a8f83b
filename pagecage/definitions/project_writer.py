"""Files that `pagecage init` writes: a definition, a workload, and the job of a CI."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from pagecage.checkout import TOP

CiSystem = Literal["github", "gitlab", "none"]
_ACTION = ".github/actions/pagecage/action.yml"
_TEMPLATE = ".gitlab/pagecage.yml"
_BUILD_STEP = """\
      - run: {command}
        working-directory: {folder}
"""
_BUILD_VARIABLES = """\
    PAGECAGE_PACKAGES: {packages}
    PAGECAGE_BUILD: {command}
"""
_PIPELINE = """---
include:
  - local: /{job}
"""


@dataclass(frozen=True)
class Build:
    """The command that builds a project's program, in a folder of the project.

    `packages` are those of Debian that it needs, separated by spaces.
    """

    command: str
    folder: str
    packages: str


def _filled(kind: str, /, **words: str) -> str:
    """Return a template of workloads/templates/project with each @word@ replaced."""
    text = (TOP / f"{_TEMPLATES}/project/{kind}.in").read_text()
    return re.sub("@([a-z_]+)@", lambda match: words[match[1]], text)


def ci_files(
    system: CiSystem, name: str, project: str, source: Path, build: Build | None = None
) -> Mapping[str, str]:
    """Return contents by path, relative to the top of the repository.

    `project` is the folder of the experiment below that top. `source` has pagecage's own action and
    template, which are copied so that the repository depends on no other. `build` is None for a
    program that needs none.
    """
    words = {"name": name, "quoted": json.dumps(name), "project": json.dumps(project)}
    words["build"] = ""
    if build and system == "github":  # whose runners have the compilers
        folder = (PurePosixPath(project) / build.folder).as_posix()
        words["build"] = _BUILD_STEP.format(command=build.command, folder=json.dumps(folder))
    elif build:
        command = json.dumps(f"cd {build.folder} && {build.command}")
        packages = json.dumps(build.packages)
        words["build"] = _BUILD_VARIABLES.format(command=command, packages=packages)
    if system == "github":
        return {
            _ACTION: (source / "action.yml").read_text(),
            f".github/workflows/pagecage-{name}.yml": _filled("github", **words),
        }
    if system == "gitlab":
        job = f".gitlab/pagecage-{name}.yml"
        return {
            _TEMPLATE: (source / "ci/gitlab.yml").read_text(),
            job: _filled("gitlab", **words, template=_TEMPLATE),
            ".gitlab-ci.yml": _PIPELINE.format(job=job),
        }
    return {}


_MARKER = """# The top of a project for pagecage, with its experiments/ and cgroups/.
"""
_CAGE = """about = "A slow disk: 20 MB/s and 500 reads per second."
IOReadBandwidthMax = "20MB"
IOReadIOPSMax = 500
"""
FILES = {
    "pagecage.toml": _MARKER,
    ".gitignore": "/runs/\n/site/\n",
}
"""Contents of a new project by path, besides its experiments and cages."""
_COPIES = """# Copied to the guest. On this machine they are used in place.
copies = {copies}
"""
LEVELS = """
# Nothing of the files is in the page cache when the command starts.
[levels.cage.uncaged]
cache = "cold"
[levels.cage.{cage}]
cache = "cold"
"""
SLOW_DISK = "slow-disk"
SLOW_DISK_FILE = {f"cgroups/{SLOW_DISK}.toml": _CAGE}
"""The cage of an experiment for which none is named, by its path."""
_DATASETS = {"full": "1GiB", "default": "256MiB", "emulated": "64MiB", "smoke": "16MiB"}


def experiment_text(
    words: Sequence[str],
    files: Sequence[str],
    cage: str = SLOW_DISK,
    ready_port: int | None = None,
) -> str:
    """Return the definition of an experiment with a command in a cage.

    `files` are the words that are files of the project. They are data, except for the program. With
    `ready_port` the command is a server, whose start is measured.
    """
    data = [file for file in files if file != words[0]]
    has_dataset = any("{file}" in word for word in words)
    what = "a slow disk" if cage == SLOW_DISK else cage
    return _filled(
        "command",
        question=_quoted(f"What does {what} cost `{shlex.join(words)}`?"),
        copies=_COPIES.format(copies=_array(files)) if files else "",
        program=_quoted(words[0]),
        arguments=_array(words[1:]),
        data_paths=f"data_paths = {_array(data)}\n" if data else "",
        levels=LEVELS.format(cage=cage) if data or has_dataset else "",
        cage=cage,
        until="to its exit" if ready_port is None else "until it serves",
        response="wall_seconds" if ready_port is None else "ready_seconds",
        ready="" if ready_port is None else f"ready_port = {ready_port}\n",
        sizes=_sizes(has_dataset=has_dataset).rstrip(),
    )


def _sizes(*, has_dataset: bool) -> str:
    return "".join(
        f"[sizes.{name}]\n"
        + (f'dataset = "{size}"\n' if has_dataset else "")
        + ("repeats = 1\n" if name == "smoke" else "")
        for name, size in _DATASETS.items()
    )


def _array(words: Sequence[str]) -> str:
    return f"[{', '.join(map(_quoted, words))}]"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


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


def folder_of(name: str) -> str:
    return f"{_FOLDER}/{name}"


def template_files(template: WorkloadTemplate, name: str, top: Path) -> dict[str, bytes]:
    """Return the contents of a workload's files, of pagecage's in `top`, by path in the project."""
    folder = folder_of(name)
    found = {f"{folder}/.gitignore": template.made.encode()}
    for target, source in template.files.items():
        path = top / source
        for file in [path] if path.is_file() else sorted(path.rglob("*")):
            if file.is_file():
                name_there = (PurePosixPath(folder) / target / file.relative_to(path)).as_posix()
                found[name_there] = file.read_bytes()
    return found


def template_experiment(template: WorkloadTemplate, name: str) -> str:
    """Return the definition of an experiment with a workload made from a template."""
    folder = folder_of(name)
    return _filled(
        "workload",
        name=name,
        folder=folder,
        program=template.program,
        copies=", ".join(f'"{folder}/{path}"' for path in template.copies),
        levels=LEVELS.format(cage=SLOW_DISK),
        sizes=_sizes(has_dataset=True).rstrip(),
    )
