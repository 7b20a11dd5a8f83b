"""Counters, cache checks and events around the measured part of a trial."""

from __future__ import annotations

import time
from collections.abc import Callable

from pagecage.agent.cache_checks import CacheChecks
from pagecage.agent.caged import Caged
from pagecage.agent.caging import (
    confirm_limits,
    enforce_by_volume,
    keep_limits_after,
    require_unchanged_limits,
)
from pagecage.agent.disks.limits import enforce_by_volumes, keep_accounts
from pagecage.agent.limits.simulated_volume import sound_account
from pagecage.agent.programs.metadata import drop_metadata
from pagecage.agent.programs.program import read_all_counters
from pagecage.agent.system.facts import describe_disk
from pagecage.agent.system.scheduling import cgroup_settings, machine_settings, process_settings
from pagecage.agent.trial_run import NotPrepared, TrialRun
from pagecage.model.record_sections import MeasuredInterval


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
