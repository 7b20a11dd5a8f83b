"""A trial, phase by phase: prepare the host, make the cage, measure the workload.

Each phase leaves to the cleanup stack whatever it starts, and keeps its part of the record at once.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pagecage.agent.cache_state import all_resident_bytes, reach_cache_state, run_setup_step
from pagecage.agent.caging import (
    Caged,
    ProgramFiles,
    keep_imposed_limits,
    make_cage,
    prepare_driver,
)
from pagecage.agent.data_files import make_dataset
from pagecage.agent.disks import check_disks, prepare_disks, require_cgroup_writeback
from pagecage.agent.drivers.driver import Driver
from pagecage.agent.host_settings import (
    calibrate,
    calibrate_disks,
    limit_dirty_pages,
    prepare_settings,
    require_distinct,
    reserve_memory,
    set_queue_settings,
)
from pagecage.agent.prepared_data import prepare_data
from pagecage.agent.programs.program import Program, keep_around
from pagecage.agent.programs.registry import program_of
from pagecage.agent.responses import responses
from pagecage.agent.storage import Storage, prepare_storage
from pagecage.agent.trial_collectors import TrialCollectors, require_scripts
from pagecage.agent.trial_run import NotPrepared, RequirementMissed, TrialRun
from pagecage.errors import HostError
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
    """The host made ready for a trial."""

    program: Program
    driver: Driver
    storage: Storage
    files: ProgramFiles


def run_phases(run: TrialRun) -> None:
    """Run a trial from its requirements to its totals.

    Raises RequirementMissed or NotPrepared if there is nothing to measure; any other exception is a
    failure.
    """
    prepared = prepare(run)
    caged, collectors = cage(run, prepared)
    launched = time.monotonic()
    with run.announced("run"):
        measure(run, prepared.program, caged)
    with run.announced("stop"):
        collectors.stop(traced_since=launched)
    with run.announced("totals"):
        keep_totals(run, caged)


def prepare(run: TrialRun) -> Prepared:
    """Check the requirements.

    Make ready the driver, the disk, the files, the host's settings and the page cache.
    """
    with run.announced("requirements"):
        facts, trial = run.session.facts, run.trial
        if missed := check_trial(facts, trial) + check_disks(facts, trial.cage):
            raise RequirementMissed(missed)
        require_scripts(run)
    with run.announced("driver"):
        driver = prepare_driver(run)
    with run.announced("storage"):
        storage = prepare_disks(run, prepare_storage(run))
    program = program_of(run.trial)
    with run.announced("data"):
        prepare_data(run, storage, partial(_make_datasets, run, storage))
    with run.announced("dataset"):
        files = program.find_files(run, storage, _make_datasets(run, storage))
        require_distinct(storage, files.disk.maj_min)
        require_cgroup_writeback(run, storage, files.disk)
    with run.announced("queue_settings"):
        set_queue_settings(run, storage, files)
        prepare_settings(run, storage)
    with run.announced("calibrate"):
        slice_cage = driver.slice_cage(run.trial.cage.cgroup_part)
        driven = run.trial.cage if storage.volume else slice_cage
        read_from = program.calibration_file(run, storage, files, driven)
        calibrate(run, storage, files.disk, slice_cage, read_from)
        calibrate_disks(run, storage)
    with run.announced("memory"):
        reserve_memory(run)
    with run.announced("dirty"):
        limit_dirty_pages(run)
    with run.announced("cache"):
        reach_cache_state(run, files)
    return Prepared(program, driver, storage, files)


def _make_datasets(run: TrialRun, storage: Storage) -> tuple[Path, ...]:
    """Make the datasets as the user who will read them.

    Raises NotPrepared if they cannot be made.
    """
    pcgen = Path(run.session.request.programs_dir) / "pcgen"
    try:
        return tuple(
            make_dataset(dataset, storage.data_dir, pcgen) for dataset in run.trial.datasets
        )
    except HostError as error:
        raise NotPrepared(error.message) from None


def cage(run: TrialRun, prepared: Prepared) -> tuple[Caged, TrialCollectors]:
    """Make the slice with its limits, run the setup step in it, and start the collectors."""
    driver, storage, files = prepared.driver, prepared.storage, prepared.files
    with run.announced("slice"):
        context = make_cage(
            run,
            driver,
            storage,
            files,
            inherits_environment=prepared.program.inherits_environment,
            is_gated=prepared.program.is_gated,
        )
    with run.announced("before"):
        run_setup_step(run, driver, context, files.paths, storage.data_dir)
    with run.announced("collectors"):
        keep_around(run, context, "before")
        collectors = TrialCollectors(run, context, files.paths)
        collectors.start()
    caged = Caged(
        driver,
        context,
        files.paths,
        storage.data_dir,
        collectors.sampler,
        collectors.controllers,
        storage.volume,
        storage.disks,
    )
    return caged, collectors


def measure(run: TrialRun, program: Program, caged: Caged) -> None:
    """Run the workload, judge its end, and keep the responses."""
    measured = program.measure(run, caged)
    ending = program.judge(run, measured)
    run.ending = replace(ending, phase=None if ending.has_answer else "run")
    found = responses(run.trial, ending.outcome, measured, caged.disk.maj_min, caged.sampler.rows())
    run.keep("response", **found)


def keep_totals(run: TrialRun, caged: Caged) -> None:
    """Keep the counters over the whole life, and the bytes that are resident now."""
    run.keep("counters", totals=caged.context.processes.counters())
    keep_around(run, caged.context, "after")
    keep_imposed_limits(run, caged.context)
    if caged.files:
        run.keep("cache", resident_bytes_after=all_resident_bytes(caged.files))
