"""Files and programs of a user's project, where a host has them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from pagecage.definitions.experiment import Experiment
from pagecage.errors import PagecageError
from pagecage.hosts.host import SizedHost
from pagecage.model.json_codec import Json
from pagecage.model.trial import CommandSpec, Workload
from pagecage.runner.uploads import (
    FOLDER,
    UploadedFile,
    find_uploads,
    path_on_host,
    translate_command,
    uploads_to_json,
)


def place_files(experiment: Experiment, host: SizedHost) -> tuple[Experiment, Json | None]:
    """Return the experiment for a host, and the copies that its plan records; None without any."""
    project, copies = experiment.project, experiment.copies
    if project is None:
        return experiment, None
    tables = (level for levels in experiment.levels.values() for level in levels.values())
    for one in (experiment.workload, *(level.workload for level in tables if level.workload)):
        path = project / one.program
        if _speaks_handshake(one) and not (path.is_file() and os.access(path, os.X_OK)):
            reason = f"{experiment.name}.toml: workload.program: {path} is not an executable file"
            raise PagecageError(reason, f"build it in {path.parent}; a script needs chmod +x")
    if host.name == "vm" and copies:
        uploads = _uploads(project, copies, experiment.name)
        directory = f"{getattr(host, 'data_dir', '')}/{FOLDER}"
        place = partial(_copied, uploads=uploads, directory=directory, project=project)
        placed = _placed(experiment, uploads, directory, place)
        return placed, {"carried": uploads_to_json(uploads), "directory": directory}
    if copies and host.name != "local":
        reason = f"{experiment.name} copies files of its project, which works with --host vm alone"
        raise PagecageError(reason, "run it with --host vm or local")
    here = str(project) if host.name == "local" else None
    place = partial(_in_folder, directory=here, copies=copies)
    return _placed(experiment, (), here, place), None


def _speaks_handshake(workload: Workload) -> bool:
    return workload.kind == "handshake" and not workload.is_built_in


def _uploads(project: Path, copies: tuple[str, ...], name: str) -> tuple[UploadedFile, ...]:
    for path in copies:
        if not (project / path).resolve().is_relative_to(project.resolve()):
            reason = f"{name}.toml: copies: {path!r} is outside the project {project}"
            raise PagecageError(reason, "name a file or folder below it")
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

    def placed(one: Workload) -> Workload:
        return place(one) if one.command is not None or _speaks_handshake(one) else one

    levels = {
        factor: {
            name: level.model_copy(update={"workload": level.workload and placed(level.workload)})
            for name, level in table.items()
        }
        for factor, table in experiment.levels.items()
    }
    collectors = []
    for one in experiment.own_collectors:
        command = translate_command(one.command, uploads, directory or "")
        collectors.append(replace(one, directory=directory, command=command))
    return replace(
        experiment,
        workload=placed(experiment.workload),
        levels=levels,
        own_collectors=tuple(collectors),
    )


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
