"""The measured part of a trial: what is checked and read at its first and its last moment."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pagecage.agent.caging import Caged
from pagecage.agent.file_trees import sync_file_system
from pagecage.agent.programs.gated_process import GatedProcess, TailedProcess
from pagecage.agent.trial_run import Ending, Measured, NotPrepared
from pagecage.linux import block_device, procfs
from pagecage.linux.block_device import on_disk_bytes, read_queue_settings
from pagecage.linux.cgroup_files import read_counters
from pagecage.linux.page_cache import resident_bytes, uptodate_bytes
from pagecage.linux.processes import ProcessInfo, kernel_threads_usec
from pagecage.linux.procfs import cgroup_settings, listens, machine_settings, process_settings
from pagecage.linux.trial_processes import TrialProcesses
from pagecage.model.cache_proof import (
    broken_reason,
    charge_lag_bytes,
    requested_bytes,
    tolerance_bytes,
)
from pagecage.model.json_codec import Json, JsonView, from_json
from pagecage.model.record_sections import CacheEvidence, MeasuredInterval
from pagecage.model.requirements import Requirement, RequirementMissed
from pagecage.model.trial import COLD_METADATA
from pagecage.units import kernel_page_bytes

_HOST_RECLAIM = ("pgsteal_kswapd", "pgsteal_direct", "pgsteal_khugepaged", "pgsteal_proactive")
"""Counters of /proc/vmstat that leave out what a cgroup's own limit reclaims (mm/vmscan.c,
shrink_inactive_list)."""


class CacheChecks:
    """The checks of one trial's cache; none for state `any`, or without files."""

    def __init__(self, caged: Caged) -> None:
        self.found = dict(caged.cache)
        run = caged.run
        self._run, self._caged = run, caged
        self._is_wanted = bool(caged.files) and run.trial.cache != "any"
        self._at_start: tuple[tuple[int, int], ...] = ()

    def _keep(self, **found: Any) -> None:
        self.found |= found
        self._run.keep("cache", **found)

    def at_start(self, *, is_go: bool) -> None:
        """Check before the launch, which `is_go` makes the start. Raises NotPrepared."""
        if not self._is_wanted:
            return
        self._keep(charge_lag_bytes=charge_lag_bytes(os.cpu_count() or 1, kernel_page_bytes()))
        files = self._caged.files
        self._at_start = tuple((resident_bytes(path), _modified_ns(path)) for path in files)
        start = self._check(sum(resident for resident, _ in self._at_start))
        self._keep(start=start)
        self._require()
        if is_go:
            self._keep(go=start)

    def at_go(self, evicted_bytes: int = 0) -> None:
        if self._is_wanted:
            go = self._check(sum(map(resident_bytes, self._caged.files)))
            self._keep(**({"evicted_bytes": evicted_bytes} if evicted_bytes else {}), go=go)
            self._require()

    def at_end(self, interval: MeasuredInterval) -> None:
        if not self._is_wanted:
            return
        resident = tuple(map(resident_bytes, self._caged.files))
        end = self._check(sum(resident))
        pairs = zip(resident, self._at_start, strict=True)
        came = sum(max(0, now - then) for now, (then, _) in pairs)
        read = (end["read_bytes"] or 0) - (self.found["start"]["read_bytes"] or 0)
        if came - read > tolerance_bytes(self.found["file_bytes"]):
            # Not from the disk come pages on their way (io.stat counts later), what a file holds
            # without it (holes, preallocated or compressed extents), and a file that was written
            # meanwhile.
            came = 0
            for path, (before, modified_ns) in zip(self._caged.files, self._at_start, strict=True):
                with suppress(OSError):  # gone meanwhile, or not readable
                    if _modified_ns(path) == modified_ns:
                        came += min(max(0, uptodate_bytes(path) - before), on_disk_bytes(path))
        begin = interval.start_monotonic_seconds
        rows = (row for row in self._caged.sampler.rows() if row["t"] >= begin)
        pages = [row["resident_pages"] for row in rows if row["resident_pages"] is not None]
        least = min(pages) * kernel_page_bytes() if pages else None
        self._keep(end=end, came_bytes=came, least_resident_bytes=least)

    def _require(self) -> None:
        if reason := broken_reason(from_json(CacheEvidence, self.found)):
            raise NotPrepared(reason)

    def _check(self, total_bytes: int) -> Json:
        """Return a CacheCheck; its counters are read after the residency, to cover all pages."""
        processes, vmstat = self._caged.context.processes, procfs.read_vmstat() or {}
        cgroup, found = processes.cgroup, {}
        if cgroup is not None:
            found = read_counters(cgroup, "memory.stat", "memory.events")
        memory, events = found.get("memory.stat") or {}, found.get("memory.events") or {}
        reclaimed = memory.get("pgsteal")
        page_bytes = kernel_page_bytes()
        by_host = [vmstat[key] for key in _HOST_RECLAIM if key in vmstat]
        return {
            "resident_bytes": total_bytes,
            "charged_bytes": memory.get("file"),
            "read_bytes": processes.read_bytes(self._caged.disk.maj_min),
            "reclaimed_bytes": None if reclaimed is None else reclaimed * page_bytes,
            "host_reclaimed_bytes": sum(by_host) * page_bytes if by_host else None,
            "limit_hits": events.get("max"),
        }


