"""`pagecage init`: a project of one's own."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Annotated, Literal

from cyclopts import App, Parameter

from pagecage.checkout import IS_INSTALLED, MARKER, TOP, find_project
from pagecage.cli.output import examples, shown, writing
from pagecage.cloud.catalogue import catalogue_names
from pagecage.cloud.profile import source_comments
from pagecage.definitions.cage_writer import cage_to_toml
from pagecage.definitions.known import remember_definition, remember_project
from pagecage.definitions.project_writer import (
    FILES,
    SLOW_DISK,
    SLOW_DISK_FILE,
    TEMPLATES,
    Build,
    CiSystem,
    ci_files,
    experiment_text,
    folder_of,
    template_experiment,
    template_files,
)
from pagecage.definitions.reader import Definitions, check_name, known_programs
from pagecage.errors import EXIT_OK, PagecageError
from pagecage.planning.cage_choice import (
    cage_name,
    choose_cage,
    named_profile,
    offers,
    profile_cage,
)
from pagecage.planning.options import Port, VolumeOptions, definitions
from pagecage.process import find_tool, run
from pagecage.terminal import notify

_PIPELINE = ".gitlab-ci.yml"
_DEFAULT_COMMAND = ("cat", "{file}")
_DEFAULT_NAME = "mine"


def new_ci_files(
    given: CiSystem | None, name: str, folder: Path, build: Build | None = None
) -> dict[Path, bytes]:
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


app = App(
    name="init",
    help_epilogue=examples("init"),
    usage="pagecage init [OPTIONS] [--template LANGUAGE | -- COMMAND...]",
)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CommandOptions:
    """Options of an experiment around a command.

    Parameters
    ----------
    cage
        Cage, its file, or volume of the catalogue; by default slow-disk, which the project gets
    ready_port
        The command is a server: measure its start, until it listens on this TCP port
    volume
        A volume of the catalogue
    """

    cage: Annotated[str | None, Parameter(metavar="CAGE")] = None
    ready_port: Port | None = None
    volume: VolumeOptions = VolumeOptions()  # noqa: RUF009 - frozen


@app.default
def init(
    *command: Annotated[str, Parameter(allow_leading_hyphen=True)],
    name: Annotated[str | None, Parameter(metavar="NAME")] = None,
    options: CommandOptions = CommandOptions(),
    template: Annotated[
        Literal["command", "rust", "c", "python"],
        Parameter(metavar="LANGUAGE", show_choices=False),
    ] = "command",
    ci: Annotated[CiSystem | None, Parameter(metavar="SYSTEM")] = None,
) -> int:
    """Make a project with an experiment around a command.

    The experiment runs the command in a cage and without limits. Files of this folder that the
    command names are copied to the guest, and are not in the page cache when it starts. In an
    existing project, only the experiment is added.

    Parameters
    ----------
    command
        Program and its arguments; without one, a file that pagecage makes is read
    name
        Name of the experiment; by default the program's, or `mine`
    template
        Language of a workload in workloads/NAME that reports figures of its own: rust, c or python
    ci
        CI system to write files for: github, gitlab or none; by default that of the git remote
    """
    if template == "command":
        return _init_command(command, options, name, ci)
    if options != CommandOptions():
        message = f"--cage and --ready-port apply to a command, not to --template {template}"
        raise PagecageError(message, "remove them")
    return _init_workload(template, command, name, ci)


def _init_command(
    command: tuple[str, ...], options: CommandOptions, name: str | None, ci: CiSystem | None
) -> int:
    words = command or _DEFAULT_COMMAND
    _check_text(words)
    if name is None:
        name = _name_of(command) if command else _DEFAULT_NAME
    folder, chosen = _folder(), check_name(name)
    experiment = folder / f"experiments/{chosen}.toml"
    _check_new(experiment, "--name", f"{chosen}-2", "--", *words)
    level, files = _cage_files(options.cage, options.volume, folder)
    text = experiment_text(words, _files_below(folder, words), level, options.ready_port)
    files |= {experiment: text.encode()} | new_ci_files(ci, chosen, folder)
    _make(folder, chosen, files)
    notify(f"run it: pagecage run {chosen}")
    return EXIT_OK


def _name_of(command: Sequence[str]) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", PurePath(command[0]).stem.lower()).strip("-")
    return slug[:40].strip("-") or "first"


def _cage_files(
    typed: str | None, volume: VolumeOptions, folder: Path
) -> tuple[str, dict[Path, bytes]]:
    """Return the name of the experiment's cage, and its file unless the cage exists."""
    if typed is None:
        if volume != VolumeOptions():
            raise PagecageError("options of a volume need its name", "add --cage aws-gp3")
        return SLOW_DISK, _slow_disk(folder)
    if typed in definitions().cage_names():
        choose_cage(typed, volume, 1 << 40)
        return typed, {}
    profile, description = named_profile(typed, volume)
    name = cage_name(typed)
    name += "-volume" if name in catalogue_names(offers()) else ""  # not the name of both
    cage, path = profile_cage(profile, description, name), folder / f"cgroups/{name}.toml"
    text = cage_to_toml(cage, source_comments(profile))
    return name, {} if path.exists() else {path: text.encode()}


def _slow_disk(folder: Path) -> dict[Path, bytes]:
    files = {folder / name: text.encode() for name, text in SLOW_DISK_FILE.items()}
    return {path: text for path, text in files.items() if not path.exists()}


def _init_workload(
    language: str, command: Sequence[str], name: str | None, ci: CiSystem | None
) -> int:
    if command:
        message = f"--template {language} makes its own program, and {command[0]!r} is another one"
        raise PagecageError(message, f"pagecage init --template {language} --name NAME")
    folder, chosen, template = _folder(), check_name(name or _DEFAULT_NAME), TEMPLATES[language]
    experiment, workload = folder / f"experiments/{chosen}.toml", folder / folder_of(chosen)
    for path in (experiment, workload):
        _check_new(path, "--template", language, "--name", f"{chosen}-2")
    build = Build(template.build, folder_of(chosen), template.packages) if template.build else None
    files = template_files(template, chosen, TOP)
    _make(
        folder,
        chosen,
        _slow_disk(folder)
        | {experiment: template_experiment(template, chosen).encode()}
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
        remember_definition(Definitions(TOP, known_programs(TOP), folder).experiment(name))


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
