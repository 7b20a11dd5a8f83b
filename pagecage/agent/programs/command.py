"""Any program of the user's: its arguments, its files, its home directory, and its outcome."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pagecage.agent.caging import Caged, ProgramFiles
from pagecage.agent.data_files import common_disk, sidecar_of
from pagecage.agent.data_files import find_files as find_data_files
from pagecage.agent.drivers.container import mounted_paths
from pagecage.agent.programs.gated_process import GatedProcess, gated
from pagecage.agent.programs.measured_part import (
    MEMBERS_SECONDS,
    MeasuredPart,
    ProgramObservation,
    confirmed,
    describe_status,
    exit_to_json,
    failure_in_cage,
    name_process,
    remaining_members,
)
from pagecage.agent.protocol import RunRequest
from pagecage.agent.storage import Storage
from pagecage.agent.trial_run import Ending, Measured, TrialRun
from pagecage.errors import HostError
from pagecage.linux.block_device import Disk, resolve_disk
from pagecage.linux.page_cache import evict, resident_bytes
from pagecage.linux.procfs import listener, listens
from pagecage.model.cage import IO_MAX_KEY, Cage
from pagecage.model.json_codec import Json
from pagecage.model.requirements import Requirement, RequirementMissed
from pagecage.model.trial import FRESH_HOME, CommandSpec, Dataset, ImageSpec
from pagecage.units import MIB

CANNOT = 77
"""Exit status of a workload that cannot run on this host (workloads/README.md)."""


def program_path(request: RunRequest, program: str) -> str:
    """Return the path of a workload on this host. One with a slash is a path already."""
    return program if "/" in program else f"{request.programs_dir}/{program}"


def places(
    files: Sequence[Path], data_dir: Path, max_seconds: float | None, folders: Mapping[str, Path]
) -> dict[str, object]:
    """Return the value of each {place}; `folders` has those of each {disk.NAME}."""
    first = files[0] if files else None
    sidecar = sidecar_of(first) if first else None
    values = {"file": first, "sidecar": sidecar, "data_dir": data_dir, "max_seconds": max_seconds}
    return {**values, **disk_places(folders)}


def disk_places(folders: Mapping[str, Path]) -> dict[str, object]:
    return {f"disk.{name}": folder for name, folder in folders.items()}


def command_places(request: RunRequest, data_directory: Path | None) -> dict[str, object]:
    """Return the values of the places of commands: {programs}, and {data} if prepared."""
    return {"programs": request.programs_folder, "data": data_directory}


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


HOME = "pagecage-home"
"""Name of the directory in the data directory: on the disk, since caches in memory would cost
the trial's."""
_ELSEWHERE = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
"""Variables that name directories besides HOME (XDG Base Directory Specification)."""
_CALIBRATION = Dataset(64 * MIB)
_DRIVABLE_BYTES = 16 * MIB
"""A smaller file cannot keep a fast disk busy for the two seconds of a calibration."""
_POLL_SECONDS = 0.02
_EMPTY_SECONDS = 0.3


@dataclass
class _CommandObservation(ProgramObservation):
    def is_done(self, command: CommandSpec) -> bool:
        if self.escaped or self.ready_at is not None:
            return True
        return self.exited_at is not None and not (command.serves and self.left_behind)

    def times(self, command: CommandSpec) -> dict[str, float | None]:
        """Return `ready_seconds` or `wall_seconds`; None if it did not get there."""
        end = self.ready_at if command.serves else self.exited_at
        seconds = None if end is None else end - self.began_at
        return {"ready_seconds" if command.serves else "wall_seconds": seconds}


