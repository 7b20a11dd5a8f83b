"""The measured part of a trial: what is checked and read at its first and its last moment."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pagecage.agent.caging import (
    Caged,
    confirm_limits,
    enforce_by_volume,
    keep_limits_after,
    require_unchanged_limits,
)
from pagecage.agent.disks import enforce_by_volumes, keep_accounts
from pagecage.agent.facts import describe_disk
from pagecage.agent.limits.simulated_volume import sound_account
from pagecage.agent.programs.gated_process import GatedProcess
from pagecage.agent.programs.program import read_all_counters
from pagecage.agent.trial_run import Ending, Measured, NotPrepared, RequirementMissed, TrialRun
from pagecage.linux import procfs
from pagecage.linux.block_device import on_disk_bytes
from pagecage.linux.cgroup_files import read_counters
from pagecage.linux.page_cache import resident_bytes, uptodate_bytes
from pagecage.linux.processes import ProcessInfo
from pagecage.linux.procfs import cgroup_settings, listens, machine_settings, process_settings
from pagecage.linux.trial_processes import TrialProcesses
from pagecage.model.cache_proof import (
    CacheCheck,
    broken_reason,
    charge_lag_bytes,
    requested_bytes,
    tolerance_bytes,
)
from pagecage.model.record_sections import MeasuredInterval
from pagecage.model.requirements import Requirement
from pagecage.model.trial import COLD_METADATA
from pagecage.units import kernel_page_bytes

_HOST_RECLAIM = ("pgsteal_kswapd", "pgsteal_direct", "pgsteal_khugepaged", "pgsteal_proactive")
"""Counters of /proc/vmstat that leave out what a cgroup's own limit reclaims (mm/vmscan.c,
shrink_inactive_list)."""


class CacheChecks:
    """The checks of one trial, kept in its record under `cache`.

    None for state `any`, or without files.
    """

    def __init__(self, run: TrialRun, caged: Caged) -> None:
        self._cache, self._caged = run.sections["cache"], caged
        self._is_wanted = bool(caged.files) and run.trial.cache != "any"
        self._at_start: tuple[tuple[int, int], ...] = ()

    def at_start(self) -> None:
        """Check before the workload runs. Raises NotPrepared if the proven state is gone."""
        if not self._is_wanted:
            return
        self._cache["charge_lag_bytes"] = charge_lag_bytes(os.cpu_count() or 1, kernel_page_bytes())
        self._at_start = tuple(
            (resident_bytes(path), _modified_ns(path)) for path in self._caged.files
        )
        self._cache["start"] = self._check(
            sum(resident for resident, _ in self._at_start)
        ).to_json()
        self._require()

    def at_go(self, evicted_bytes: int = 0) -> None:
        """Check while the workload waits for `go`, after it dropped `evicted_bytes` itself.

        Raises NotPrepared.
        """
        if not self._is_wanted:
            return
        if evicted_bytes:
            self._cache["evicted_bytes"] = evicted_bytes
        self._cache["go"] = self._check(sum(map(resident_bytes, self._caged.files))).to_json()
        self._require()

    def go_is_start(self) -> None:
        """Use the check at start for `go`, if the measured part begins with the launch."""
        if self._is_wanted:
            self._cache["go"] = dict(self._cache["start"])

    def at_end(self, interval: MeasuredInterval) -> None:
        """Check after the measured part; `confirmed` judges it."""
        if not self._is_wanted:
            return
        resident = tuple(map(resident_bytes, self._caged.files))
        end = self._check(sum(resident))
        came = sum(
            max(0, now - then) for now, (then, _) in zip(resident, self._at_start, strict=True)
        )
        read = (end.read_bytes or 0) - (self._cache["start"]["read_bytes"] or 0)
        if came - read > tolerance_bytes(self._cache["file_bytes"]):
            came = self._came_from_disk()
        least = _least_resident_bytes(self._caged, interval)
        self._cache |= {"end": end.to_json(), "came_bytes": came, "least_resident_bytes": least}

    def _require(self) -> None:
        if reason := broken_reason(self._cache):
            raise NotPrepared(reason)

    def _check(self, total_bytes: int) -> CacheCheck:
        """Read the trial's counters after the residency, so that they cover all resident pages."""
        processes, vmstat = self._caged.context.processes, procfs.read_vmstat() or {}
        cgroup, found = processes.cgroup, {}
        if cgroup is not None:
            found = read_counters(cgroup, "memory.stat", "memory.events")
        memory, events = found.get("memory.stat") or {}, found.get("memory.events") or {}
        reclaimed = memory.get("pgsteal")
        page_bytes = kernel_page_bytes()
        by_host = [vmstat[key] for key in _HOST_RECLAIM if key in vmstat]
        return CacheCheck(
            resident_bytes=total_bytes,
            charged_bytes=memory.get("file"),
            read_bytes=processes.read_bytes(self._caged.disk.maj_min),
            reclaimed_bytes=None if reclaimed is None else reclaimed * page_bytes,
            host_reclaimed_bytes=sum(by_host) * page_bytes if by_host else None,
            limit_hits=events.get("max"),
        )

    def _came_from_disk(self) -> int:
        """Return the bytes that entered the page cache since the start and must come from the disk.

        Left out are pages on their way, since io.stat counts a request when it leaves the cap; what
        a file holds without the disk (holes, preallocated or compressed extents); and a file that
        was written meanwhile.
        """
        came = 0
        for path, (before, modified_ns) in zip(self._caged.files, self._at_start, strict=True):
            with suppress(OSError):  # gone meanwhile, or not readable
                if _modified_ns(path) == modified_ns:
                    came += min(max(0, uptodate_bytes(path) - before), on_disk_bytes(path))
        return came


