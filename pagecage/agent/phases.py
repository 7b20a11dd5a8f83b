"""A trial, phase by phase: prepare the host, make the cage, measure the workload.

Each phase leaves to the cleanup stack whatever it starts, and keeps its part of the record at once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pagecage.agent.cache_state import reach_cache_state, run_setup_step
from pagecage.agent.caging import Caged, ProgramFiles, make_cage, prepare_driver
from pagecage.agent.drivers.driver import Driver, LaunchContext
from pagecage.agent.facts import describe_disk
from pagecage.agent.limits.calibration import SCRATCH, Calibrator, remove_scratch
from pagecage.agent.limits.fidelity import (
    Fidelity,
    count_as_provider,
    no_latency,
    not_shared_reason,
    volume_fidelity,
)
from pagecage.agent.prepared_data import prepare_data
from pagecage.agent.programs.registry import PROGRAMS, Program
from pagecage.agent.responses import responses
from pagecage.agent.settings import OF_OURS, DirtyLimits, MemoryReservation
from pagecage.agent.storage import (
    Storage,
    check_disks,
    prepare_storage,
    require_cgroup_writeback,
    require_distinct,
)
from pagecage.agent.trial_collectors import TrialCollectors, require_scripts
from pagecage.agent.trial_run import TrialRun
from pagecage.errors import HostError
from pagecage.linux import procfs
from pagecage.linux.block_device import layers_with_queue, read_latency_us
from pagecage.linux.page_cache import resident_bytes
from pagecage.linux.processes import kernel_threads_usec
from pagecage.model.cage import DATA_DISK, Cage
from pagecage.model.json_codec import Json, JsonView
from pagecage.model.record_sections import cpu_usec
from pagecage.model.requirements import Requirement, RequirementMissed, check_trial
from pagecage.model.trial import Dataset
from pagecage.units import MIB

PHASES = (
    *("requirements", "driver", "storage", "data", "dataset", "queue_settings", "calibrate"),
    *("memory", "dirty", "cache", "slice", "before", "collectors", "run", "stop", "totals"),
)
"""Phases of a record, in order; `cleanup` follows."""
_READ_FROM = Dataset(64 * MIB)
"""The file on another disk from which calibration reads."""


@dataclass(frozen=True)
class Prepared:
    """The host made ready for a trial. `cache` is the evidence of the page cache's state."""

    program: Program
    driver: Driver
    storage: Storage
    files: ProgramFiles
    cache: JsonView


def run_phases(run: TrialRun) -> None:
    """Run all phases. Raises RequirementMissed or NotPrepared if there is nothing to measure."""
    prepared = prepare(run)
    caged, collectors, around = cage(run, prepared)
    launched = time.monotonic()
    with run.announced("run"):
        found = measure(prepared.program, caged)
    with run.announced("stop"):
        collectors.stop(traced_since=launched, found=found)
    with run.announced("totals"):
        run.keep("counters", totals=caged.context.processes.counters())
        run.keep("counters", around={"before": around, "after": _cpu_times(caged.context)})
        caged.limits.keep_imposed_again(caged.context)
        if caged.files:
            run.keep("cache", resident_bytes_after=sum(map(resident_bytes, caged.files)))


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
        storage = storage.measured_on(files.disk)
        require_distinct(storage)
        require_cgroup_writeback(trial.cage, storage)
    with run.announced("queue_settings"):
        set_queue_settings(run, storage, files)
    with run.announced("calibrate"):
        slice_cage = driver.slice_cage(trial.cage.cgroup_part)
        driven = trial.cage if storage.data.volume else slice_cage
        calibrate(run, storage, slice_cage, program.calibration_file(storage, files, driven))
    with run.announced("memory"):
        wanted, memory = run.trial.machine_memory_bytes, run.session.memory
        if wanted is not None:
            refusal = "memory is taken away only from"
            with _changing_guest(run, memory, Requirement.MACHINE_MEMORY, refusal):
                run.keep("machine_memory", **memory.leave(wanted))
    with run.announced("dirty"):
        limit_dirty_pages(run)
    with run.announced("cache"):
        cache = reach_cache_state(run, files)
    return Prepared(program, driver, storage, files, cache)


