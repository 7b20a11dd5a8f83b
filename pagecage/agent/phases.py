"""A trial, phase by phase: prepare the host, make the cage, measure the workload.

Each phase leaves to the cleanup stack whatever it starts, and keeps its part of the record at once.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pagecage.agent.cache_state import all_resident_bytes, reach_cache_state, run_setup_step
from pagecage.agent.caging import Caged, ProgramFiles, make_cage, prepare_driver
from pagecage.agent.drivers.driver import Driver, LaunchContext
from pagecage.agent.host_settings import (
    calibrate,
    limit_dirty_pages,
    limit_memory,
    set_queue_settings,
)
from pagecage.agent.prepared_data import prepare_data
from pagecage.agent.programs.registry import PROGRAMS, Program
from pagecage.agent.responses import responses
from pagecage.agent.storage import (
    Storage,
    check_disks,
    prepare_storage,
    require_cgroup_writeback,
    require_distinct,
)
from pagecage.agent.trial_collectors import TrialCollectors, require_scripts
from pagecage.agent.trial_run import RequirementMissed, TrialRun
from pagecage.linux import procfs
from pagecage.model.record_sections import cpu_usec
from pagecage.model.requirements import check_trial

PHASES = (
    "requirements",
    "driver",
    "storage",
    "data",
    "dataset",
    "queue_settings",
    "calibrate",
    "memory",
    "dirty",
    "cache",
    "slice",
    "before",
    "collectors",
    "run",
    "stop",
    "totals",
)
"""Phases of a record, in order; `cleanup` follows."""


@dataclass(frozen=True)
class Prepared:
    """The host made ready for a trial. `cache` is the evidence of the page cache's state."""

    program: Program
    driver: Driver
    storage: Storage
    files: ProgramFiles
    cache: Mapping[str, Any]


def run_phases(run: TrialRun) -> None:
    """Run all phases. Raises RequirementMissed or NotPrepared if there is nothing to measure."""
    prepared = prepare(run)
    caged, collectors, around = cage(run, prepared)
    launched = time.monotonic()
    with run.announced("run"):
        found = measure(run, prepared.program, caged)
    with run.announced("stop"):
        collectors.stop(traced_since=launched, found=found)
    with run.announced("totals"):
        run.keep("counters", totals=caged.context.processes.counters())
        run.keep("counters", around={"before": around, "after": _cpu_times(caged.context)})
        caged.limits.keep_imposed_again(caged.context)
        if caged.files:
            run.keep("cache", resident_bytes_after=all_resident_bytes(caged.files))


def prepare(run: TrialRun) -> Prepared:
    trial, facts = run.trial, run.session.facts
    with run.announced("requirements"):
        if missed := check_trial(facts, trial) + check_disks(facts, trial.cage):
            raise RequirementMissed(missed)
        require_scripts(run)
    with run.announced("driver"):
        driver, provided = prepare_driver(run)
    with run.announced("storage"):
        storage = prepare_storage(run, provided)
    program = PROGRAMS[trial.workload.kind](run)
    with run.announced("data"):
        storage = prepare_data(run, storage)
    with run.announced("dataset"):
        datasets = tuple(run.make_dataset(one, storage.data_dir) for one in trial.datasets)
        files = program.find_files(storage, datasets)
        require_distinct(storage, files.disk.maj_min)
        require_cgroup_writeback(trial.cage, storage, files.disk)
    with run.announced("queue_settings"):
        set_queue_settings(run, storage, files)
    with run.announced("calibrate"):
        slice_cage = driver.slice_cage(trial.cage.cgroup_part)
        driven = trial.cage if storage.volume else slice_cage
        read_from = program.calibration_file(storage, files, driven)
        calibrate(run, storage, files.disk, slice_cage, read_from)
    with run.announced("memory"):
        limit_memory(run)
    with run.announced("dirty"):
        limit_dirty_pages(run)
    with run.announced("cache"):
        cache = reach_cache_state(run, files)
    return Prepared(program, driver, storage, files, cache)


def cage(run: TrialRun, prepared: Prepared) -> tuple[Caged, TrialCollectors, dict[str, Any]]:
    """Make the slice with its limits, run the setup step in it, and start the collectors.

    The last value is the CPU time of all before the collectors start.
    """
    program, driver, storage = prepared.program, prepared.driver, prepared.storage
    files = prepared.files.paths
    with run.announced("slice"):
        context, limits = make_cage(
            run,
            driver,
            storage,
            prepared.files,
            inherits_environment=program.inherits_environment,
            is_gated=program.is_gated,
        )
    with run.announced("before"):
        cache = {**prepared.cache, **run_setup_step(run, driver, context, files, storage.data_dir)}
    with run.announced("collectors"):
        around = _cpu_times(context)
        run.keep("counters", around={"before": around})
        collectors = TrialCollectors(run, context, files, storage.data_directory)
        collectors.start()
    running = collectors.sampler, collectors.controllers
    return Caged(driver, context, storage, files, limits, cache, *running), collectors, around


def _cpu_times(context: LaunchContext) -> dict[str, Any]:
    """Return the CPU time of all before the collectors start, or after they have stopped.

    Ticks of 10 ms do not show who was busy in a short measured part, but in the time around it.
    """
    return {
        "monotonic_seconds": time.monotonic(),
        "trial_cpu_usec": cpu_usec(context.processes.counters()),
        "agent_cpu_usec": round(1e6 * time.process_time()),
        "stat": procfs.read_host()["stat"],
    }


def measure(run: TrialRun, program: Program, caged: Caged) -> dict[str, float | None]:
    measured = program.measure(caged)
    ending = program.judge(measured)
    run.ending = replace(ending, phase=None if ending.has_answer else "run")
    rows = caged.sampler.rows()
    found = responses(run.trial, ending.outcome, measured, caged.disk.maj_min, rows)
    run.keep("response", **found)
    return found
