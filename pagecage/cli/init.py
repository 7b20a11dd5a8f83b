"""`pagecage init`: a project around a command or a workload of the user."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Annotated, Literal

from cyclopts import App, Parameter

from pagecage.checkout import IS_INSTALLED, MARKER, TOP, find_project
from pagecage.cli.ci_files import new_ci_files
from pagecage.cli.examples import examples
from pagecage.cli.output import notify
from pagecage.cli.paths import shown, writing
from pagecage.cli.run_options import PROGRAMS
from pagecage.definitions.ci_writer import Build, CiSystem
from pagecage.definitions.files import check_name
from pagecage.definitions.project_writer import FILES, experiment_text
from pagecage.definitions.workload_templates import (
    TEMPLATES,
    folder_of,
    template_experiment,
    template_files,
)
from pagecage.errors import EXIT_OK, PagecageError

app = App(
    name="init",
    help_epilogue=examples("init"),
    usage="pagecage init [--name NAME] [--ci SYSTEM] [--template LANGUAGE | -- COMMAND...]",
)
_DEFAULT_COMMAND = ("cat", "{file}")
_DEFAULT_NAME = "mine"


@app.default
def init(
    *command: Annotated[str, Parameter(allow_leading_hyphen=True)],
    name: Annotated[str | None, Parameter(metavar="NAME")] = None,
    template: Annotated[
        Literal["command", "rust", "c", "python"], Parameter(metavar="LANGUAGE")
    ] = "command",
    ci: Annotated[CiSystem | None, Parameter(metavar="SYSTEM")] = None,
) -> int:
    """Make a project in this folder, with an experiment around a command or a new workload.

    The experiment runs the command on a slow disk and without limits. Files of this folder that the
    command names are copied to the guest, and are not in the page cache when it starts. In an
    existing project, only the experiment is added.

    With --template rust, c or python, the project gets a workload in that language, in
    workloads/NAME, which reports figures of its own.

    Parameters
    ----------
    command
        Program and its arguments; without one, a file that pagecage makes is read
    name
        Name of the experiment; by default that of the program, or `mine`
    template
        command, or the language of a workload
    ci
        CI system to write files for: github, gitlab or none; by default that of the git remote
    """
    if template != "command":
        return _init_workload(template, command, name, ci)
    words = command or _DEFAULT_COMMAND
    _check_text(words)
    folder, chosen = _folder(), check_name(_name_of(command) if name is None else name)
    experiment = folder / f"experiments/{chosen}.toml"
    _check_new(experiment, "--name", f"{chosen}-2", "--", *words)
    text, is_new = experiment_text(words, _own_files(folder, words)), not (folder / MARKER).exists()
    _write(_project(folder) | {experiment: text.encode()} | _ci_files(ci, chosen, folder))
    _remember(folder, chosen, is_new=is_new)
    notify(f"run it: pagecage run {chosen}")
    return EXIT_OK


def _init_workload(
    language: str, command: Sequence[str], name: str | None, ci: CiSystem | None
) -> int:
    """Make a project with a workload in this language."""
    if command:
        raise PagecageError(
            f"--template {language} makes its own program, and {command[0]!r} is another one",
            f"pagecage init --template {language} --name NAME",
        )
    folder, chosen, template = _folder(), check_name(name or _DEFAULT_NAME), TEMPLATES[language]
    experiment, workload = folder / f"experiments/{chosen}.toml", folder / folder_of(chosen)
    for path in (experiment, workload):
        _check_new(path, "--template", language, "--name", f"{chosen}-2")
    own, is_new = template_files(template, chosen, TOP), not (folder / MARKER).exists()
    build = Build(template.build, folder_of(chosen), template.packages) if template.build else None
    _write(
        _project(folder)
        | {experiment: template_experiment(template, chosen).encode()}
        | {folder / path: data for path, data in own.items()}
        | _ci_files(ci, chosen, folder, build)
    )
    _remember(folder, chosen, is_new=is_new)
    if template.build:
        notify(f"build it: cd {folder_of(chosen)} && {template.build}")
    else:
        (workload / template.program).chmod(0o755)
    notify(f"run it: pagecage run {chosen}")
    return EXIT_OK


def _check_new(path: Path, *words: str) -> None:
    """Raise PagecageError with the words of another `pagecage init` if the path exists."""
    if path.exists():
        raise PagecageError(
            f"{shown(path)} exists already", shlex.join(["pagecage", "init", *words])
        )


def _project(folder: Path) -> dict[Path, bytes]:
    """Return the files of a project that this folder lacks."""
    missing = {name: text for name, text in FILES.items() if not (folder / name).exists()}
    texts = {folder / name: text for name, text in missing.items()} | _ignored_runs(folder)
    return {path: text.encode(errors="surrogateescape") for path, text in texts.items()}


def _ci_files(
    ci: CiSystem | None, name: str, folder: Path, build: Build | None = None
) -> dict[Path, bytes]:
    return {path: text.encode() for path, text in new_ci_files(ci, name, folder, build).items()}


def _remember(folder: Path, name: str, *, is_new: bool) -> None:
    """Keep that the definition is the user's own; of a new project, each of its definitions."""
    from pagecage.cli.known_definitions import remember_definition, remember_project
    from pagecage.definitions.reader import Definitions

    if is_new:
        remember_project(folder)
    else:
        remember_definition(Definitions(TOP, PROGRAMS, folder).experiment(name))


