"""`pagecage init`: a project of one's own."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from pagecage.checkout import IS_INSTALLED, MARKER, TOP, find_project
from pagecage.cli.examples import examples
from pagecage.cli.known_definitions import remember_definition, remember_project
from pagecage.cli.options import PROGRAMS, shown, writing
from pagecage.cli.output import notify
from pagecage.definitions.experiment import Experiment
from pagecage.definitions.project_writer import (
    FILES,
    TEMPLATES,
    Build,
    CiSystem,
    ci_files,
    experiment_text,
    folder_of,
    template_experiment,
    template_files,
)
from pagecage.definitions.reader import Definitions, check_name
from pagecage.errors import EXIT_OK, PagecageError
from pagecage.hosts.host import SizedHost
from pagecage.model.trial import CommandSpec, Workload
from pagecage.process import find_tool, run
from pagecage.runner.uploads import (
    FOLDER,
    UploadedFile,
    find_uploads,
    path_on_host,
    translate_command,
    uploads_to_json,
)

_PIPELINE = ".gitlab-ci.yml"
_DEFAULT_COMMAND = ("cat", "{file}")
_DEFAULT_NAME = "mine"


def new_ci_files(
    given: CiSystem | None, name: str, folder: Path, build: Build | None = None
) -> dict[Path, bytes]:
    """Return the contents of the files that are missing, by path."""
    top = _git(folder, "rev-parse", "--show-toplevel")
    remote = _git(folder, "remote", "get-url", "origin")  # such as git@gitlab.example:a/b.git
    address = remote.rpartition("://")[2].rpartition("@")[2]
    server = address.partition("/")[0].partition(":")[0]
    by_server: CiSystem = (
        "github" if "github" in server else "gitlab" if "gitlab" in server else "none"
    )
    system = given or by_server
    repository = Path(top) if top else folder
    inside = folder.resolve().relative_to(repository.resolve()).as_posix()
    texts = ci_files(system, name, inside, TOP, build)
    files = {repository / path: text for path, text in texts.items()}
    if system != "none":
        notify("CI installs the wheel that its variable PAGECAGE_WHEEL names; see docs/GATES.md")
    elif given is None:
        notify("no CI file: the git remote is not GitHub's or GitLab's; choose with --ci")
    if repository / _PIPELINE in files and (repository / _PIPELINE).exists():
        notify(f"add to the includes of {_PIPELINE}: local: /.gitlab/pagecage-{name}.yml")
    return {path: text.encode() for path, text in files.items() if not path.exists()}


def _git(folder: Path, *words: str) -> str:
    git = find_tool("git")
    return run([git, "-C", folder, *words], check=False).stdout.strip() if git else ""


def place_files(
    experiment: Experiment, host: SizedHost
) -> tuple[Experiment, dict[str, Any] | None]:
    """Return the experiment for a host, and the copies that its plan records; None without any."""
    project, copies = experiment.project, experiment.copies
    if project is None:
        return experiment, None
    _check_programs(experiment, project)
    if host.name == "vm" and copies:
        uploads = _uploads(project, copies, experiment.name)
        directory = f"{getattr(host, 'data_dir', '')}/{FOLDER}"
        placed = _placed(
            experiment, uploads, directory, lambda one: _copied(one, uploads, directory, project)
        )
        return placed, {"carried": uploads_to_json(uploads), "directory": directory}
    if copies and host.name != "local":
        raise PagecageError(
            f"{experiment.name} copies files of its project, which works with --host vm alone",
            "run it with --host vm or local",
        )
    here = str(project) if host.name == "local" else None
    return _placed(experiment, (), here, lambda one: _in_folder(one, here, copies)), None


def _check_programs(experiment: Experiment, project: Path) -> None:
    tables = (level for levels in experiment.levels.values() for level in levels.values())
    for one in (experiment.workload, *(level.workload for level in tables if level.workload)):
        path = project / one.program
        if _speaks_handshake(one) and not (path.is_file() and os.access(path, os.X_OK)):
            raise PagecageError(
                f"{experiment.name}.toml: workload.program: {path} is not an executable file",
                f"build it in {path.parent}; a script needs chmod +x",
            )


def _speaks_handshake(workload: Workload) -> bool:
    return workload.kind == "handshake" and not workload.is_built_in


def _uploads(project: Path, copies: tuple[str, ...], name: str) -> tuple[UploadedFile, ...]:
    for path in copies:
        if not (project / path).resolve().is_relative_to(project.resolve()):
            raise PagecageError(
                f"{name}.toml: copies: {path!r} is outside the project {project}",
                "name a file or folder below it",
            )
        if not (project / path).exists():
            raise PagecageError(
                f"{name}.toml: copies: {path!r} does not exist in {project}", f"ls {project}"
            )
    found = find_uploads([str(project / path) for path in copies])
    return tuple(replace(file, typed=path) for file, path in zip(found, copies, strict=True))


def _placed(
    experiment: Experiment,
    uploads: tuple[UploadedFile, ...],
    directory: str | None,
    place: Callable[[Workload], Workload],
) -> Experiment:
    """Return the experiment with each of the project's own programs placed."""

    def placed(one: Workload) -> Workload:
        return place(one) if one.command is not None or _speaks_handshake(one) else one

    levels = {
        factor: {
            name: level.model_copy(update={"workload": level.workload and placed(level.workload)})
            for name, level in table.items()
        }
        for factor, table in experiment.levels.items()
    }
    collectors = tuple(
        replace(
            one,
            directory=directory,
            command=translate_command(one.command, uploads, directory or ""),
        )
        for one in experiment.own_collectors
    )
    workload = placed(experiment.workload)
    return replace(experiment, workload=workload, levels=levels, own_collectors=collectors)