def confirmed(program: str, measured: Measured, ending: Ending) -> Ending:
    """Return `not_prepared` if another process filled or emptied the cache behind an answer."""
    cache, read = from_json(CacheEvidence, measured.cache), requested_bytes(program, measured.end)
    if ending.has_answer and (reason := broken_reason(cache, read)):
        return Ending("not_prepared", reason)
    return ending


def _modified_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return -1


DROP, DEV = Path("/proc/sys/vm/drop_caches"), Path("/dev")
_SLABS = "2"
"""Dentries and inodes (admin-guide/sysctl/vm.rst)."""
_KNOWN = ("ext2", "ext3", "ext4")
"""File systems whose blocks of names and inodes were seen to be read again afterwards."""


def _drop_metadata(conditions: Collection[str], caged: Caged) -> str:
    """Drop the metadata of the files' file system if the trial wants that; return their state.

    It must be the last step before `go`, since each check of the page cache opens every file. That
    is also why they are warm otherwise. Raises RequirementMissed if this user may not drop them.
    """
    if COLD_METADATA not in conditions:
        return "warm" if caged.files else "unknown"
    device = DEV / next(iter(caged.disk.stack), caged.disk.name)
    try:
        sync_file_system(Path(caged.disk.mount_point))  # what is dirty stays in memory
        DROP.write_text(_SLABS)
        descriptor = os.open(device, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)  # the device's own pages
        finally:
            os.close(descriptor)
    except OSError as error:
        place = f"{error.filename or DROP}: {error.strerror}"
        reason = f"directory entries and inodes cannot be dropped: {place}"
        hint = "run as root or in the guest (HOST=vm), or leave out cold-metadata"
        raise RequirementMissed.of(Requirement.METADATA, reason, hint) from None
    return "cold" if caged.disk.filesystem in _KNOWN else "unknown"


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
    """Return the processes still in the cage; children may take a moment to go."""
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
) -> Json:
    """Return the `exit` of a record; `seen` is None for a program that was never let go."""
    left_behind, escaped = (seen.left_behind, seen.escaped) if seen else ([], [])
    return {
        "status": status,
        "oom_kill": processes.oom_kills(),
        "stderr_tail": program.tail.lines()[-STDERR_LINES:],
        "ended_by_itself": ended_by_itself,
        "left_behind": list(map(vars, left_behind)),
        "escaped": list(map(vars, escaped)),
    }


def describe_status(status: int) -> str:
    """Return an exit status in words; a negative one is the signal that ended the program."""
    return f"by signal {-status}" if status < 0 else f"with status {status}"


def failure_in_cage(measured: Measured, what: str) -> Ending | None:
    """Return the outcome of a program that was killed for memory, not started, or left the cage."""
    found = measured.exit
    if found["oom_kill"]:
        return Ending("oom_killed")
    if not measured.response:
        reason = measured.last_line or f"status {found['status']}"
        return Ending("failed", f"its {what} was not started: {reason}")
    if not found["escaped"]:
        return None
    process = found["escaped"][0]
    left = f"{name_process(process)} left the cage for {process['cgroup']}"
    return Ending("failed", f"{left}, where its limits do not hold")


def name_process(process: JsonView) -> str:
    return f"{process['name']} (process {process['pid']})"