class CommandProgram:
    """A user's own program. It waits at a gate, so that making its cage takes none of its time."""

    inherits_environment = True
    """True if the workload gets all variables of the agent's environment."""
    is_gated = True
    """True if a shell in the cage waits for `go` and then becomes the program."""

    def __init__(self, run: TrialRun) -> None:
        self.run, self.trial = run, run.trial
        self.spec = run.trial.workload.command or CommandSpec()

    def find_files(self, storage: Storage, datasets: tuple[Path, ...]) -> ProgramFiles:
        """Check that the program can run here and find its files. Raises RequirementMissed."""
        spec = self.spec
        if spec.image is not None:
            self._require_free_ports()
            files = find_data_files(_image_paths(spec.image, storage))
            return ProgramFiles(files, self._disk(storage, files))
        self.require_program(self.trial.workload.program, storage)
        self._require_free_ports()
        files = datasets
        if spec.data_paths:
            paths = spec.data_paths
            if not spec.is_literal:
                paths = tuple(fill_all(paths, self._places(datasets, storage), ()))
            files += find_data_files(tuple(Path(spec.directory or "", path) for path in paths))
        return ProgramFiles(files, self._disk(storage, files))

    def require_program(self, program: str, storage: Storage) -> None:
        directory = self.spec.directory or ""
        if not self.spec.is_literal:
            program = fill(program, command_places(self.run.request, storage.data_directory))
        if shutil.which(Path(directory, program) if "/" in program else program):
            return
        is_guest, where = self.run.request.host == "vm", "on this machine"
        hint = "look whether its name is right and PATH has it"
        if is_guest:
            where, hint = "in the guest", "bring it along: --copy-program"
        reason = f"there is no program {program!r} {where}"
        raise RequirementMissed.of(Requirement.WORKLOAD, reason, hint)

    def _require_free_ports(self) -> None:
        """Refuse taken ports: another process would seem to serve, or the container not listen."""
        ready, image = self.spec.ready_port, self.spec.image
        for port in (*(() if ready is None else (ready,)), *(image.ports if image else ())):
            if listens(port, ("self",)):
                why = "so pagecage could not detect when the program serves"
                if port != ready:
                    why = "and the container shares the host's network"
                reason = f"port {port} is already taken by {listener(port)}, {why}"
                hint = "end what listens there (ss -ltnp), or take another"
                raise RequirementMissed.of(Requirement.PORT, reason, hint)

    def _disk(self, storage: Storage, files: tuple[Path, ...]) -> Disk:
        directory = self.spec.directory
        paths = files or ((Path(directory),) if directory else ())
        if storage.data.kind == "volume" and storage.data.is_own:
            for file in files:
                if file.stat().st_dev != storage.data_dir.stat().st_dev:
                    reason = f"{file} is not on the simulated volume"
                    hint = "have it copied there: --copy, or a relative path for --cold"
                    raise RequirementMissed.of(Requirement.LOCAL_DISK, reason, hint)
        if storage.data.is_own or not paths:
            return storage.data.disk
        try:
            return common_disk(paths, resolve_disk)
        except HostError as error:
            fix = "name files on ext4 or XFS" if files else "name the files that it reads: --cold"
            raise RequirementMissed.of(Requirement.LOCAL_DISK, error.message, fix) from None

    def calibration_file(
        self, storage: Storage, files: ProgramFiles, slice_cage: Cage
    ) -> Path | None:
        """Return the file that calibration reads: the command's largest, or one of pagecage's.

        None if the command's files lie on another disk and the largest is too small, or is to stay
        in the page cache, from which fio drops a file that it opens.
        """
        if not slice_cage.properties.keys() & IO_MAX_KEY.keys():
            return None
        largest = max(files.paths, key=lambda file: file.stat().st_size, default=None)
        if largest is not None and largest.stat().st_size < _DRIVABLE_BYTES:
            largest = None
        if storage.data.is_own:
            return largest or self.run.make_dataset(_CALIBRATION, storage.data.directory)
        if files.disk.maj_min == self.run.session.disk.maj_min:
            return self.run.make_dataset(_CALIBRATION, self.run.data_dir)
        return None if self.trial.cache == "any" else largest

    def filled(self, caged: Caged, words: Iterable[str]) -> list[str]:
        """Return a command with its places filled in; literal words have only disks' places."""
        if self.spec.is_literal:
            literal = disk_places(caged.storage.folders)
            return [fill(word, literal) for word in words]
        return fill_all(words, self._places(caged.files, caged.storage), caged.files)

    def _places(self, files: Sequence[Path], storage: Storage) -> dict[str, object]:
        values = places(files, storage.data_dir, self.trial.max_seconds, storage.folders)
        return values | command_places(self.run.request, storage.data_directory)

    def argv(self, caged: Caged) -> list[str]:
        own = self.trial.workload
        return self.filled(caged, (own.program, *own.arguments))

    def measure(self, caged: Caged) -> Measured:
        """Start, measure and end the program. Raises RequirementMissed or NotPrepared."""
        part, argv, spec = MeasuredPart(caged), self.argv(caged), self.spec
        self.run.keep("workload", argv=argv)
        part.before_launch()
        program = self.launch(caged, argv)
        seen: _CommandObservation | None = None
        try:
            if program.wait_at_gate(part.deadline):
                program.follow(caged.driver.main_pid(caged.context, program.process.pid))
                part.at_gate(lambda: program.has_exited, self._evict(caged.files))
                part.begin()
                seen = _CommandObservation(part.began_at)
                program.go(self._input_of(program) if spec.takes_input else None)
                self._watch(caged, program, seen, part.deadline)
                part.end(seen.ready_at or seen.exited_at)
        finally:
            found = self._end(caged, program, seen)
        is_timed_out = seen is not None and not seen.is_done(spec)
        response = seen.times(spec) if seen else {}
        return part.measured(program, found, is_timed_out=is_timed_out, response=response)

    def launch(self, caged: Caged, argv: list[str]) -> GatedProcess:
        """Start the program in its cage, where it waits at its gate."""
        spec = self.spec
        home = self._fresh_home()
        sink = self.run.session.stream.output if spec.streams_output else None
        directory = Path(spec.directory) if spec.directory else None
        words = argv if spec.image else [*home, *gated(argv)]
        command = caged.driver.held_command(caged.context, words)
        program = GatedProcess(command, directory, spec.ready_when, sink)
        caged.driver.admit(caged.context, program.process)
        caged.context.processes.launched(program.process.pid)
        return program

    def _fresh_home(self) -> list[str]:
        """Make an empty home if wanted; return the words that start a program with it."""
        is_fresh = not self.spec.image and FRESH_HOME in self.trial.conditions
        kind = "image" if self.spec.image else "fresh" if is_fresh else "inherited"
        if not is_fresh:
            self.run.keep("workload", home=kind)
            return []
        home = self.run.data_dir / HOME
        shutil.rmtree(home, ignore_errors=True)  # of an agent that was killed
        home.mkdir(mode=0o700)
        self.run.cleanup.callback(shutil.rmtree, home, ignore_errors=True)
        self.run.keep("workload", home=kind)
        return ["env", *(f"--unset={name}" for name in _ELSEWHERE), f"HOME={home}"]

    def _evict(self, files: tuple[Path, ...]) -> int:
        """Evict what the engine read of cold files to make the container; return the bytes."""
        if self.spec.image is None or self.trial.cache != "cold":
            return 0
        found = {path: count for path in files if (count := resident_bytes(path))}
        for path in found:
            evict(path)
        return sum(found.values())

    def _watch(
        self, caged: Caged, program: GatedProcess, seen: _CommandObservation, deadline: float
    ) -> None:
        spec, processes = self.spec, caged.context.processes
        pause_seconds = _POLL_SECONDS if spec.serves else MEMBERS_SECONDS  # an exit wakes it
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

    def _input_of(self, program: GatedProcess) -> Callable[[int], bytes | None]:
        """Return a function that asks the controller for standard input from an offset."""
        session, attempt_id = self.run.session, f"{self.trial.trial_id}.{self.run.attempt}"

        def next_piece(offset: int) -> bytes | None:
            question = f"{attempt_id}@{offset}"
            session.stream.event("input_wanted", question=question, offset=offset)
            return session.inbox.take(question, lambda: program.is_over)

        return next_piece

    def _end(self, caged: Caged, program: GatedProcess, seen: _CommandObservation | None) -> Json:
        """End it, by SIGTERM if it served, else by SIGKILL; return the record's `exit`."""
        is_serving = seen is not None and seen.ready_at is not None
        processes = caged.context.processes
        if seen:
            seen.kill_escaped()
        if not program.exits_within(0) or (seen and seen.left_behind):
            processes.signal("TERM" if is_serving else "KILL")
        status = program.finish()
        by_itself = seen is not None and not is_serving
        found = exit_to_json(program, processes, seen, status, ended_by_itself=by_itself)
        if seen is not None and seen.exited_at is not None and not self.spec.serves:
            found["stdout"] = program.stdout()
        self.run.keep("exit", **found)
        return found

    def judge(self, measured: Measured) -> Ending:
        ending = _judge_command(measured, self.spec, self.trial.timeout_seconds)
        return confirmed(self.trial.workload.program, measured, ending)


