"""A trial, phase by phase. Each phase is one small function; whatever it starts it also leaves to the cleanup stack."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from pagecage.agent.cache_state import all_resident_bytes, reach_cache_state, run_before
from pagecage.agent.caging import prepare_driver, prepare_slice
from pagecage.agent.collectors.blocklat import responses_of
from pagecage.agent.collectors.collector import Collector, CollectorContext, CollectorResult
from pagecage.agent.collectors.sampler import Sampler
from pagecage.agent.collectors.sysstat import Iostat, Sar
from pagecage.agent.collectors.vmtouch import Vmtouch
from pagecage.agent.data_files import make_dataset
from pagecage.agent.limits.calibrate import Calibrator
from pagecage.agent.limits.fidelity import (
    Fidelity,
    count_as_provider,
    floor_us,
    latency,
    why_no_floor,
    why_not_shared,
)
from pagecage.agent.limits.io_max_controller import IoMaxController, rewrites_io_max
from pagecage.agent.programs.command import run_command
from pagecage.agent.programs.command_prepare import calibration_file, prepare_command
from pagecage.agent.programs.workload_run import run_workload
from pagecage.agent.system import cgroupfs
from pagecage.agent.system.block_device import layers_with_queue, resolve_disk
from pagecage.agent.system.facts import describe_disk
from pagecage.agent.system.memory_reservation import OF_OURS, MemoryReservation
from pagecage.agent.system.settings import DirtyLimits, QueueSettingsJournal
from pagecage.agent.system.trial_storage import TrialStorage, make_storage, read_latency_us, remove_storage
from pagecage.agent.trial_run import NotPrepared, RequirementMissed, TrialRun
from pagecage.errors import HostError, PagecageError
from pagecage.model.requirements import MissedRequirement, Requirement, check_trial

_COLLECTORS: dict[str, Callable[[CollectorContext], Collector]] = {"iostat": Iostat, "sar": Sar, "vmtouch": Vmtouch}


_MOST_FILES = 64  # files whose residency is looked at while they are read; a look at thousands would be the load


def check_requirements(attempt: TrialRun) -> None:
    """Refuse what this host cannot do, before anything is touched."""
    missed = check_trial(attempt.bench.facts, attempt.trial)
    if missed:
        raise RequirementMissed(missed)


def prepare_storage(attempt: TrialRun) -> None:
    """Make the disk that the trial asks for, or one as slow to answer as its cage's, where that can be had."""
    trial = attempt.trial
    if trial.storage == "container_layer":
        attempt.made_storage = _beside_layers(attempt)
        attempt.storage = trial.storage
    elif trial.storage != "data":
        try:
            _make_storage(attempt, trial.storage, trial.storage_latency_us or 0)
        except (PagecageError, OSError) as error:
            reason = f"no {trial.storage} here: {getattr(error, 'message', None) or error}"
            raise RequirementMissed([MissedRequirement(Requirement.STORAGE, reason, "")]) from None
    elif latency_us := floor_us(trial.cage):
        attempt.no_floor_because = why_no_floor(trial, OF_OURS.exists())
        if not attempt.no_floor_because:
            _make_slow_storage(attempt, latency_us)


def _make_storage(attempt: TrialRun, kind: str, latency_us: int) -> None:
    spool = attempt.bench.request.spool
    attempt.cleanup.callback(remove_storage, spool)
    data_bytes = attempt.trial.dataset_bytes + attempt.trial.writes_bytes
    attempt.made_storage = make_storage(kind, latency_us, data_bytes, spool)
    attempt.storage, attempt.storage_latency_us = kind, latency_us


def _beside_layers(attempt: TrialRun) -> TrialStorage:
    """A folder on the disk where the engine keeps the layers of containers, from which a container's can link."""
    folder = Path(attempt.cage["driver"]["engine"]["data_root"]) / "pagecage-data"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return TrialStorage(resolve_disk(folder), folder)
    except PagecageError as error:
        raise RequirementMissed([MissedRequirement(Requirement.STORAGE, error.message, error.hint)]) from None


def _make_slow_storage(attempt: TrialRun, latency_us: int) -> None:
    """A latency that cannot be had is told, and the trial runs without it."""
    try:
        _make_storage(attempt, "null_blk", latency_us)
    except (PagecageError, OSError) as error:
        attempt.no_floor_because = getattr(error, "message", None) or str(error)


