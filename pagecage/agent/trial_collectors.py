"""The collectors of a trial: which of them run, from its first measured moment to its last."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

from pagecage.agent.collectors.blocklat import responses_of
from pagecage.agent.collectors.collector import Collector, CollectorContext, CollectorResult
from pagecage.agent.collectors.custom import OwnCollectorProcess, check_script
from pagecage.agent.collectors.damon import Damon
from pagecage.agent.collectors.perf_mem import PerfMem
from pagecage.agent.collectors.sampler import Sampler
from pagecage.agent.collectors.sysstat import Iostat, Sar
from pagecage.agent.collectors.vmtouch import Vmtouch
from pagecage.agent.drivers.driver import LaunchContext
from pagecage.agent.limits.fidelity import IoMaxController, rewrites_io_max
from pagecage.agent.programs.command import fill_all, own_places, places
from pagecage.agent.trial_run import RequirementMissed, TrialRun
from pagecage.errors import PagecageError
from pagecage.model.cage import DATA_DISK
from pagecage.model.collectors import OwnCollector
from pagecage.model.requirements import MissedRequirement, Requirement
from pagecage.process import find_tool


def own_collectors(
    run: TrialRun, context: CollectorContext, files: tuple[Path, ...]
) -> Iterator[OwnCollectorProcess]:
    """Yield the collectors of the definition, none of them started."""
    data_dir = Path(run.session.request.data_dir)
    values = {**places(files, data_dir, run.trial.max_seconds, {}), **own_places(run)}
    for spec in run.trial.own_collectors:
        argv = fill_all(spec.command, values, files)
        yield OwnCollectorProcess(spec, argv, context, _environment(run, context))


def _environment(run: TrialRun, context: CollectorContext) -> dict[str, str]:
    """Return the variables by which a collector finds the trial."""
    cgroup = context.processes.cgroup
    return {
        "PAGECAGE_TRIAL": run.trial.trial_id,
        "PAGECAGE_CGROUP": str(cgroup) if cgroup else "",
        "PAGECAGE_DISK": context.disk.node,
        "PAGECAGE_DISK_NUMBER": context.disk.maj_min,
    }


def require_scripts(run: TrialRun) -> None:
    """Check the definition's scripts, once per session.

    Raises RequirementMissed for a script that bpftrace cannot attach, and without bpftrace if a
    script is required.
    """
    scripts = [spec for spec in run.trial.own_collectors if spec.is_script]
    if scripts and not find_tool("bpftrace"):
        if any(spec.required for spec in scripts):
            raise RequirementMissed.of(
                Requirement.SCRIPT, "bpftrace is not installed", "pagecage host provision HOST"
            )
        return
    missed = [one for spec in scripts if (one := _missed(run, spec))]
    if missed:
        raise RequirementMissed(missed)


def _missed(run: TrialRun, spec: OwnCollector) -> MissedRequirement | None:
    checked = run.session.checked_scripts
    [path] = fill_all(spec.command, own_places(run), ())
    if path not in checked:
        run.session.stream.event("step", text=f"checking {Path(path).name} with bpftrace")
        checked[path] = check_script(Path(path))
    error = checked[path]
    if error is None:
        return None
    reason = f"bpftrace cannot run {Path(path).name}: {error}"
    return MissedRequirement(Requirement.SCRIPT, reason, f"bpftrace --dry-run {Path(path).name}")


def report_of(
    run: TrialRun, collector: OwnCollectorProcess, result: CollectorResult
) -> CollectorResult:
    """Judge a collector that was stopped, and add its figures of the measured part."""
    if run.interval is None:
        return result
    begin, end = run.interval.start_monotonic_seconds, run.interval.end_monotonic_seconds
    result, figures = collector.report(begin, end)
    if response := run.sections["response"]:
        run.keep("response", **{n: v for n, v in figures.items() if n not in response})
    return result


_COLLECTORS: Mapping[str, Callable[[CollectorContext], Collector]] = {
    "iostat": Iostat,
    "sar": Sar,
    "vmtouch": Vmtouch,
    "perf-mem": PerfMem,
    "damon": Damon,
}
_MOST_FILES = 64
"""Number of files above which residency is not sampled, because sampling would be a load of its
own."""


class TrialCollectors:
    """The collectors of a trial, with the sampler and, if needed, controllers of io.max."""

    def __init__(self, run: TrialRun, context: LaunchContext, files: tuple[Path, ...]) -> None:
        self._run, self._files, self._disk = run, files, context.disk
        sampled = files if len(files) <= _MOST_FILES else ()
        collector_context = CollectorContext(
            run.directory,
            context.disk,
            context.processes,
            sampled,
            run.session.children,
            context.disks,
        )
        self.sampler = Sampler(collector_context)
        names = [name for name in run.trial.collectors if name in _COLLECTORS]
        self._running: list[Collector] = [
            self.sampler,
            *(_COLLECTORS[name](collector_context) for name in names),
        ]
        self._own = list(own_collectors(run, collector_context, files))
        self._running += self._own
        self._controllers = dict(_controllers(run, collector_context))
        self._running += self._controllers.values()  # last, to begin when the others record

    @property
    def controllers(self) -> tuple[IoMaxController, ...]:
        """The threads that rewrite io.max, one per disk whose limits need it."""
        return tuple(self._controllers.values())

    def start(self) -> None:
        """Start every collector and return when each one records or has failed.

        An interruption waits for the start of a tool, which would otherwise be left behind if it
        came between fork(2) and the note of its process.
        """
        self._run.cleanup.callback(self.stop)
        for collector in self._running:
            with self._run.session.interruption.held():
                collector.start()
        for collector in self._running:
            collector.wait_until_recording()

    def stop(self, traced_since: float | None = None) -> None:
        """End the collectors, all at the same time, and keep their results.

        Does nothing the second time. With `traced_since` (CLOCK_MONOTONIC) the tracers' events
        since then are kept as well. Each collector waits for a tool to end or for a tracer's next
        tick; one after the other they would take an emulated CPU a second.
        """
        ends = {collector.name: collector.stop for collector in self._running}
        if traced_since is not None:
            loads = (c for c in self._running if isinstance(c, PerfMem))
            ends |= {collector.name: partial(self._take_loads, collector) for collector in loads}
            ends |= {one.name: partial(self._take_own, one) for one in self._own}
        self._running = []
        if traced_since is not None:
            traces = {"bpftrace": self._take_trace, "blocklat": self._take_block_trace}
            wanted = (name for name in traces if name in self._run.trial.collectors)
            ends |= {name: partial(traces[name], traced_since) for name in wanted}
        if ends:
            with self._run.session.interruption.held(), ThreadPoolExecutor(len(ends)) as pool:
                self._run.collected |= dict(
                    zip(ends, pool.map(_result_of, ends.values()), strict=True)
                )
        for disk, controller in self._controllers.items():
            if disk == DATA_DISK:
                self._run.keep("cage", credits=controller.to_json())
            else:
                self._run.keep_of_disk(disk, "cage", credits=controller.to_json())

    def _take_trace(self, since: float) -> CollectorResult:
        if not self._files:
            return CollectorResult("missing", "the trial has no dataset")
        tracer = self._run.session.tracer
        tracer.wait_for_tick()
        inodes = {file.stat().st_ino for file in self._files}
        return tracer.excerpt(inodes, since, self._run.directory / "bpftrace.jsonl")

    def _take_block_trace(self, since: float) -> CollectorResult:
        """Take the trace of the disk's writes.

        Add its figures for the measured part to the responses.
        """
        run, tracer = self._run, self._run.session.block_tracer
        tracer.wait_for_tick()
        result, rows = tracer.excerpt(self._disk.maj_min, since, run.directory / "blocklat.jsonl")
        if run.interval and run.sections["response"]:
            begin, end = run.interval.start_monotonic_seconds, run.interval.end_monotonic_seconds
            run.keep("response", **responses_of(rows, begin, end))
        return result

    def _take_loads(self, collector: PerfMem) -> CollectorResult:
        """Stop the sampling of loads, and add its figures for the measured part."""
        run, result = self._run, collector.stop()
        if result.status != "ok" or run.interval is None:
            return result
        begin, end = run.interval.start_monotonic_seconds, run.interval.end_monotonic_seconds
        result, figures = collector.report(begin, end)
        if run.sections["response"]:
            run.keep("response", **figures)
        return result

    def _take_own(self, collector: OwnCollectorProcess) -> CollectorResult:
        """Stop a collector of the definition, and add its figures for the measured part."""
        return report_of(self._run, collector, collector.stop())


def _controllers(run: TrialRun, context: CollectorContext) -> Iterator[tuple[str, IoMaxController]]:
    """Yield the controller of each disk that needs one, with the disk's name."""
    cage, facts = run.trial.cage.cgroup_part, run.session.facts
    if rewrites_io_max(cage, facts):
        yield DATA_DISK, IoMaxController(context, cage)
    for name in cage.disks:
        if rewrites_io_max(cage.on_disk(name), facts):
            on_disk = replace(context, disk=context.disks[name])
            yield name, IoMaxController(on_disk, cage.on_disk(name), name=f"credits-{name}")


def _result_of(end: Callable[[], CollectorResult]) -> CollectorResult:
    try:
        return end()
    except (PagecageError, OSError, RuntimeError) as error:
        return CollectorResult("failed", f"it could not be stopped properly: {error}")
