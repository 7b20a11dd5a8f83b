"""Preparation of a command: its program, a free port, its files, and their disk."""

from __future__ import annotations

import shutil
from pathlib import Path

from pagecage.agent.caged import ProgramFiles
from pagecage.agent.data_files import common_disk, make_dataset
from pagecage.agent.data_files import find_files as find_data_files
from pagecage.agent.programs.arguments import fill, fill_all, own_places, places
from pagecage.agent.programs.image_files import image_paths
from pagecage.agent.storage import Storage
from pagecage.agent.system.block_device import Disk, resolve_disk
from pagecage.agent.system.listeners import listener
from pagecage.agent.system.procfs import listens
from pagecage.agent.trial_run import NotPrepared, RequirementMissed, TrialRun
from pagecage.errors import HostError
from pagecage.model.cage import IO_MAX_KEY, Cage
from pagecage.model.requirements import MissedRequirement, Requirement
from pagecage.model.trial import CommandSpec, Dataset
from pagecage.units import MIB

_CALIBRATION = Dataset(64 * MIB)
_DRIVABLE_BYTES = (
    16 * MIB
)  # a smaller file cannot keep a fast disk busy for the two seconds of a calibration


def find_files(
    run: TrialRun, command: CommandSpec, storage: Storage, datasets: tuple[Path, ...]
) -> ProgramFiles:
    """Return the command's files with their disk.

    Raises RequirementMissed for what is missing, with its fix.
    """
    if command.image is not None:
        _require_free_ports(command)
        found = _found(image_paths(run, command.image, storage))
        return ProgramFiles(found, _disk(command, storage, found))
    require_program(run, run.trial.workload.program, command)
    _require_free_ports(command)
    files = datasets
    if command.data_paths:
        values = places(datasets, storage.data_dir, run.trial.max_seconds, storage.folders)
        values |= own_places(run)
        paths = (
            command.data_paths if command.is_literal else fill_all(command.data_paths, values, ())
        )
        files += _found(tuple(Path(command.directory or "", path) for path in paths))
    return ProgramFiles(files, _disk(command, storage, files))


def _found(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    found = find_data_files(paths)
    if isinstance(found, MissedRequirement):
        raise RequirementMissed([found])
    return found


def find_program(program: str, directory: str | None) -> str | None:
    """Return the path of the program that a shell in this directory would run, or None."""
    return shutil.which(Path(directory or "", program) if "/" in program else program)


def require_program(run: TrialRun, program: str, command: CommandSpec) -> None:
    """Raise RequirementMissed if a shell in the command's directory would not find the program."""
    if not command.is_literal:
        program = fill(program, own_places(run))
    if find_program(program, command.directory):
        return
    is_guest = run.session.request.host == "vm"
    hint = (
        "bring it along: --copy-program"
        if is_guest
        else "look whether its name is right and PATH has it"
    )
    where = "in the guest" if is_guest else "on this machine"
    raise RequirementMissed.of(
        Requirement.WORKLOAD, f"there is no program {program!r} {where}", hint
    )


def _require_free_ports(command: CommandSpec) -> None:
    """Refuse ports that other processes listen on.

    Such a process would seem to serve before the program does, or the container could not listen.
    """
    ready = command.ready_port
    published = command.image.ports if command.image else ()
    for port in (*(() if ready is None else (ready,)), *published):
        if listens(port, ("self",)):
            why = "so pagecage could not detect when the program serves"
            if port != ready:
                why = "and the container shares the host's network"
            raise RequirementMissed.of(
                Requirement.PORT,
                f"port {port} is already taken by {listener(port)}, {why}",
                "end what listens there (ss -ltnp), or take another",
            )


def _disk(command: CommandSpec, storage: Storage, files: tuple[Path, ...]) -> Disk:
    """Return the disk of the files, else of the command's directory, else of the storage."""
    paths = files or ((Path(command.directory),) if command.directory else ())
    if storage.kind == "volume" and storage.is_own:
        _require_on_volume(files, storage)
    if storage.is_own or not paths:
        return storage.disk
    try:
        disk = common_disk(paths, resolve_disk)
    except HostError as error:
        hint = "name the files that it reads: --cold" if not files else "name files on ext4 or XFS"
        raise RequirementMissed.of(Requirement.LOCAL_DISK, error.message, hint) from None
    if isinstance(disk, MissedRequirement):
        raise RequirementMissed([disk])
    return disk


def _require_on_volume(files: tuple[Path, ...], storage: Storage) -> None:
    """Raise RequirementMissed for a file that the volume does not hold and does not limit."""
    for file in files:
        if file.stat().st_dev != storage.data_dir.stat().st_dev:
            raise RequirementMissed.of(
                Requirement.LOCAL_DISK,
                f"{file} is not on the simulated volume",
                "have it copied there: --copy, or a relative path for --cold",
            )


def calibration_file(
    run: TrialRun, storage: Storage, files: ProgramFiles, slice_cage: Cage
) -> Path | None:
    """Return the file that calibration reads: one of pagecage's, or the command's largest.

    None if the command's files lie on another disk and the largest is too small, or is to stay in
    the page cache, from which fio drops a file that it opens.
    """
    if storage.is_own:
        return files.paths[0] if files.paths else None
    if not slice_cage.properties.keys() & IO_MAX_KEY.keys():
        return None
    if files.disk.maj_min == run.session.disk.maj_min:
        return _own_file(run)
    largest = max(files.paths, key=lambda file: file.stat().st_size, default=None)
    is_fit = (
        largest is not None
        and largest.stat().st_size >= _DRIVABLE_BYTES
        and run.trial.cache != "any"
    )
    return largest if is_fit else None


def _own_file(run: TrialRun) -> Path:
    request = run.session.request
    try:
        return make_dataset(
            _CALIBRATION, Path(request.data_dir), Path(request.programs_dir) / "pcgen"
        )
    except HostError as error:
        raise NotPrepared(error.message) from None