class MeasuredPart:
    """The measured part of one trial. `deadline` is the trial's timeout in CLOCK_MONOTONIC.

    `is_whole_life` is true for a workload without a gate, whose measured part begins with its
    launch. `interval` is None until the measured part has ended. `counters` are those read so far,
    and `cache` the checks of the page cache.
    """

    def __init__(self, caged: Caged, *, is_whole_life: bool = False) -> None:
        self._run, self._caged, self._is_whole_life = caged.run, caged, is_whole_life
        self._processes, self._limits = caged.context.processes, caged.limits
        self._checks = CacheChecks(caged)
        self._launched_boot_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        self._launched = time.monotonic()
        self._wall = self.began_at = 0.0
        self.deadline = self._launched + caged.run.trial.timeout_seconds
        self.start_seconds: float | None = None
        self.interval: MeasuredInterval | None = None
        self.counters: Json = {}
        self.cache = self._checks.found

    def before_launch(self) -> None:
        """Check the cache before the launch; without a gate also all that `go` needs."""
        if self._is_whole_life:
            self._run.await_tracers(self._launched_boot_ns)
        self._checks.at_start(is_go=self._is_whole_life)
        if self._is_whole_life:
            self.read_before()
        self._launched = self.began_at = time.monotonic()

    def at_gate(self, is_over: Callable[[], bool], evicted_bytes: int = 0) -> None:
        """Check and read before `go`. Raises RequirementMissed or NotPrepared."""
        self.confirm_at_gate(is_over, evicted_bytes)
        self.read_before()

    def confirm_at_gate(self, is_over: Callable[[], bool], evicted_bytes: int = 0) -> None:
        self.start_seconds = time.monotonic() - self._launched
        self._limits.confirm(self._caged.context, is_over)
        self.require_member(is_over)
        self._run.await_tracers(self._launched_boot_ns)
        self._checks.at_go(evicted_bytes)

    def require_member(self, is_over: Callable[[], bool]) -> None:
        """Raise NotPrepared if a living workload is outside, also if in one hierarchy alone."""
        if is_over():
            return
        found = self._processes.members()
        left = [stray for member in found for stray in self._processes.outside(member.pid)]
        if (left or not found) and not is_over():
            place = f", but in {left[0].cgroup}" if left else ""
            reason = f"the workload is not in its cage{place}, so its limits do not hold it"
            raise NotPrepared(reason)

    def read_before(self) -> None:
        """Drop metadata if the trial wants it, renew the burst credits and read the counters.

        This is the last step before the measured part. Raises RequirementMissed if a limit is not
        what it was, or if metadata cannot be dropped.
        """
        caged, conditions = self._caged, self._run.trial.conditions
        self._run.keep("cache", metadata=_drop_metadata(conditions, caged))
        self._limits.require_unchanged(caged.context, rewrites_io_max=bool(caged.controllers))
        self._keep_settings("before")
        if not self._is_whole_life:
            for controller in caged.controllers:
                controller.begin()  # burst credits begin with the measured part
        self._limits.renew_volumes()
        self._read_counters("before")

    def begin(self) -> None:
        """Note the start of the measured part, right before `go`; without a gate, the launch."""
        self._run.session.stream.event("go", trial_id=self._run.trial.trial_id)
        if not self._is_whole_life:
            self.began_at = time.monotonic()
        self._wall = time.time() - (time.monotonic() - self.began_at)

    def end(self, end_monotonic_seconds: float | None = None) -> None:
        """Read the counters and check the cache at the end of the measured part (None: now)."""
        run, caged = self._run, self._caged
        end = end_monotonic_seconds or time.monotonic()
        self._read_counters("after")
        self._limits.keep_accounts()
        run.session.stream.event("end", trial_id=run.trial.trial_id)
        self.interval = MeasuredInterval(self._wall, self.began_at, end - self.began_at)
        run.interval = self.interval
        self._limits.keep_after(caged.context, rewrites_io_max=bool(caged.controllers))
        # Another process may have changed the queue settings.
        for name, one in caged.storage.disks.items():
            run.keep("device", name, queue_settings_after=read_queue_settings(one.disk))
        self._keep_settings("after")
        self._checks.at_end(self.interval)

    def measured(
        self,
        process: TailedProcess,
        found: Json,
        *,
        is_timed_out: bool,
        response: Mapping[str, float | None] | None = None,
    ) -> Measured:
        """Return the results of a process whose `exit` was found."""
        return Measured(
            self.interval,
            self.counters,
            {},
            found,
            process.tail.last_line(),
            self.start_seconds,
            is_timed_out,
            response or {},
            cache=self.cache,
        )

    def _read_counters(self, moment: str) -> None:
        context = self._caged.context
        disk, *others = (
            {
                "device": procfs.read_device(disk.maj_min),
                "lower_device": block_device.read_lower_device(disk),
            }
            for disk in (context.disk, *context.disks.values())
        )
        self.counters[moment] = {
            **context.processes.counters(),
            **disk,
            "host": procfs.read_host() | {"kernel_threads_usec": kernel_threads_usec()},
            "agent": {"cpu_usec": round(1e6 * time.process_time())},
            **({"disks": dict(zip(context.disks, others, strict=True))} if others else {}),
        }
        self._run.keep("counters", **{moment: self.counters[moment]})

    def _keep_settings(self, moment: str) -> None:
        found = machine_settings()
        if self._processes.cgroup is not None:
            found |= cgroup_settings(self._processes.cgroup.directories)
        for member in self._processes.members()[:1]:
            found |= process_settings(member.pid)
        self._run.keep("machine", **{moment: found})
