"""The page-cache state of a trial's files, and the setup step that may produce it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from pagecage.agent.caging import ProgramFiles
from pagecage.agent.drivers.driver import Driver, LaunchContext
from pagecage.agent.programs.command import CANNOT, fill_all, places, program_path
from pagecage.agent.trial_run import NotPrepared, RequirementMissed, TrialRun
from pagecage.linux.cgroup import Cgroup, own_cgroup
from pagecage.linux.cgroup_files import read_counters
from pagecage.linux.page_cache import (
    Residency,
    caches_below,
    evict,
    load,
    measure_residency,
    resident_bytes,
)
from pagecage.model.requirements import Requirement
from pagecage.model.trial import SetupStep
from pagecage.process import Completed
from pagecage.process import run as run_process

_LOAD_PASSES = 5


def reach_cache_state(run: TrialRun, program_files: ProgramFiles) -> None:
    """Evict or load the files and measure the result, and that of caches below the file system.

    Raises NotPrepared if the state was not reached. Before a setup step the files are only evicted;
    the step loads them, and `resident` is proven after it.
    """
    state, fills_itself = run.trial.cache, run.trial.before is None
    files = program_files.paths
    run.keep("cache", requested=state, charged_to=None)
    below = caches_below(program_files.disk, is_evicted=state == "cold")
    run.keep("device", caches_below=below)
    if not files:
        return
    found = [measure_residency(path) if state == "any" else evict(path) for path in files]
    if state == "resident" and fills_itself:
        found = _load_all(files)
        run.keep("cache", charged_to=str(own_cgroup()))
    _keep_residency(run, found)
    if state != "resident" or fills_itself:
        _require(run, found)


def _load_all(files: tuple[Path, ...]) -> list[Residency]:
    """Load the files until all are resident, in a few passes at most.

    Proactive reclaim may take pages of a large file before its end is read
    (Documentation/admin-guide/mm/damon/reclaim.rst).
    """
    for _ in range(_LOAD_PASSES):
        for path in files:
            load(path)
        found = [measure_residency(path) for path in files]
        if all(residency.is_full for residency in found):
            break
    return found


def _keep_residency(run: TrialRun, found: list[Residency]) -> None:
    run.keep(
        "cache",
        method=found[0].method,
        file_bytes=sum(r.file_bytes for r in found),
        resident_bytes_before=sum(r.resident_bytes for r in found),
        resident_bytes_after=None,
    )


def _require(run: TrialRun, found: list[Residency]) -> None:
    state, cache = run.trial.cache, run.sections["cache"]
    reached = {"cold": all(r.is_empty for r in found), "resident": all(r.is_full for r in found)}
    if not reached.get(state, True):
        raise NotPrepared(
            f"{cache['resident_bytes_before']} of {cache['file_bytes']} bytes are resident, not"
            f" {state}"
        )


def all_resident_bytes(paths: tuple[Path, ...]) -> int:
    """Return the resident bytes of all files together."""
    return sum(map(resident_bytes, paths))


def run_setup_step(
    run: TrialRun,
    driver: Driver,
    context: LaunchContext,
    files: tuple[Path, ...],
    data_dir: Path,
) -> None:
    """Run the setup step, if any, in its slice.

    Keep its cache footprint and the cgroup charged for it. Raises RequirementMissed or NotPrepared
    if the step fails.
    """
    step = run.trial.before
    if step is None:
        return
    values = places(files, data_dir, run.trial.max_seconds, context.folders)
    path = program_path(run.session.request, step.program)
    argv = [path, *fill_all(step.arguments, values, files), "--no-handshake"]
    command, cgroup = _step_command(run, step, driver, context, argv)
    begin = time.monotonic()
    done = run_process(command, check=False, timeout_seconds=run.trial.timeout_seconds)
    charged_to = None if cgroup is None else str(cgroup)
    evidence = {
        "argv": argv,
        "slice": charged_to,
        "exit_status": done.status,
        "seconds": time.monotonic() - begin,
    }
    footprint = _footprint(files, [context.processes.cgroup, cgroup])
    run.keep("cache", charged_to=charged_to, step=evidence | footprint)
    _require_success(step, done)
    if run.trial.cache == "resident":
        found = [measure_residency(path) for path in files]
        _keep_residency(run, found)
        _require(run, found)


def _step_command(
    run: TrialRun, step: SetupStep, driver: Driver, context: LaunchContext, argv: list[str]
) -> tuple[list[str], Cgroup | None]:
    """Return the step's command and the cgroup that it runs in, if any."""
    if not driver.has_slice:
        return driver.command(context, argv), None
    unit, cgroup = _slice_of_step(run, step, context)
    name = context.unit.removesuffix(".slice").replace("pagecage-", "pagecage-step-")
    return context.maker.enter_command(unit, argv, name), cgroup


def _slice_of_step(run: TrialRun, step: SetupStep, context: LaunchContext) -> tuple[str, Cgroup]:
    """Return the trial's own cgroup, or a sibling with the same limits that lives as long."""
    if step.slice == "same":
        return context.unit, context.cgroup
    unit = context.unit.removesuffix(".slice") + ".before.slice"
    run.cleanup.callback(context.maker.remove, unit)
    return unit, context.maker.make(unit, context.cage, context.disk, context.disks)


def _footprint(files: tuple[Path, ...], cgroups: list[Cgroup | None]) -> dict[str, Any]:
    """Return the resident bytes after the step, and `file` of each cgroup's memory.stat."""
    charged = {
        str(cgroup): (read_counters(cgroup, "memory.stat")["memory.stat"] or {}).get("file")
        for cgroup in dict.fromkeys(filter(None, cgroups))
    }
    return {"resident_bytes_after": all_resident_bytes(files), "charged_bytes": charged}


def _require_success(step: SetupStep, done: Completed) -> None:
    last_line = (done.stderr.strip().splitlines() or ["it printed no reason"])[-1]
    if done.status == CANNOT:
        raise RequirementMissed.of(
            Requirement.WORKLOAD, f"{step.program} (step before): {last_line}"
        )
    if done.status != 0:
        raise NotPrepared(
            f"the step before ({step.program}) ended with status {done.status}: {last_line}"
        )
