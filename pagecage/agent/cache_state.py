"""The page-cache state of a trial's files, and the setup step that may produce it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from pagecage.agent.caging import ProgramFiles
from pagecage.agent.drivers.driver import Driver, LaunchContext
from pagecage.agent.programs.command import CANNOT, fill_all, places, program_path
from pagecage.agent.trial_run import NotPrepared, TrialRun
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
from pagecage.model.json_codec import Json
from pagecage.model.requirements import Requirement, RequirementMissed
from pagecage.model.trial import SetupStep
from pagecage.process import last_line
from pagecage.process import run as run_process

_LOAD_PASSES = 5


def reach_cache_state(run: TrialRun, program_files: ProgramFiles) -> Json:
    """Evict or load the files and measure the result, and that of caches below the file system.

    Returns the evidence of the record's `cache`. Raises NotPrepared if the state was not reached.
    Before a setup step the files are only evicted; the step loads them, and `resident` is proven
    after it.
    """
    state, fills_itself = run.trial.cache, run.trial.before is None
    files, evidence = program_files.paths, {"requested": run.trial.cache, "charged_to": None}
    run.keep("cache", **evidence)
    below = caches_below(program_files.disk, is_evicted=state == "cold")
    # Only the controller knows what is below the disk of a guest.
    if (cache := run.session.request.machine["details"].get("data_cache", "none")) != "none":
        below.append({"layer": program_files.disk.name, "kind": cache})
    run.keep("device", caches_below=below)
    if not files:
        return evidence
    found = [measure_residency(path) if state == "any" else evict(path) for path in files]
    if state == "resident" and fills_itself:
        # Reclaim may take pages of a large file before its end is read (damon/reclaim.rst).
        for _ in range(_LOAD_PASSES):
            for path in files:
                load(path)
            found = [measure_residency(path) for path in files]
            if all(residency.is_full for residency in found):
                break
        evidence["charged_to"] = str(own_cgroup())
    evidence |= _residency(found)
    run.keep("cache", **evidence)
    if state != "resident" or fills_itself:
        _require(state, found)
    return evidence


def _residency(found: Sequence[Residency]) -> Json:
    return {
        "method": found[0].method,
        "file_bytes": sum(r.file_bytes for r in found),
        "resident_bytes_before": sum(r.resident_bytes for r in found),
        "resident_bytes_after": None,
    }


def _require(state: str, found: Sequence[Residency]) -> None:
    reached = {"cold": all(r.is_empty for r in found), "resident": all(r.is_full for r in found)}
    if not reached.get(state, True):
        sums = _residency(found)
        count, total = sums["resident_bytes_before"], sums["file_bytes"]
        raise NotPrepared(f"{count} of {total} bytes are resident, not {state}")


def run_setup_step(
    run: TrialRun, driver: Driver, context: LaunchContext, files: tuple[Path, ...], data_dir: Path
) -> Json:
    step, trial = run.trial.before, run.trial
    if step is None:
        return {}
    values = places(files, data_dir, trial.max_seconds, context.folders)
    argv = [program_path(run.request, step.program), *fill_all(step.arguments, values, files)]
    argv.append("--no-handshake")
    command, cgroup = _step_command(step, run.cleanup, driver, context, argv)
    begin = time.monotonic()
    done = run_process(command, check=False, timeout_seconds=trial.timeout_seconds)
    seconds, charged_to = time.monotonic() - begin, None if cgroup is None else str(cgroup)
    kept = {
        "argv": argv,
        "slice": charged_to,
        "exit_status": done.status,
        "seconds": seconds,
        "resident_bytes_after": sum(map(resident_bytes, files)),
        "charged_bytes": {
            str(one): (read_counters(one, "memory.stat")["memory.stat"] or {}).get("file")
            for one in dict.fromkeys(filter(None, (context.processes.cgroup, cgroup)))
        },
    }
    evidence: Json = {"charged_to": charged_to, "step": kept}
    run.keep("cache", **evidence)
    if done.status == CANNOT:
        reason = f"{step.program} (step before): {last_line(done.stderr)}"
        raise RequirementMissed.of(Requirement.WORKLOAD, reason)
    if done.status != 0:
        reason = f"ended with status {done.status}: {last_line(done.stderr)}"
        raise NotPrepared(f"the step before ({step.program}) {reason}")
    if trial.cache == "resident":
        found = [measure_residency(path) for path in files]
        evidence |= _residency(found)
        run.keep("cache", **evidence)
        _require(trial.cache, found)
    return evidence


def _step_command(
    step: SetupStep, cleanup: ExitStack, driver: Driver, context: LaunchContext, argv: list[str]
) -> tuple[list[str], Cgroup | None]:
    if not driver.has_slice:
        return driver.command(context, argv), None
    stem, unit, cgroup = context.unit.removesuffix(".slice"), context.unit, context.cgroup
    if step.slice != "same":
        # A sibling with the same limits that lives as long.
        unit = f"{stem}.before.slice"
        cleanup.callback(context.maker.remove, unit)
        cgroup = context.maker.make(unit, context.cage, context.disk, context.disks)
    name = stem.replace("pagecage-", "pagecage-step-")
    return context.maker.enter_command(unit, argv, name), cgroup
