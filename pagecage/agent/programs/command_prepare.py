"""Before a command runs: is the program there, is its port free, which files does it read, which disk are they on."""

from __future__ import annotations

import shutil
from pathlib import Path

from pagecage.agent.data_files import common_disk, find_files, make_dataset
from pagecage.agent.programs.workload_run import fill_all, places_of
from pagecage.agent.system.block_device import Disk, resolve_disk
from pagecage.agent.system.procfs import listens
from pagecage.agent.trial_run import NotPrepared, RequirementMissed, TrialRun
from pagecage.errors import HostError
from pagecage.model.cage import Cage
from pagecage.model.requirements import MissedRequirement, Requirement
from pagecage.model.trial import CommandSpec, Dataset
from pagecage.units import MIB

_CALIBRATION = Dataset(64 * MIB)
_DRIVABLE_BYTES = 16 * MIB  # a smaller file cannot keep a fast disk busy for the two seconds of a calibration


def prepare_command(attempt: TrialRun) -> None:
    """Find what the command needs. Raises RequirementMissed with what is missing and what brings it."""
    command = attempt.trial.workload.command or CommandSpec()
    _require_program(attempt, command)
    _require_free_port(command)
    if command.data_paths:
        named = command.data_paths
        paths = named if command.is_literal else fill_all(named, places_of(attempt), ())
        found = find_files(tuple(Path(command.directory or "", path) for path in paths))
        if isinstance(found, MissedRequirement):
            raise RequirementMissed([found])
        attempt.datasets += found
    attempt.data_disk = _disk(attempt, command)


def find_program(program: str, directory: str | None) -> str | None:
    """Where a program is that a shell in this directory would run; None where there is none."""
    return shutil.which(Path(directory or "", program) if "/" in program else program)


def _require_program(attempt: TrialRun, command: CommandSpec) -> None:
    program = attempt.trial.workload.program
    if find_program(program, command.directory):
        return
    is_guest = attempt.bench.request.host == "vm"
    hint = "bring it along: --copy-program" if is_guest else "look whether its name is right and PATH has it"
    where = "in the guest" if is_guest else "on this machine"
    raise RequirementMissed([MissedRequirement(Requirement.WORKLOAD, f"there is no program {program!r} {where}", hint)])


def _require_free_port(command: CommandSpec) -> None:
    """Refuse a port that somebody listens on already: it would serve before the program does."""
    port = command.ready_port
    if port is not None and listens(port, ("self",)):
        reason = f"port {port} is in use already, so that nobody could tell when the program serves"
        hint = "end what listens there (ss -ltnp), or take another"
        raise RequirementMissed([MissedRequirement(Requirement.PORT, reason, hint)])


def _disk(attempt: TrialRun, command: CommandSpec) -> Disk | None:
    """The disk behind the command's files, or behind the directory where it runs; None: behind the data directory."""
    places = attempt.datasets or ((Path(command.directory),) if command.directory else ())
    if attempt.made_storage or not places:
        return None
    try:
        disk = common_disk(places, resolve_disk)
    except HostError as error:
        hint = "name the files that it reads: --cold" if not attempt.datasets else "name files on ext4 or XFS"
        raise RequirementMissed([MissedRequirement(Requirement.LOCAL_DISK, error.message, hint)]) from None
    if isinstance(disk, MissedRequirement):
        raise RequirementMissed([disk])
    return disk


def calibration_file(attempt: TrialRun, carried: Cage) -> Path | None:
    """What calibration of what the slice carries reads: a file of ours, or the command's own largest on another disk.

    None where that one is too small, or where its pages are to stay cached (fio drops them as it opens a file).
    """
    if not carried.limits_io:
        return None
    if attempt.disk.maj_min == attempt.bench.disk.maj_min:
        return _file_of_ours(attempt)
    largest = max(attempt.datasets, key=lambda file: file.stat().st_size, default=None)
    is_fit = largest is not None and largest.stat().st_size >= _DRIVABLE_BYTES and attempt.trial.cache != "any"
    return largest if is_fit else None


def _file_of_ours(attempt: TrialRun) -> Path:
    request = attempt.bench.request
    try:
        return make_dataset(_CALIBRATION, Path(request.data_dir), Path(request.programs_dir) / "pcgen")
    except HostError as error:
        raise NotPrepared(error.message) from None
