"""The services that all trials of one session share."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pagecage.agent.collectors.blocklat import BlockLatencyTracer
from pagecage.agent.collectors.bpftrace import FaultTracer
from pagecage.agent.collectors.tracer import BpftraceProcess
from pagecage.agent.drivers.engine import ContainerEngines
from pagecage.agent.facts import Tracefs, find_systemd
from pagecage.agent.limits.calibration import Calibrator, VolumeCalibrator, remove_scratch
from pagecage.agent.mounted_volume import unmount_volume
from pagecage.agent.protocol import AnswerQueue, FrameStream, RunRequest
from pagecage.agent.settings import DirtyLimits, MemoryReservation, QueueSettingsJournal
from pagecage.errors import HostError
from pagecage.linux.block_device import Disk, detach_loop_disk, resolve_disk
from pagecage.linux.cgroupfs import Cgroupfs
from pagecage.linux.child_processes import Interruption, ToolProcesses
from pagecage.linux.processes import kill_marked
from pagecage.linux.systemd import Systemd
from pagecage.linux.trial_processes import CgroupMaker
from pagecage.model.json_codec import Json
from pagecage.model.requirements import cgroup_maker
from pagecage.model.trial import CGROUPFS, TRACERS


@dataclass(frozen=True)
class Tracers:
    """Both tracers. A machine state can be saved with them attached, which takes seconds."""

    children: ToolProcesses
    all: tuple[FaultTracer, BlockLatencyTracer]

    @classmethod
    def of(cls, spool: Path) -> Tracers:
        children = ToolProcesses(spool)
        return cls(children, (FaultTracer(spool, children), BlockLatencyTracer(spool, children)))

    def missing(self, wanted: Collection[str]) -> list[BpftraceProcess]:
        return [tracer for tracer in self.all if tracer.name in wanted and not tracer.has_begun]

    def keep_only(self, wanted: Collection[str]) -> None:
        """Detach all other tracers, because an attached tracer slows the measured program down."""
        for tracer in self.all:
            if tracer.name not in wanted:
                tracer.stop()

    def stop(self) -> None:
        self.keep_only(())


@dataclass(frozen=True)
class HostSession:
    """Services of one host, shared by the trials of one machine state.

    `restored` are the directories whose restoration was announced, `checked_scripts` bpftrace's
    errors about the definition's scripts by path, None for a good one.
    """

    request: RunRequest
    facts: Json
    disk: Disk
    systemd: Systemd
    cgroupfs: Cgroupfs
    calibrators: Mapping[str, Calibrator]
    tracer: FaultTracer
    block_tracer: BlockLatencyTracer
    settings: QueueSettingsJournal
    memory: MemoryReservation
    dirty_limits: DirtyLimits
    children: ToolProcesses
    engines: ContainerEngines
    interruption: Interruption
    stream: FrameStream
    inbox: AnswerQueue = field(default_factory=AnswerQueue)
    volume_calibrator: VolumeCalibrator = field(default_factory=VolumeCalibrator)
    restored: set[Path] = field(default_factory=set)
    checked_scripts: dict[str, str | None] = field(default_factory=dict)

    def maker(self, driver: str) -> CgroupMaker:
        return self.cgroupfs if cgroup_maker(self.facts, driver) == CGROUPFS else self.systemd

    def calibrator(self, driver: str) -> Calibrator:
        return self.calibrators[cgroup_maker(self.facts, driver)]


MACHINE = Path("/dev/shm")
"""A folder of root that every user may lock (flock(2)); nothing is made in it."""


@contextmanager
def alone(spool: Path) -> Iterator[None]:
    """Lock this host for one agent, of any user, until it dies. Raises HostError if locked."""
    spool.mkdir(parents=True, exist_ok=True)
    with (spool / "lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            reason = f"another run is using this host (process {file.read().strip()})"
            raise HostError(reason, "wait for it") from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        # Of all users. Any process may hold this lock. It then delays runs, and gets nothing by it.
        place = MACHINE if MACHINE.is_dir() else Path("/")
        descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                user = user_of_machine() or "a process of a container"
                reason = f"another run is using this machine ({user})"
                raise HostError(reason, "wait for it") from None
            yield
        finally:
            os.close(descriptor)


def user_of_machine() -> str | None:
    """Return who has locked the machine by its folder, as "process PID"; None if no process has."""
    try:
        found = MACHINE.stat()
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    pids = [words[4] for words in map(str.split, lines) if "FLOCK" in words and place in words]
    return f"process {pids[0]}" if pids else None


def sweep(systemd: Systemd, spool: Path, children: ToolProcesses | None = None) -> list[str]:
    """Undo what a killed agent left: cgroups, processes, drop-ins, settings, memory, disks, traces.

    Records of earlier runs are removed from memory. Return what was undone. Processes that
    `children` started are kept.
    """
    units = [*systemd.sweep(), *Cgroupfs(spool).sweep()]
    (children or ToolProcesses(spool)).sweep()
    if kill_marked(f"{spool}:"):
        units.append("processes of a trial without a slice")
    for journal in (QueueSettingsJournal(spool), MemoryReservation(spool), DirtyLimits(spool)):
        units += journal.restore()
    units += Tracefs(spool).restore()
    units += unmount_volume(spool) + detach_loop_disk(spool)
    shutil.rmtree(spool / "trials", ignore_errors=True)
    for records in spool.glob("*.jsonl"):
        records.unlink(missing_ok=True)
    return units


@contextmanager
def open_session(
    request: RunRequest,
    facts: Json,
    stream: FrameStream,
    interruption: Interruption,
    inbox: AnswerQueue,
    tracers: Tracers,
) -> Iterator[HostSession]:
    """Open a session on the data directory's disk with the tracers of its trials, then close it."""
    data_dir, spool = Path(request.data_dir), request.spool
    data_dir.mkdir(parents=True, exist_ok=True)
    disk, systemd, cgroupfs = resolve_disk(data_dir), find_systemd(request.user), Cgroupfs(spool)
    makers: dict[str, CgroupMaker] = {"systemd": systemd, "cgroupfs": cgroupfs}
    engines = ContainerEngines(systemd, spool, data_dir, cgroup_maker(facts))
    try:
        _attach(tracers, request, stream)
        yield HostSession(
            request,
            facts,
            disk,
            systemd,
            cgroupfs,
            {name: Calibrator(one, disk, data_dir, interruption) for name, one in makers.items()},
            *tracers.all,
            QueueSettingsJournal(spool),
            MemoryReservation(spool),
            DirtyLimits(spool),
            tracers.children,
            engines,
            interruption,
            stream,
            inbox,
        )
    finally:
        with interruption.held():
            tracers.stop()
            Tracefs(spool).restore()
            engines.stop()
            cgroupfs.close()
            remove_scratch(data_dir)


def _attach(tracers: Tracers, request: RunRequest, stream: FrameStream) -> None:
    wanted = {name for trial in request.trials for name in trial.collectors}
    custom = (collector for trial in request.trials for collector in trial.own_collectors)
    if not wanted.isdisjoint(TRACERS) or any(collector.is_script for collector in custom):
        Tracefs(request.spool).mount()
    tracers.keep_only(wanted)
    for tracer in tracers.missing(wanted):
        stream.event("step", text="attaching bpftrace")
        tracer.begin()
