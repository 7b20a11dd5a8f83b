"""Any program of the user's: its arguments, its files, its home directory, and its outcome."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagecage.agent.caging import Caged, ProgramFiles
from pagecage.agent.data_files import common_disk, make_dataset, sidecar_of
from pagecage.agent.data_files import find_files as find_data_files
from pagecage.agent.drivers.container import mounted_paths
from pagecage.agent.installed import programs_folder
from pagecage.agent.programs.gated_process import GatedProcess, gated
from pagecage.agent.programs.measured_part import (
    MEMBERS_SECONDS,
    MeasuredPart,
    ProgramObservation,
    confirmed,
    describe_escaped,
    describe_status,
    exit_to_json,
    name_process,
    remaining_members,
)
from pagecage.agent.protocol import RunRequest
from pagecage.agent.storage import Storage
from pagecage.agent.trial_run import Ending, Measured, NotPrepared, RequirementMissed, TrialRun
from pagecage.errors import HostError
from pagecage.linux.block_device import Disk, resolve_disk
from pagecage.linux.page_cache import evict, resident_bytes
from pagecage.linux.procfs import listener, listens
from pagecage.model.cage import IO_MAX_KEY, Cage
from pagecage.model.requirements import MissedRequirement, Requirement
from pagecage.model.trial import FRESH_HOME, CommandSpec, Dataset, ImageSpec
from pagecage.units import MIB


def image_paths(run: TrialRun, image: ImageSpec, storage: Storage) -> tuple[Path, ...]:
    """Return the directories of the layers, and the paths that are mounted into the container.

    Raises RequirementMissed for a disk that was made for the trial, which cannot hold layers, and
    for a mount whose path does not exist.
    """
    if storage.is_own:
        raise RequirementMissed.of(
            Requirement.STORAGE,
            f"the layers of an image cannot lie on a disk made for the trial ({storage.kind})",
            "use --host vm, or --enforced-by cgroup",
        )
    mounts = mounted_paths(image)
    if missing := [path for path in mounts if not path.exists()]:
        raise RequirementMissed.of(
            Requirement.DATA, f"--volume: {missing[0]} does not exist", f"ls -d {missing[0]}"
        )
    layers = run.sections["cage"]["driver"]["image"]["layers"]
    return (*map(Path, layers), *mounts)


def evict_at_gate(run: TrialRun, caged: Caged, image: ImageSpec | None) -> int:
    """Evict what the engine itself has read of cold files, and return these bytes.

    An engine looks the user up in the image's /etc/passwd, and copies the image's files to a new
    volume, while it makes the container.
    """
    if image is None or run.trial.cache != "cold":
        return 0
    found = {path: count for path in caged.files if (count := resident_bytes(path))}
    for path in found:
        evict(path)
    return sum(found.values())


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


HOME = "pagecage-home"
"""Name of the directory in the data directory: on the disk, since caches in memory would cost
the trial's."""
_ELSEWHERE = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
"""Variables that name directories besides HOME (XDG Base Directory Specification)."""


def fresh_home(run: TrialRun, spec: CommandSpec) -> list[str]:
    """Make an empty home if the trial wants one; return the words that start a program with it.

    A container has the home of its image, which is fresh in each. The record says which it was.
    """
    if spec.image:
        run.keep("workload", home="image")
        return []
    if FRESH_HOME not in run.trial.conditions:
        run.keep("workload", home="inherited")
        return []
    home = Path(run.session.request.data_dir) / HOME
    shutil.rmtree(home, ignore_errors=True)  # of an agent that was killed
    home.mkdir(mode=0o700)
    run.cleanup.callback(shutil.rmtree, home, ignore_errors=True)
    run.keep("workload", home="fresh")
    return ["env", *(f"--unset={name}" for name in _ELSEWHERE), f"HOME={home}"]


_POLL_SECONDS = 0.02
_EMPTY_SECONDS = 0.3