def prepare_dataset(attempt: TrialRun) -> None:
    """Have the files there, whole, made by the user who will read them; and what a command brings of its own."""
    pcgen = Path(attempt.bench.request.programs_dir) / "pcgen"
    try:
        attempt.datasets = tuple(make_dataset(d, attempt.data_dir, pcgen) for d in attempt.trial.datasets)
    except HostError as error:
        raise NotPrepared(error.message) from None
    if attempt.trial.workload.kind == "command":
        prepare_command(attempt)


def set_queue_settings(attempt: TrialRun) -> None:
    """Set read-ahead, remembering what to restore, and note every queue setting and how long a read takes.

    Of a stack every layer is set: a file's read-ahead is that of the device its file system lies on, the topmost.
    """
    disk, wanted = attempt.disk, attempt.trial.read_ahead_kb
    if wanted is not None:
        attempt.cleanup.callback(_put_back, attempt, attempt.bench.settings)
        for layer in layers_with_queue(disk):
            attempt.bench.settings.set(layer, "read_ahead_kb", str(wanted))
    counted = _count_as_provider(attempt)
    attempt.device = {
        **describe_disk(disk), "storage": attempt.storage, "storage_latency_us": attempt.storage_latency_us,
        "read_latency_us": read_latency_us(attempt.dataset) if attempt.dataset else None,
    }  # fmt: skip
    wanted_latency, found_us = attempt.trial.cage.latency, attempt.device["read_latency_us"]
    if wanted_latency:
        counted.append(latency(wanted_latency, attempt.storage_latency_us, found_us, attempt.no_floor_because))
    if counted:
        attempt.cage["fidelity"] = [one.to_json() for one in counted]


def _count_as_provider(attempt: TrialRun) -> list[Fidelity]:
    accounting, journal = attempt.trial.cage.accounting, attempt.bench.settings
    if accounting is None:
        return []
    attempt.cleanup.callback(_put_back, attempt, journal)
    return count_as_provider(accounting, attempt.disk, journal, why_not_shared(attempt.trial.cage, attempt.bench.facts))


def _put_back(attempt: TrialRun, journal: QueueSettingsJournal | MemoryReservation | DirtyLimits) -> None:
    """What could not be put back is told: the disk, or the machine, stays changed."""
    for sentence in journal.restore():
        attempt.error = f"{attempt.error or ''} {sentence}".strip()


def calibrate(attempt: TrialRun) -> None:
    """Over-drive the cage's caps, the first time that this machine state meets it; on a machine at rest."""
    for tracer in (attempt.bench.tracer, attempt.bench.block_tracer):
        tracer.wait_until_attached()
    bench, calibrator = attempt.bench, attempt.bench.calibrator.on(attempt.disk)
    if attempt.made_storage:
        calibrator = Calibrator(bench.systemd, attempt.disk, attempt.data_dir, bench.interruption)
    is_command = attempt.trial.workload.kind == "command" and not attempt.made_storage
    carried = attempt.driver.on_slice(attempt.trial.cage)
    read_from = calibration_file(attempt, carried) if is_command else attempt.dataset
    attempt.cage["calibration"] = dict(calibrator.calibrate(carried, read_from))


def take_memory(attempt: TrialRun) -> None:
    """Leave the machine only as much memory as the trial says; only a guest of ours, since others would miss it."""
    wanted = attempt.trial.machine_memory_bytes
    if wanted is None:
        return
    with _guest_changed(attempt, attempt.bench.memory, Requirement.MACHINE_MEMORY, "memory is taken away only from"):
        attempt.machine_memory = attempt.bench.memory.leave(wanted)


@contextmanager
def _guest_changed(
    attempt: TrialRun, journal: MemoryReservation | DirtyLimits, requirement: Requirement, only: str
) -> Iterator[None]:
    """Within it a setting of the whole machine is changed, put back after the trial; `only` begins the refusal."""
    if not OF_OURS.exists():
        reason = f"{only} a guest that pagecage made, and this machine is none"
        raise RequirementMissed([MissedRequirement(requirement, reason, "use HOST=vm")])
    attempt.cleanup.callback(_put_back, attempt, journal)
    try:
        yield
    except HostError as error:
        raise RequirementMissed([MissedRequirement(requirement, error.message, error.hint)]) from None


def limit_dirty_pages(attempt: TrialRun) -> None:
    """Set how much may wait to be written, where the trial says it, and note what is in force in any case.

    Only in a guest of ours: whatever else a machine writes would wait as well.
    """
    wanted, limits = dict(attempt.trial.dirty_limits), attempt.bench.dirty_limits
    attempt.dirty_limits = {"requested": wanted, "in_force": limits.read()}
    if not wanted:
        return
    with _guest_changed(attempt, limits, Requirement.DIRTY_LIMITS, "vm.dirty_bytes is set only in"):
        attempt.dirty_limits["in_force"] = limits.set(wanted)


