"""A trial, phase by phase. Each phase is one small function; whatever it starts it also leaves to the cleanup stack."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from pagecage.agent import cgroupfs
from pagecage.agent.attempt import Attempt, NotPrepared, RequirementMissed
from pagecage.agent.collectors.collector import Collector, Outcome, Surroundings
from pagecage.agent.collectors.sampler import Sampler
from pagecage.agent.collectors.sysstat import Iostat, Sar
from pagecage.agent.collectors.vmtouch import Vmtouch
from pagecage.agent.dataset import make_dataset
from pagecage.agent.facts import describe_disk
from pagecage.agent.pagecache import evict, load, measure_residency
from pagecage.agent.systemd import start_slice, stop_slice, unit_name
from pagecage.agent.workload_run import run_workload
from pagecage.cage import expected_read_back, limits_not_in_force
from pagecage.errors import HostError, PagecageError
from pagecage.requirements import Missed, Requirement, check_trial

_COLLECTORS: dict[str, Callable[[Surroundings], Collector]] = {"iostat": Iostat, "sar": Sar, "vmtouch": Vmtouch}


def check_requirements(attempt: Attempt) -> None:
    """Refuse what this host cannot do, before anything is touched."""
    missed = check_trial(attempt.bench.facts, attempt.trial)
    if missed:
        raise RequirementMissed(missed)


def prepare_dataset(attempt: Attempt) -> None:
    """Have the file there, whole, made by the user who will read it."""
    if attempt.trial.dataset is None:
        return
    request = attempt.bench.request
    pcgen = Path(request.programs_dir) / "pcgen"
    try:
        attempt.dataset = make_dataset(attempt.trial.dataset, Path(request.data_dir), pcgen)
    except HostError as error:
        raise NotPrepared(error.message) from None


def set_knobs(attempt: Attempt) -> None:
    """Set read-ahead, remembering what to restore, and note every queue setting."""
    disk, wanted = attempt.bench.disk, attempt.trial.read_ahead_kb
    if wanted is not None:
        attempt.cleanup.callback(_restore_knobs, attempt)
        attempt.bench.knobs.set(disk, "read_ahead_kb", str(wanted))
    attempt.device = describe_disk(disk)


def _restore_knobs(attempt: Attempt) -> None:
    """What could not be put back is told: the disk stays changed."""
    for sentence in attempt.bench.knobs.restore():
        attempt.error = f"{attempt.error or ''} {sentence}".strip()


def calibrate(attempt: Attempt) -> None:
    """Over-drive the cage's caps, the first time that this machine state meets it; on a machine at rest."""
    attempt.bench.tracer.wait_until_attached()
    attempt.cage["calibration"] = dict(attempt.bench.calibrator.calibrate(attempt.trial.cage, attempt.dataset))


def reach_cache_state(attempt: Attempt) -> None:
    """Empty or fill the page cache for the dataset, and believe only the measurement."""
    state, path = attempt.trial.cache, attempt.dataset
    attempt.cache = {"requested": state, "charged_to": None}
    if path is None:
        return
    residency = measure_residency(path) if state == "any" else evict(path)
    if state == "resident":
        residency = load(path)
        attempt.cache["charged_to"] = str(cgroupfs.own_cgroup())
    attempt.cache |= {
        "method": residency.method, "file_bytes": residency.file_bytes,
        "resident_bytes_before": residency.resident_bytes, "resident_bytes_after": None,
    }  # fmt: skip
    if (state == "cold" and not residency.is_empty) or (state == "resident" and not residency.is_full):
        raise NotPrepared(f"{residency.resident_bytes} of {residency.file_bytes} bytes are resident, not {state}")