@dataclass
class CommandObservation(ProgramObservation):
    """Observation of a command, which is measured until it serves or exits."""

    def is_done(self, command: CommandSpec) -> bool:
        """True if there is nothing to wait for."""
        if self.escaped or self.ready_at is not None:
            return True
        return self.exited_at is not None and not (command.serves and self.left_behind)

    def times(self, command: CommandSpec) -> dict[str, float | None]:
        """Return `ready_seconds` for a program that serves, else `wall_seconds`.

        Returns None if it did not get there.
        """
        end = self.ready_at if command.serves else self.exited_at
        return {
            "ready_seconds" if command.serves else "wall_seconds": (
                None if end is None else end - self.began_at
            )
        }


class CommandProgram:
    """A user's own program.

    It waits at a gate in its cage, so that making the cage is not part of its time.
    """

    inherits_environment = True
    is_gated = True

    def find_files(
        self, run: TrialRun, storage: Storage, datasets: tuple[Path, ...]
    ) -> ProgramFiles:
        """Check the program, its port and its files. Raises RequirementMissed."""
        return find_files(run, command_spec(run), storage, datasets)

    def calibration_file(
        self, run: TrialRun, storage: Storage, files: ProgramFiles, slice_cage: Cage
    ) -> Path | None:
        """Return a file of pagecage's, or the command's largest on another disk.

        Returns None if that is not fit.
        """
        return calibration_file(run, storage, files, slice_cage)

    def argv(self, run: TrialRun, caged: Caged) -> list[str]:
        """Return the command as it was given, or with its places filled in."""
        own = run.trial.workload
        return self.filled(run, caged, (own.program, *own.arguments))

    def filled(self, run: TrialRun, caged: Caged, words: Iterable[str]) -> list[str]:
        """Return the words of a command with their places filled in.

        In words that were given literally, only disks have places.
        """
        if command_spec(run).is_literal:
            literal = disk_places(caged.folders)
            return [fill(word, literal) for word in words]
        values = places(caged.files, caged.data_dir, run.trial.max_seconds, caged.folders)
        return fill_all(words, values | own_places(run), caged.files)

    def measure(self, run: TrialRun, caged: Caged) -> Measured:
        """Start the program, open its gate, and watch it until it exits or serves."""
        part, argv, spec = MeasuredPart(run, caged), self.argv(run, caged), command_spec(run)
        run.keep("workload", argv=argv)
        part.before_launch()
        program = launch(run, caged, spec, argv)
        seen: CommandObservation | None = None
        try:
            if program.wait_at_gate(part.deadline):
                program.follow(caged.driver.main_pid(caged.context, program.process.pid))
                evicted = evict_at_gate(run, caged, spec.image)
                part.at_gate(lambda: program.process.poll() is not None, evicted)
                seen = _watch_measured(run, caged, program, part, spec)
        finally:
            _end(run, caged, program, seen)
        return Measured(
            interval=run.interval,
            counters=run.sections["counters"],
            end={},
            exit=run.sections["exit"],
            last_line=program.last_line(),
            start_seconds=part.start_seconds,
            is_timed_out=seen is not None and not seen.is_done(spec),
            response=seen.times(spec) if seen else {},
        )

    def judge(self, run: TrialRun, measured: Measured) -> Ending:
        """Return the outcome from the evidence, strongest first."""
        return confirmed(
            run, measured, judge_command(measured, command_spec(run), run.trial.timeout_seconds)
        )


def command_spec(run: TrialRun) -> CommandSpec:
    """Return the settings of the trial's command, or of the server of its service."""
    return run.trial.workload.command or CommandSpec()


def launch(run: TrialRun, caged: Caged, spec: CommandSpec, argv: list[str]) -> GatedProcess:
    """Start the program in its cage, where it waits at its gate."""
    home = fresh_home(run, spec)
    sink = run.session.stream.output if spec.streams_output else None
    directory = Path(spec.directory) if spec.directory else None
    command = caged.driver.held_command(
        caged.context, argv if spec.image else [*home, *gated(argv)]
    )
    program = GatedProcess(command, directory, spec.ready_when, sink)
    caged.driver.admit(caged.context, program.process)
    caged.context.processes.launched(program.process.pid)
    return program