def start_collectors(attempt: TrialRun) -> None:
    """Start every collector asked for and return when each one records or has failed."""
    assert attempt.cgroup is not None
    files = attempt.datasets if len(attempt.datasets) <= _MOST_FILES else ()
    around = CollectorContext(attempt.directory, attempt.disk, attempt.cgroup, files, attempt.bench.children)
    attempt.sampler = Sampler(around)
    names = [name for name in attempt.trial.collectors if name in _COLLECTORS]
    attempt.collectors = [attempt.sampler, *(_COLLECTORS[name](around) for name in names)]
    if rewrites_io_max(attempt.trial.cage, attempt.bench.facts):  # last, so that it begins when the others record
        attempt.credits = IoMaxController(around, attempt.trial.cage)
        attempt.collectors.append(attempt.credits)
    attempt.cleanup.callback(stop_collectors, attempt)
    for collector in attempt.collectors:
        collector.start()
    for collector in attempt.collectors:
        collector.wait_until_recording()


def measure(attempt: TrialRun) -> None:
    """Run the workload in the slice, with the counters read around its measured part."""
    begin, attempt.launched_boot_ns = time.monotonic(), time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    if attempt.trial.workload.kind == "command":
        run_command(attempt)
    else:
        run_workload(attempt)
    attempt.traced_since = begin


def _take_trace(attempt: TrialRun, begin: float) -> CollectorResult:
    if not attempt.datasets:
        return CollectorResult("missing", "the trial has no dataset")
    tracer = attempt.bench.tracer
    tracer.wait_for_tick()
    inodes, path = {file.stat().st_ino for file in attempt.datasets}, attempt.directory / "bpftrace.jsonl"
    return tracer.excerpt(inodes, begin, path)


def _take_block_trace(attempt: TrialRun, begin: float) -> CollectorResult:
    """The trace of the disk's writes, and what it says of the measured part, beside the other responses."""
    tracer, measured = attempt.bench.block_tracer, attempt.measured
    tracer.wait_for_tick()
    path = attempt.directory / "blocklat.jsonl"
    outcome, rows = tracer.excerpt(attempt.disk.maj_min, begin, path)
    if measured and attempt.response:
        start = measured["start_monotonic_seconds"]
        attempt.response |= responses_of(rows, start, start + measured["seconds"])
    return outcome


_TRACES = {"bpftrace": _take_trace, "blocklat": _take_block_trace}


def stop_collectors(attempt: TrialRun) -> None:
    """End the collectors, once and all at the same time, and keep what each says of itself.

    Each waits for a tool to end or for a tracer's next tick. One after the other they take an emulated CPU a second.
    """
    ends = {collector.name: collector.stop for collector in attempt.collectors}
    attempt.collectors = []
    if attempt.traced_since is not None:
        since, attempt.traced_since = attempt.traced_since, None
        wanted = (name for name in _TRACES if name in attempt.trial.collectors)
        ends |= {name: partial(_TRACES[name], attempt, since) for name in wanted}
    if ends:
        with attempt.bench.interruption.held(), ThreadPoolExecutor(len(ends)) as pool:
            attempt.collected |= dict(zip(ends, pool.map(_ended, ends.values()), strict=True))


def _ended(end: Callable[[], CollectorResult]) -> CollectorResult:
    try:
        return end()
    except (PagecageError, OSError, RuntimeError) as error:
        return CollectorResult("failed", f"it could not be stopped properly: {error}")


def read_totals(attempt: TrialRun) -> None:
    """What the slice counted in all, the evidence of an OOM kill among it, and what is resident now."""
    assert attempt.cgroup is not None
    attempt.counters["totals"] = {"cgroup": cgroupfs.read_counters(attempt.cgroup)}
    if attempt.datasets:
        attempt.cache["resident_bytes_after"] = all_resident_bytes(attempt.datasets)


PHASES: tuple[tuple[str, Callable[[TrialRun], None]], ...] = (
    ("requirements", check_requirements),
    ("driver", prepare_driver),
    ("storage", prepare_storage),
    ("dataset", prepare_dataset),
    ("queue_settings", set_queue_settings),
    ("calibrate", calibrate),
    ("memory", take_memory),
    ("dirty", limit_dirty_pages),
    ("cache", reach_cache_state),
    ("slice", prepare_slice),
    ("before", run_before),
    ("collectors", start_collectors),
    ("run", measure),
    ("stop", stop_collectors),
    ("totals", read_totals),
)