def _folder() -> Path:
    """Return the working directory. Raises PagecageError if it cannot be a project's top."""
    here = Path.cwd()
    project = find_project(here)
    if not IS_INSTALLED and here.is_relative_to(TOP):
        raise PagecageError(
            f"{TOP} is pagecage itself, which has its own experiments/", "cd to your own project"
        )
    if project not in (None, here):
        raise PagecageError(f"this folder is in the project {project}", f"cd {project}")
    return here


def _name_of(command: Sequence[str]) -> str:
    """Return a name for an experiment with this command, which may be empty."""
    if not command:
        return _DEFAULT_NAME
    slug = re.sub(r"[^a-z0-9]+", "-", PurePath(command[0]).stem.lower()).strip("-")
    return slug[:40].strip("-") or "first"


def _check_text(words: Sequence[str]) -> None:
    """Raise PagecageError for an unknown option, and for a word that a TOML file cannot hold."""
    if not words[0]:
        raise PagecageError("the command is empty", "name a program after --")
    if words[0].startswith("-"):
        raise PagecageError(f"pagecage init has no option {words[0]!r}", "pagecage init --help")
    for word in words:
        if any("\ud800" <= character <= "\udfff" for character in word):
            raise PagecageError(f"the word {word!r} of the command is not UTF-8", "rename the file")


def _own_files(folder: Path, words: Sequence[str]) -> list[str]:
    """Return the words of a command that are files or folders below this one."""
    program, *arguments = words
    candidates = [program, *arguments] if "/" in program else arguments
    return [word for word in dict.fromkeys(candidates) if _is_below(folder, word)]


def _is_below(folder: Path, word: str) -> bool:
    if PurePath(word).is_absolute() or "\0" in word:
        return False
    real, top = os.path.realpath(folder / word), os.path.realpath(folder)
    return real.startswith(f"{top}/") and os.path.exists(real)  # noqa: PTH110 - Path.exists() raises for a name that is too long


def _ignored_runs(folder: Path) -> dict[Path, str]:
    """Return an existing .gitignore with the folder of runs added, if it lacks it."""
    path = folder / ".gitignore"
    with writing(path):
        text = path.read_text(errors="surrogateescape") if path.exists() else ""
    lines = text.splitlines()
    if not lines or "/runs/" in lines or "runs/" in lines:
        return {}
    return {path: "\n".join([*lines, "/runs/", ""])}


def _write(files: Mapping[Path, bytes]) -> None:
    for path, content in files.items():
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        sys.stderr.write(f"made: {shown(path)}\n")
