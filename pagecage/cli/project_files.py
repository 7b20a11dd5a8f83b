"""Files of the user's project that the programs of its experiments use.

On this machine they are used in place. The guest gets copies, as of a replay's files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pagecage.errors import PagecageError
from pagecage.hosts.host import SizedHost
from pagecage.model.experiment import Experiment, Level
from pagecage.model.trial import CommandSpec, Workload
from pagecage.runner.uploads import (
    FOLDER,
    UploadedFile,
    find_uploads,
    path_on_host,
    translate_command,
    uploads_to_json,
)

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