def set_queue_settings(run: TrialRun, storage: Storage, files: ProgramFiles) -> None:
    """Set read-ahead and split requests as the provider of each disk counts them.

    Keep all queue settings and the read latency. In a stack of devices every layer is set, since a
    file's read-ahead is that of the topmost device.
    """
    trial, own_disk, journal = run.trial, run.request.own_disk, run.session.settings
    if trial.read_ahead_kb is not None:
        run.restore_after(journal.restore)
        for layer in layers_with_queue(files.disk):
            journal.set(layer, "read_ahead_kb", str(trial.read_ahead_kb))
    for name, one in storage.disks.items():
        cage, found_us, more = trial.cage.on_disk(name), None, Json()
        fidelity: list[Fidelity] = []
        if one.volume:
            fidelity = volume_fidelity(cage, one.volume.path)
        elif cage.accounting:
            run.restore_after(journal.restore)
            reason = not_shared_reason(cage, run.session.facts)
            fidelity = count_as_provider(cage.accounting, one.disk, journal, reason)
        if name == DATA_DISK:
            found_us = read_latency_us(files.paths[0]) if files.paths else None
            is_session_disk = one.disk.maj_min == run.session.disk.maj_min
            more = {
                "read_latency_us": found_us,
                "own_disk": own_disk["file"] if own_disk and is_session_disk else None,
            }
        run.keep("device", name, **describe_disk(one.disk), storage=one.kind, **more)
        if cage.latency and not one.volume:
            fidelity.append(no_latency(cage.latency))
        if fidelity:
            run.keep("cage", name, fidelity=[vars(aspect) for aspect in fidelity])


def calibrate(run: TrialRun, storage: Storage, slice_cage: Cage, read_from: Path | None) -> None:
    """Over-drive the limits of each disk, once per machine state and cage, on an idle host."""
    session, driver = run.session, run.trial.driver
    for tracer in (session.tracer, session.block_tracer):
        tracer.wait_until_attached()
    for name, one in storage.disks.items():
        cage, limits, source, folder = run.trial.cage.on_disk(name), slice_cage, read_from, None
        if name != DATA_DISK:
            limits, source, folder = cage.cgroup_part, None, one.directory
            if any("Read" in prop for prop in cage.properties):
                source = run.make_dataset(_READ_FROM, folder)
            run.cleanup.callback(remove_scratch, folder)
        calibrator = session.calibrator(driver).on(one.disk, folder)
        if one.is_own:
            maker = session.maker(driver)
            calibrator = Calibrator(maker, one.disk, one.directory, session.interruption)
        found = dict(calibrator.calibrate(limits, source))
        if one.volume:
            by_volume, scratch = session.volume_calibrator.calibrate, one.directory / SCRATCH
            found |= by_volume(one.volume, cage, source, scratch)
        run.keep("cage", name, calibration=found)


def limit_dirty_pages(run: TrialRun) -> None:
    """Set the dirty limits of a guest if the trial has any, and keep those in force.

    Raises RequirementMissed. On another machine the limits would slow down every other program that
    writes.
    """
    wanted, limits = dict(run.trial.dirty_limits), run.session.dirty_limits
    run.keep("dirty_limits", requested=wanted, in_force=limits.read())
    if wanted:
        refusal = "vm.dirty_bytes is set only in"
        with _changing_guest(run, limits, Requirement.DIRTY_LIMITS, refusal):
            run.keep("dirty_limits", in_force=limits.set(wanted))


@contextmanager
def _changing_guest(
    run: TrialRun, journal: MemoryReservation | DirtyLimits, requirement: Requirement, refusal: str
) -> Iterator[None]:
    if not OF_OURS.exists():
        reason = f"{refusal} a guest that pagecage made, and this machine is none"
        raise RequirementMissed.of(requirement, reason, "use HOST=vm")
    run.restore_after(journal.restore)
    try:
        yield
    except HostError as error:
        raise RequirementMissed.of(requirement, error.message, error.hint) from None


def cage(run: TrialRun, prepared: Prepared) -> tuple[Caged, TrialCollectors, Json]:
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
    return Caged(run, driver, context, storage, files, limits, cache, *running), collectors, around


def _cpu_times(context: LaunchContext) -> Json:
    """Return CPU times around the measured part, because 10 ms ticks show nobody in a short one."""
    return {
        "monotonic_seconds": time.monotonic(),
        "trial_cpu_usec": cpu_usec(context.processes.counters()),
        "agent_cpu_usec": round(1e6 * time.process_time()),
        "kernel_threads_usec": kernel_threads_usec(),
        "stat": procfs.read_host()["stat"],
    }


def measure(program: Program, caged: Caged) -> dict[str, float | None]:
    run = caged.run
    measured = program.measure(caged)
    ending = program.judge(measured)
    run.ending = replace(ending, phase=None if ending.has_answer else "run")
    rows = caged.sampler.rows()
    found = responses(run.trial, ending.outcome, measured, caged.disk.maj_min, rows)
    run.keep("response", **found)
    return found
