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
from pagecage.cli.options import PROGRAMS, shown, writing
from pagecage.cli.output import notify
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
from pagecage.definitions.reader import check_name
from pagecage.errors import EXIT_OK, PagecageError
from pagecage.hosts.host import SizedHost
from pagecage.model.experiment import Experiment, Level
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


def new_ci_files(
    given: CiSystem | None, name: str, folder: Path, build: Build | None = None
) -> dict[Path, str]:
    """Return the contents of the files that are missing, by path.

    `given` is None to choose by the remote of the git repository. `build` is what the experiment
    needs before it runs. What the user has to do is printed.
    """
    top = _git(folder, "rev-parse", "--show-toplevel")
    system = given or _system_of(_git(folder, "remote", "get-url", "origin"))
    repository = Path(top) if top else folder
    inside = folder.resolve().relative_to(repository.resolve()).as_posix()
    texts = ci_files(system, name, inside, TOP, build)
    files = {repository / path: text for path, text in texts.items()}
    _advise(system, given)
    if repository / _PIPELINE in files and (repository / _PIPELINE).exists():
        notify(f"add to the includes of {_PIPELINE}: local: /.gitlab/pagecage-{name}.yml")
    return {path: text for path, text in files.items() if not path.exists()}


def _system_of(remote: str) -> CiSystem:
    """Return the CI system of the server in a git remote, such as git@gitlab.example:a/b.git."""
    address = remote.rpartition("://")[2].rpartition("@")[2]
    server = address.partition("/")[0].partition(":")[0]
    if "github" in server:
        return "github"
    return "gitlab" if "gitlab" in server else "none"


def _git(folder: Path, *words: str) -> str:
    """Return the output of a git command; empty if it fails or there is no git."""
    git = find_tool("git")
    return run([git, "-C", folder, *words], check=False).stdout.strip() if git else ""


def _advise(system: CiSystem, given: CiSystem | None) -> None:
    if system != "none":
        notify("CI installs the wheel that its variable PAGECAGE_WHEEL names; see docs/GATES.md")
    elif given is None:
        notify("no CI file: the git remote is not GitHub's or GitLab's; choose with --ci")


_Placed = Callable[[Workload], Workload]


def place_files(
    experiment: Experiment, host: SizedHost
) -> tuple[Experiment, dict[str, Any] | None]:
    """Return the experiment for a host, and the copies that its plan records; None without any.

    Commands run in the project's folder, or in the folder of the copies. Raises PagecageError for
    a file that does not exist or is outside the project, for a workload that is not built, and for
    a group of hosts.
    """
    if experiment.project is None:
        return experiment, None
    _check_programs(experiment, experiment.project)
    if host.name != "vm" or not experiment.copies:
        _refuse_group(experiment, host)
        here = str(experiment.project) if host.name == "local" else None
        placed = _mapped(experiment, lambda own: _in_folder(own, here, experiment.copies))
        return _collecting_in(placed, (), here), None
    uploads = _uploads(experiment.project, experiment.copies, experiment.name)
    directory = f"{getattr(host, 'data_dir', '')}/{FOLDER}"
    placed = _mapped(experiment, lambda own: _copied(own, uploads, directory, experiment.project))
    placed = _collecting_in(placed, uploads, directory)
    return placed, {"carried": uploads_to_json(uploads), "directory": directory}


def _check_programs(experiment: Experiment, project: Path) -> None:
    """Raise PagecageError for a workload of the project that is not an executable file."""
    tables = (level for levels in experiment.levels.values() for level in levels.values())
    base = Workload(experiment.program, (), experiment.workload_kind)
    for own in (base, *(level.workload for level in tables if level.workload)):
        path = project / own.program
        if _speaks_handshake(own) and not (path.is_file() and os.access(path, os.X_OK)):
            raise PagecageError(
                f"{experiment.name}.toml: workload.program: {path} is not an executable file",
                f"build it in {path.parent}; a script needs chmod +x",
            )


def _refuse_group(experiment: Experiment, host: SizedHost) -> None:
    if experiment.copies and host.name != "local":
        raise PagecageError(
            f"{experiment.name} copies files of its project, which works with --host vm alone",
            "run it with --host vm or local",
        )


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


def _mapped(experiment: Experiment, placed: _Placed) -> Experiment:
    """Return the experiment with the change applied to each of the project's own programs."""
    base = Workload(
        experiment.program, experiment.arguments, experiment.workload_kind, 0, experiment.command
    )
    own = placed(base) if _is_own(base) else base
    levels: Mapping[str, Mapping[str, Level]] = {
        factor: {name: _mapped_level(level, placed) for name, level in table.items()}
        for factor, table in experiment.levels.items()
    }
    return replace(
        experiment,
        program=own.program,
        arguments=own.arguments,
        command=own.command,
        levels=levels,
    )


def _mapped_level(level: Level, placed: _Placed) -> Level:
    own = level.workload
    return replace(level, workload=placed(own)) if own is not None and _is_own(own) else level


def _is_own(workload: Workload) -> bool:
    return workload.command is not None or _speaks_handshake(workload)


def _speaks_handshake(workload: Workload) -> bool:
    return workload.kind == "handshake" and not workload.is_built_in


def _collecting_in(
    experiment: Experiment, uploads: tuple[UploadedFile, ...], directory: str | None
) -> Experiment:
    """Return the experiment with its collectors run in this directory, as its commands are."""
    collectors = tuple(
        replace(
            one,
            directory=directory,
            command=translate_command(one.command, uploads, directory or ""),
        )
        for one in experiment.own_collectors
    )
    return replace(experiment, own_collectors=collectors)


def _in_folder(own: Workload, directory: str | None, copies: tuple[str, ...] = ()) -> Workload:
    """Return a workload with the files of the project's folder; None on another host."""
    if _speaks_handshake(own):
        if directory is None:
            raise PagecageError(
                f"{own.program} is a file of the project, and is not copied to the host",
                f"name it in `copies`, and run it with --host vm: copies = [{own.program!r}]",
            )
        words = (f"{directory}/{word}" if word in copies else word for word in own.arguments)
        program = os.path.normpath(Path(directory, own.program))
        return replace(own, program=program, arguments=tuple(words))
    command = own.command or CommandSpec()
    return replace(own, command=replace(command, directory=command.directory or directory))


def _copied(
    own: Workload, uploads: tuple[UploadedFile, ...], directory: str, project: Path | None
) -> Workload:
    """Return a command whose words and files that are copied have the paths of the copies."""
    program, *arguments = translate_command((own.program, *own.arguments), uploads, directory)
    if _speaks_handshake(own):
        return _copied_workload(own, uploads, directory, project, tuple(arguments))
    command = own.command or CommandSpec()
    paths = tuple(
        path_on_host(str((project or Path()) / path), uploads, directory) or path
        for path in command.data_paths
    )
    return replace(
        own,
        program=program,
        arguments=tuple(arguments),
        command=replace(command, data_paths=paths, directory=directory),
    )


def _copied_workload(
    own: Workload,
    uploads: tuple[UploadedFile, ...],
    directory: str,
    project: Path | None,
    arguments: tuple[str, ...],
) -> Workload:
    """Return a workload whose program is the copy of the project's."""
    program = path_on_host(str((project or Path()) / own.program), uploads, directory)
    return (
        _in_folder(own, None)
        if program is None
        else replace(own, program=program, arguments=arguments)
    )


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