def _watch_measured(
    run: TrialRun, caged: Caged, program: GatedProcess, part: MeasuredPart, spec: CommandSpec
) -> CommandObservation:
    part.begin()
    seen = CommandObservation(part.began_at)
    program.go(_input_of(run, program) if spec.takes_input else None)
    _watch(caged, program, spec, seen, part.deadline)
    part.end(seen.ready_at or seen.exited_at)
    return seen


def _watch(
    caged: Caged,
    program: GatedProcess,
    spec: CommandSpec,
    seen: CommandObservation,
    deadline: float,
) -> None:
    """Poll until the program serves, exits or leaves the cage, or until `deadline`."""
    pause_seconds = _POLL_SECONDS if spec.serves else MEMBERS_SECONDS  # an exit wakes it at once
    processes = caged.context.processes
    while not seen.escaped and time.monotonic() < deadline:
        if seen.exited_at is None and program.exits_within(pause_seconds):
            seen.exited_at = time.monotonic()
        if spec.serves and seen.note_serving(processes, program, spec.ready_port):
            return
        if seen.exited_at is None:
            seen.note_escaped(processes, program)
            continue
        seen.left_behind = remaining_members(processes, 0 if spec.serves else _EMPTY_SECONDS)
        if not (spec.serves and seen.left_behind):
            program.drain_output()
            seen.note_serving(processes, program, spec.ready_port)
            return
        time.sleep(_POLL_SECONDS)


def _input_of(run: TrialRun, program: GatedProcess) -> Callable[[int], bytes | None]:
    """Return a function that asks the controller for standard input from an offset."""
    session, attempt_id = run.session, f"{run.trial.trial_id}.{run.attempt}"

    def next_piece(offset: int) -> bytes | None:
        question = f"{attempt_id}@{offset}"
        session.stream.event("input_wanted", question=question, offset=offset)
        return session.inbox.take(question, lambda: program.is_over)

    return next_piece


def _end(
    run: TrialRun, caged: Caged, program: GatedProcess, seen: CommandObservation | None
) -> None:
    """End remaining processes, by SIGTERM if it served, else by SIGKILL.

    Keep the record's `exit`.
    """
    is_serving = seen is not None and seen.ready_at is not None
    if seen:
        seen.kill_escaped()
    if not program.exits_within(0) or (seen and seen.left_behind):
        caged.context.processes.signal("TERM" if is_serving else "KILL")
    status = program.finish()
    by_itself, processes = seen is not None and not is_serving, caged.context.processes
    run.keep("exit", **exit_to_json(program, processes, seen, status, ended_by_itself=by_itself))
    if seen is not None and seen.exited_at is not None and not command_spec(run).serves:
        run.keep("exit", stdout=program.stdout())


def judge_command(measured: Measured, command: CommandSpec, timeout_seconds: float) -> Ending:
    """Return the outcome from the evidence, strongest first."""
    status, last_line, found = measured.exit["status"], measured.last_line, measured.exit
    if found["oom_kill"]:
        return Ending("oom_killed")
    if not measured.response:
        what = "container" if command.image else "scope"
        return Ending("failed", f"its {what} was not started: {last_line or f'status {status}'}")
    if found["escaped"]:
        return Ending("failed", describe_escaped(found["escaped"][0]))
    if command.serves and measured.response.get("ready_seconds") is not None:
        return Ending("ok")
    if measured.is_timed_out:
        return Ending(
            "timed_out",
            f"not {'serving' if command.serves else 'done'} after {timeout_seconds:g} s",
        )
    if status != 0:
        return Ending(
            "failed", f"it ended {describe_status(status)}{': ' + last_line if last_line else ''}"
        )
    if command.serves:
        return Ending("failed", "it ended with status 0 before it served")
    left = found["left_behind"]
    return Ending("failed", _describe_left_behind(left)) if left else Ending("ok")


def _describe_left_behind(left: list[dict[str, Any]]) -> str:
    names = ", ".join(name_process(process) for process in left[:3])
    return (
        f"it ended while {names} lived on in its cage, so its time to exit is not the time of its"
        " work"
    )
