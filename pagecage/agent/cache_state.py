"""The page cache as a trial wants it, over all its files together, and the step that may fill it as somebody else."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from pagecage.agent.programs.workload_run import CANNOT, fill_all, places_of, program_path
from pagecage.agent.system import cgroupfs
from pagecage.agent.system.page_cache import Residency, evict, load, measure_residency, resident_bytes
from pagecage.agent.system.systemd import scope_command, start_slice, stop_slice
from pagecage.agent.trial_run import NotPrepared, RequirementMissed, TrialRun
from pagecage.model.requirements import MissedRequirement, Requirement
from pagecage.process import Completed, run


def reach_cache_state(attempt: TrialRun) -> None:
    """Empty or fill the page cache for the files, and believe only the measurement.

    Where a step comes before, it does the filling: the files are evicted here, and `resident` is proven after it.
    """
    state = attempt.trial.cache
    attempt.cache = {"requested": state, "charged_to": None}
    if not attempt.datasets:
        return
    found = [measure_residency(path) if state == "any" else evict(path) for path in attempt.datasets]
    if state == "resident" and attempt.trial.before is None:
        for path in attempt.datasets:
            load(path)
        found = [measure_residency(path) for path in attempt.datasets]
        attempt.cache["charged_to"] = str(cgroupfs.own_cgroup())
    _note(attempt, found)
    if state == "resident" and attempt.trial.before is not None:
        return
    _require(attempt, found)


def _note(attempt: TrialRun, found: list[Residency]) -> None:
    attempt.cache |= {
        "method": found[0].method, "file_bytes": sum(r.file_bytes for r in found),
        "resident_bytes_before": sum(r.resident_bytes for r in found), "resident_bytes_after": None,
    }  # fmt: skip


def _require(attempt: TrialRun, found: list[Residency]) -> None:
    state, cache = attempt.trial.cache, attempt.cache
    reached = {"cold": all(r.is_empty for r in found), "resident": all(r.is_full for r in found)}
    if not reached.get(state, True):
        raise NotPrepared(f"{cache['resident_bytes_before']} of {cache['file_bytes']} bytes are resident, not {state}")


def all_resident_bytes(paths: tuple[Path, ...]) -> int:
    """Resident bytes of all files together, now."""
    return sum(map(resident_bytes, paths))


def run_before(attempt: TrialRun) -> None:
    """Run the step to its end in its slice, and note what it left in the cache and who is charged for it."""
    if attempt.trial.before is None:
        return
    unit, cgroup = _slice_of_step(attempt)
    begin = time.monotonic()
    argv = _step_argv(attempt)
    name = attempt.unit.removesuffix(".slice").replace("pagecage-", "pagecage-step-")
    command = scope_command(attempt.bench.systemd, unit, argv, name)
    done = run(command, check=False, timeout_seconds=attempt.trial.timeout_seconds)
    attempt.cache["step"] = _told(attempt, argv, cgroup, done, time.monotonic() - begin)
    _require_end(attempt, done)
    if attempt.trial.cache == "resident":
        found = [measure_residency(path) for path in attempt.datasets]
        _note(attempt, found)
        _require(attempt, found)


def _slice_of_step(attempt: TrialRun) -> tuple[str, Path]:
    """The trial's own slice, or a sibling with the same limits, which stays as long as the trial's."""
    assert attempt.cgroup is not None and attempt.trial.before is not None
    if attempt.trial.before.slice == "same":
        return attempt.unit, attempt.cgroup
    unit = attempt.unit.removesuffix(".slice") + ".before.slice"
    attempt.cleanup.callback(stop_slice, attempt.bench.systemd, unit)
    return unit, start_slice(attempt.bench.systemd, unit, attempt.trial.cage, attempt.disk.node)


def _step_argv(attempt: TrialRun) -> list[str]:
    step = attempt.trial.before
    assert step is not None
    arguments = fill_all(step.arguments, places_of(attempt), attempt.datasets)
    return [program_path(attempt, step.program), *arguments, "--no-handshake"]


def _told(attempt: TrialRun, argv: list[str], cgroup: Path, done: Completed, seconds: float) -> dict[str, Any]:
    """The step in the record: `charged_bytes` is memory.stat's `file` of each slice, before anything is measured."""
    attempt.cache["charged_to"] = str(cgroup)
    slices = dict.fromkeys([str(attempt.cgroup), str(cgroup)])
    charged = {name: (cgroupfs.read_counters(Path(name))["memory.stat"] or {}).get("file") for name in slices}
    return {
        "argv": argv, "slice": str(cgroup), "exit_status": done.status, "seconds": seconds,
        "resident_bytes_after": all_resident_bytes(attempt.datasets), "charged_bytes": charged,
    }  # fmt: skip


def _require_end(attempt: TrialRun, done: Completed) -> None:
    assert attempt.trial.before is not None
    said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
    program = attempt.trial.before.program
    if done.status == CANNOT:
        raise RequirementMissed([MissedRequirement(Requirement.WORKLOAD, f"{program} (step before): {said}", "")])
    if done.status != 0:
        raise NotPrepared(f"the step before ({program}) ended with status {done.status}: {said}")