def prepare_slice(attempt: Attempt) -> None:
    """Make the slice with the limits on it, read them back, and begin sampling it."""
    bench, trial = attempt.bench, attempt.trial
    attempt.unit = unit_name(trial.trial_id, attempt.number)
    attempt.cleanup.callback(stop_slice, bench.systemd, attempt.unit)
    attempt.cgroup = start_slice(bench.systemd, attempt.unit, trial.cage, bench.disk.node)
    maj_min = bench.disk.maj_min
    attempt.cage |= {
        "name": trial.cage.name, "requested": dict(trial.cage.properties), "slice": str(attempt.cgroup),
        "expected": expected_read_back(trial.cage), "read_back": cgroupfs.read_limits(attempt.cgroup, maj_min),
        "ancestors": {str(above): cgroupfs.read_limits(above, maj_min) for above in cgroupfs.ancestors(attempt.cgroup)},
    }  # fmt: skip
    _require_read_back(attempt)


def _require_read_back(attempt: Attempt) -> None:
    """systemd starts a unit even when it could not apply a limit (a journal line at most), so ask the kernel."""
    wrong = limits_not_in_force(attempt.cage["expected"], attempt.cage["read_back"], attempt.cage["ancestors"])
    if wrong:
        raise RequirementMissed(
            [Missed(Requirement.LIMITS, f"limits are not as asked: {'; '.join(wrong)}", "pagecage doctor")]
        )


def start_collectors(attempt: Attempt) -> None:
    """Start every collector asked for and return when each one records or has failed."""
    assert attempt.cgroup is not None
    around = Surroundings(
        attempt.directory, attempt.bench.disk, attempt.cgroup, attempt.dataset, attempt.bench.children
    )
    attempt.sampler = Sampler(around)
    names = [name for name in attempt.trial.collectors if name in _COLLECTORS]
    attempt.collectors = [attempt.sampler, *(_COLLECTORS[name](around) for name in names)]
    attempt.cleanup.callback(stop_collectors, attempt)
    for collector in attempt.collectors:
        collector.start()
    for collector in attempt.collectors:
        collector.wait_until_recording()


def measure(attempt: Attempt) -> None:
    """Run the workload in the slice, with the counters read around its measured part."""
    begin = time.monotonic()
    if "bpftrace" in attempt.trial.collectors:
        attempt.bench.tracer.wait_for_tick()
    run_workload(attempt)
    if "bpftrace" in attempt.trial.collectors:
        _take_trace(attempt, begin)


def _take_trace(attempt: Attempt, begin: float) -> None:
    if attempt.dataset is None:
        attempt.collected["bpftrace"] = Outcome("missing", "the trial has no dataset")
        return
    tracer = attempt.bench.tracer
    tracer.wait_for_tick()
    inode, path = attempt.dataset.stat().st_ino, attempt.directory / "bpftrace.jsonl"
    attempt.collected["bpftrace"] = tracer.excerpt(inode, begin, path)


def stop_collectors(attempt: Attempt) -> None:
    """End the collectors, once, and keep what each says of itself."""
    while attempt.collectors:
        collector = attempt.collectors.pop()
        try:
            attempt.collected[collector.name] = collector.stop()
        except (PagecageError, OSError, RuntimeError) as error:
            attempt.collected[collector.name] = Outcome("failed", f"it could not be stopped properly: {error}")


def read_totals(attempt: Attempt) -> None:
    """What the slice counted in all, the evidence of an OOM kill among it, and what is resident now."""
    assert attempt.cgroup is not None
    attempt.counters["totals"] = {"cgroup": cgroupfs.read_counters(attempt.cgroup)}
    if attempt.dataset is not None:
        attempt.cache["resident_bytes_after"] = measure_residency(attempt.dataset).resident_bytes


PHASES: tuple[tuple[str, Callable[[Attempt], None]], ...] = (
    ("requirements", check_requirements),
    ("dataset", prepare_dataset),
    ("knobs", set_knobs),
    ("calibrate", calibrate),
    ("cache", reach_cache_state),
    ("slice", prepare_slice),
    ("collectors", start_collectors),
    ("run", measure),
    ("stop", stop_collectors),
    ("totals", read_totals),
)