def _image_paths(image: ImageSpec, storage: Storage) -> tuple[Path, ...]:
    if storage.data.is_own:
        kind = storage.data.kind
        reason = f"the layers of an image cannot lie on a disk made for the trial ({kind})"
        hint = "use --host vm, or --enforced-by cgroup"
        raise RequirementMissed.of(Requirement.STORAGE, reason, hint)
    mounts = mounted_paths(image)
    if missing := [path for path in mounts if not path.exists()]:
        reason = f"--volume: {missing[0]} does not exist"
        raise RequirementMissed.of(Requirement.DATA, reason, f"ls -d {missing[0]}")
    return (*storage.layers, *mounts)


def _judge_command(measured: Measured, command: CommandSpec, timeout_seconds: float) -> Ending:
    status, last_line, found = measured.exit["status"], measured.last_line, measured.exit
    if failure := failure_in_cage(measured, "container" if command.image else "scope"):
        return failure
    if command.serves and measured.response.get("ready_seconds") is not None:
        return Ending("ok")
    if measured.is_timed_out:
        aim = "serving" if command.serves else "done"
        return Ending("timed_out", f"not {aim} after {timeout_seconds:g} s")
    if status != 0:
        ending = f": {last_line}" if last_line else ""
        return Ending("failed", f"it ended {describe_status(status)}{ending}")
    if command.serves:
        return Ending("failed", "it ended with status 0 before it served")
    if not found["left_behind"]:
        return Ending("ok")
    names = ", ".join(name_process(process) for process in found["left_behind"][:3])
    return Ending(
        "failed",
        f"it ended while {names} lived on in its cage, so its time to exit is not the time of its"
        " work",
    )