def _in_folder(one: Workload, directory: str | None, copies: tuple[str, ...] = ()) -> Workload:
    if _speaks_handshake(one):
        if directory is None:
            raise PagecageError(
                f"{one.program} is a file of the project, and is not copied to the host",
                f"name it in `copies`, and run it with --host vm: copies = [{one.program!r}]",
            )
        words = (f"{directory}/{word}" if word in copies else word for word in one.arguments)
        program = os.path.normpath(Path(directory, one.program))
        return replace(one, program=program, arguments=tuple(words))
    command = one.command or CommandSpec()
    return replace(one, command=replace(command, directory=command.directory or directory))


def _copied(
    one: Workload, uploads: tuple[UploadedFile, ...], directory: str, project: Path
) -> Workload:
    program, *arguments = translate_command((one.program, *one.arguments), uploads, directory)
    if _speaks_handshake(one):
        copy = path_on_host(str(project / one.program), uploads, directory)
        if copy is None:
            return _in_folder(one, None)
        return replace(one, program=copy, arguments=tuple(arguments))
    command = one.command or CommandSpec()
    paths = tuple(
        path_on_host(str(project / path), uploads, directory) or path for path in command.data_paths
    )
    command = replace(command, data_paths=paths, directory=directory)
    return replace(one, program=program, arguments=tuple(arguments), command=command)


app = App(
    name="init",
    help_epilogue=examples("init"),
    usage="pagecage init [--name NAME] [--ci SYSTEM] [--template LANGUAGE | -- COMMAND...]",
)


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
    text = experiment_text(words, _files_below(folder, words))
    _make(folder, chosen, {experiment: text.encode()} | new_ci_files(ci, chosen, folder))
    notify(f"run it: pagecage run {chosen}")
    return EXIT_OK


def _init_workload(
    language: str, command: Sequence[str], name: str | None, ci: CiSystem | None
) -> int:
    if command:
        raise PagecageError(
            f"--template {language} makes its own program, and {command[0]!r} is another one",
            f"pagecage init --template {language} --name NAME",
        )
    folder, chosen, template = _folder(), check_name(name or _DEFAULT_NAME), TEMPLATES[language]
    experiment, workload = folder / f"experiments/{chosen}.toml", folder / folder_of(chosen)
    for path in (experiment, workload):
        _check_new(path, "--template", language, "--name", f"{chosen}-2")
    build = Build(template.build, folder_of(chosen), template.packages) if template.build else None
    files = template_files(template, chosen, TOP)
    _make(
        folder,
        chosen,
        {experiment: template_experiment(template, chosen).encode()}
        | {folder / path: data for path, data in files.items()}
        | new_ci_files(ci, chosen, folder, build),
    )
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
    ignored = folder / ".gitignore"
    with writing(ignored):
        text = ignored.read_text(errors="surrogateescape") if ignored.exists() else ""
    texts = {folder / name: text for name, text in FILES.items() if not (folder / name).exists()}
    lines = text.splitlines()
    if lines and "/runs/" not in lines and "runs/" not in lines:
        texts[ignored] = "\n".join([*lines, "/runs/", ""])
    return {path: text.encode(errors="surrogateescape") for path, text in texts.items()}


def _make(folder: Path, name: str, files: Mapping[Path, bytes]) -> None:
    """Write an experiment's files, and the project's if there is none yet."""
    is_new = not (folder / MARKER).exists()
    for path, content in {**_project(folder), **files}.items():
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        sys.stderr.write(f"made: {shown(path)}\n")
    if is_new:
        remember_project(folder)
    else:
        remember_definition(Definitions(TOP, PROGRAMS, folder).experiment(name))


def _folder() -> Path:
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
    if not command:
        return _DEFAULT_NAME
    slug = re.sub(r"[^a-z0-9]+", "-", PurePath(command[0]).stem.lower()).strip("-")
    return slug[:40].strip("-") or "first"


def _check_text(words: Sequence[str]) -> None:
    if not words[0]:
        raise PagecageError("the command is empty", "name a program after --")
    if words[0].startswith("-"):
        raise PagecageError(f"pagecage init has no option {words[0]!r}", "pagecage init --help")
    for word in words:
        if any("\ud800" <= character <= "\udfff" for character in word):
            raise PagecageError(f"the word {word!r} of the command is not UTF-8", "rename the file")


def _files_below(folder: Path, words: Sequence[str]) -> list[str]:
    program, *arguments = words
    top, found = os.path.realpath(folder), []
    for word in dict.fromkeys([program, *arguments] if "/" in program else arguments):
        if not PurePath(word).is_absolute() and "\0" not in word:
            real = os.path.realpath(folder / word)
            if real.startswith(f"{top}/") and os.path.exists(real):  # noqa: PTH110 - Path.exists() raises for a name that is too long
                found.append(word)
    return found
