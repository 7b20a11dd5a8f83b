"""Arguments of workloads with a trial's {places} filled in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pagecage.agent.data_files import sidecar_of
from pagecage.agent.own_programs import programs_folder
from pagecage.agent.protocol.request import RunRequest
from pagecage.agent.trial_run import TrialRun

CANNOT = 77
"""Exit status of a workload that cannot run on this host (workloads/README.md)."""


def program_path(request: RunRequest, program: str) -> str:
    """Return the path of a workload on this host. One with a slash is a path already."""
    return program if "/" in program else f"{request.programs_dir}/{program}"


def places(
    files: Sequence[Path],
    data_dir: Path,
    max_seconds: float | None,
    folders: Mapping[str, Path],
) -> dict[str, object]:
    """Return the value of each {place}; {file} is the first file.

    `folders` has the folder of each {disk.NAME}.
    """
    first = files[0] if files else None
    sidecar = sidecar_of(first) if first else None
    values = {"file": first, "sidecar": sidecar, "data_dir": data_dir, "max_seconds": max_seconds}
    return {**values, **disk_places(folders)}


def disk_places(folders: Mapping[str, Path]) -> dict[str, object]:
    """Return the value of each {disk.NAME}."""
    return {f"disk.{name}": folder for name, folder in folders.items()}


def own_places(run: TrialRun) -> dict[str, object]:
    """Return the values of the places that only commands have.

    {programs} is the folder of the definition's own programs, {data} the prepared data.
    """
    return {"programs": programs_folder(run.session.request), "data": run.data_directory}


def fill_all(
    arguments: Iterable[str], values: Mapping[str, object], files: Iterable[Path]
) -> list[str]:
    """Return the arguments with placeholders filled in. {files} becomes one argument per file."""
    paths = [str(path) for path in files]
    return [full for a in arguments for full in (paths if a == "{files}" else [fill(a, values)])]


def fill(argument: str, values: Mapping[str, object]) -> str:
    """Return an argument with its places filled in; any other brace is the program's own."""
    for place, value in values.items():
        argument = argument.replace(f"{{{place}}}", str(value))
    return argument