def confirmed(run: TrialRun, measured: Measured, ending: Ending) -> Ending:
    """Return `not_prepared` if another process filled or emptied the cache behind an answer."""
    read = requested_bytes(run.trial.workload.program, measured.end)
    if ending.has_answer and (reason := broken_reason(run.sections["cache"], read)):
        return Ending("not_prepared", reason)
    return ending


def _modified_ns(path: Path) -> int:
    """Return the modification time in ns since 1970, or -1 if the file is gone."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return -1


def _least_resident_bytes(caged: Caged, interval: MeasuredInterval) -> int | None:
    """Return the fewest resident bytes that the sampler saw in the measured part.

    Returns None if it saw nothing.
    """
    begin = interval.start_monotonic_seconds
    rows = (row for row in caged.sampler.rows() if row["t"] >= begin)
    resident = [row["resident_pages"] for row in rows if row["resident_pages"] is not None]
    return min(resident) * kernel_page_bytes() if resident else None


DROP, DEV = Path("/proc/sys/vm/drop_caches"), Path("/dev")
_SLABS = "2"
"""Dentries and inodes (admin-guide/sysctl/vm.rst)."""
_KNOWN = ("ext2", "ext3", "ext4")
"""File systems whose blocks of names and inodes were seen to be read again afterwards."""
_LIBC = ctypes.CDLL(None, use_errno=True)


def drop_metadata(run: TrialRun, caged: Caged) -> None:
    """Drop the metadata of the files' file system if the trial wants that; keep their state.

    It must be the last step before `go`, since each check of the page cache opens every file. That
    is also why they are warm otherwise. Raises RequirementMissed if this user may not drop them.
    """
    if COLD_METADATA not in run.trial.conditions:
        run.keep("cache", metadata="warm" if caged.files else "unknown")
        return
    device = DEV / next(iter(caged.disk.stack), caged.disk.name)
    try:
        _write_back(Path(caged.disk.mount_point))
        DROP.write_text(_SLABS)
        _forget(device)
    except OSError as error:
        raise RequirementMissed.of(
            Requirement.METADATA,
            f"directory entries and inodes cannot be dropped: {error.filename or DROP}:"
            f" {error.strerror}",
            "run as root or in the guest (HOST=vm), or leave out cold-metadata",
        ) from None
    is_known = caged.disk.filesystem in _KNOWN
    run.keep("cache", metadata="cold" if is_known else "unknown")


def _write_back(mount_point: Path) -> None:
    """Write back the file system, because inodes and blocks that are dirty stay in memory."""
    descriptor = os.open(mount_point, os.O_RDONLY)
    try:
        if _LIBC.syncfs(descriptor) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(mount_point))
    finally:
        os.close(descriptor)


def _forget(device: Path) -> None:
    """Drop the block device's own page cache."""
    descriptor = os.open(device, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


MEMBERS_SECONDS = 0.2
"""Interval of the scans for processes that have left the cage."""
STDERR_LINES = 10
"""Lines of standard error that a record keeps."""


@dataclass
class ProgramObservation:
    """Times of a program (CLOCK_MONOTONIC), and processes that survived it or left the cage."""

    began_at: float
    ready_at: float | None = None
    exited_at: float | None = None
    left_behind: list[ProcessInfo] = field(default_factory=list)
    escaped: list[ProcessInfo] = field(default_factory=list)
    next_scan_at: float = 0.0

    def note_serving(
        self, processes: TrialProcesses, program: GatedProcess, port: int | None
    ) -> bool:
        """Return whether it serves: it printed the line, or listens on the port."""
        if program.ready_at is not None:
            self.ready_at = program.ready_at
        elif port is not None:
            pids = [member.pid for member in processes.members()]
            self.ready_at = time.monotonic() if listens(port, pids) else None
        return self.ready_at is not None

    def note_escaped(self, processes: TrialProcesses, program: GatedProcess) -> None:
        """Scan at intervals, since each scan walks through all of the program's processes."""
        if time.monotonic() >= self.next_scan_at:
            self.next_scan_at = time.monotonic() + MEMBERS_SECONDS
            self.escaped = processes.outside(program.main_pid)

    def kill_escaped(self) -> None:
        """Kill the processes that left the cage: stopping the slice does not end them."""
        for member in self.escaped:
            with suppress(OSError):
                os.kill(member.pid, signal.SIGKILL)


def remaining_members(processes: TrialProcesses, patience_seconds: float) -> list[ProcessInfo]:
    """Return the processes still in the cage after the program's exit.

    Its children may take a moment to go.
    """
    until = time.monotonic() + patience_seconds
    while (left := processes.members()) and time.monotonic() < until:
        time.sleep(0.01)
    return left


def exit_to_json(
    program: GatedProcess,
    processes: TrialProcesses,
    seen: ProgramObservation | None,
    status: int,
    *,
    ended_by_itself: bool,
) -> dict[str, Any]:
    """Return the `exit` of a record; `seen` is None for a program that was never let go."""
    left_behind, escaped = (seen.left_behind, seen.escaped) if seen else ([], [])
    return {
        "status": status,
        "oom_kill": processes.oom_kills(),
        "stderr_tail": program.stderr_lines()[-STDERR_LINES:],
        "ended_by_itself": ended_by_itself,
        "left_behind": [process.to_json() for process in left_behind],
        "escaped": [process.to_json() for process in escaped],
    }


def describe_status(status: int) -> str:
    """Return an exit status in words; a negative one is the signal that ended the program."""
    return f"by signal {-status}" if status < 0 else f"with status {status}"


def describe_escaped(process: dict[str, Any]) -> str:
    """Return a sentence about a process that left the cage."""
    return (
        f"{name_process(process)} left the cage for {process['cgroup']}, where its limits do not"
        " hold"
    )


def name_process(process: dict[str, Any]) -> str:
    """Return the name and the id of a process of a record."""
    return f"{process['name']} (process {process['pid']})"


class MeasuredPart:
    """The measured part of one trial. `deadline` is the trial's timeout in CLOCK_MONOTONIC.

    `is_whole_life` is true for a workload without a gate, whose measured part begins with its
    launch.
    """

    def __init__(self, run: TrialRun, caged: Caged, *, is_whole_life: bool = False) -> None:
        self._run, self._caged, self._is_whole_life = run, caged, is_whole_life
        self._checks = CacheChecks(run, caged)
        self._launched_boot_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        self._launched = time.monotonic()
        self._wall = self._begin = 0.0
        self.deadline = self._launched + run.trial.timeout_seconds
        self.start_seconds: float | None = None

    def before_launch(self) -> None:
        """Check the cache before the workload starts. Raises NotPrepared.

        For a workload without a gate, wait for the tracers and read the counters here.
        """
        if self._is_whole_life:
            self._run.await_tracers(self._launched_boot_ns)
        self._checks.at_start()
        if self._is_whole_life:
            self._checks.go_is_start()
            self.read_before()
        self._launched = self._begin = time.monotonic()

    def at_gate(self, is_over: Callable[[], bool], evicted_bytes: int = 0) -> None:
        """Do what must be done while the workload waits for `go`.

        Raises RequirementMissed or NotPrepared.
        """
        self.confirm_at_gate(is_over, evicted_bytes)
        self.read_before()

    def confirm_at_gate(self, is_over: Callable[[], bool], evicted_bytes: int = 0) -> None:
        """Read the driver's limits back and check the cache, for a measured part that begins later.

        Raises RequirementMissed or NotPrepared.
        """
        self.start_seconds = time.monotonic() - self._launched
        confirm_limits(self._run, self._caged, is_over)
        self.require_member(is_over)
        self._run.await_tracers(self._launched_boot_ns)
        self._checks.at_go(evicted_bytes)

    def require_member(self, is_over: Callable[[], bool]) -> None:
        """Raise NotPrepared if a workload that is alive is not in its cage.

        With several hierarchies it may have left one of them, and is still found by the others.
        """
        if is_over():
            return
        processes = self._caged.context.processes
        found = processes.members()
        left = [stray for member in found for stray in processes.outside(member.pid)]
        if (left or not found) and not is_over():
            place = f", but in {left[0].cgroup}" if left else ""
            raise NotPrepared(
                f"the workload is not in its cage{place}, so its limits do not hold it"
            )

    def read_before(self) -> None:
        """Drop metadata if the trial wants it, renew the burst credits and read the counters.

        This is the last step before the measured part. Raises RequirementMissed if a limit is not
        what it was, or if metadata cannot be dropped.
        """
        drop_metadata(self._run, self._caged)
        require_unchanged_limits(self._run, self._caged)
        self._keep_settings("before")
        if not self._is_whole_life:
            for controller in self._caged.controllers:
                controller.begin()  # burst credits begin with the measured part
        self._renew_volume()
        self._run.keep("counters", before=read_all_counters(self._caged.context))

    def _renew_volume(self) -> None:
        """Start clock, credits, events and account of each simulated volume anew."""
        if self._caged.volume is not None:
            enforce_by_volume(self._run, self._caged.volume)
        enforce_by_volumes(self._run, self._caged.disks)

    def begin(self) -> None:
        """Note the start of the measured part, right before `go`.

        Without a gate it was the launch.
        """
        self._run.session.stream.event("go", trial_id=self._run.trial.trial_id)
        if not self._is_whole_life:
            self._begin = time.monotonic()
        self._wall = time.time() - (time.monotonic() - self._begin)

    @property
    def began_at(self) -> float:
        """The start of the measured part in CLOCK_MONOTONIC."""
        return self._begin

    def end(self, end_monotonic_seconds: float | None = None) -> None:
        """Read the counters and check the cache at the end of the measured part (None: now)."""
        end = end_monotonic_seconds or time.monotonic()
        self._run.keep("counters", after=read_all_counters(self._caged.context))
        self._keep_account()
        self._run.session.stream.event("end", trial_id=self._run.trial.trial_id)
        self._run.interval = MeasuredInterval(self._wall, self._begin, end - self._begin)
        keep_limits_after(self._run, self._caged)
        self._keep_queue_settings()
        self._keep_settings("after")
        self._checks.at_end(self._run.interval)

    def _keep_queue_settings(self) -> None:
        """Keep the queue settings of all disks again, which another process may have changed."""
        found = describe_disk(self._caged.disk)["queue_settings"]
        self._run.keep("device", queue_settings_after=found)
        for name, other in self._caged.disks.items():
            found = describe_disk(other.disk)["queue_settings"]
            self._run.keep_of_disk(name, "device", queue_settings_after=found)

    def _keep_settings(self, moment: str) -> None:
        """Keep what decides the speed of the machine, the cgroup and the first process in it."""
        processes = self._caged.context.processes
        found = machine_settings()
        if processes.cgroup is not None:
            found |= cgroup_settings(processes.cgroup.directories)
        for member in processes.members()[:1]:
            found |= process_settings(member.pid)
        self._run.keep("machine", **{moment: found})

    def _keep_account(self) -> None:
        """Keep each volume's own account of the measured part."""
        if self._caged.volume is not None:
            external = self._run.sections["cage"]["external"]
            external["account"] = sound_account(self._caged.volume)
        keep_accounts(self._run, self._caged.disks)
