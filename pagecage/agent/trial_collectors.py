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
from pagecage.agent.programs.command import command_places, fill_all, places
from pagecage.agent.trial_run import RequirementMissed, TrialRun
from pagecage.errors import PagecageError
from pagecage.model.cage import DATA_DISK
from pagecage.model.requirements import MissedRequirement, Requirement
from pagecage.process import find_tool

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


def require_scripts(run: TrialRun) -> None:
    """Check the definition's scripts, once per session. Raises RequirementMissed."""
    scripts = [spec for spec in run.trial.own_collectors if spec.is_script]
    if scripts and not find_tool("bpftrace"):
        if any(spec.required for spec in scripts):
            raise RequirementMissed.of(
                Requirement.SCRIPT, "bpftrace is not installed", "pagecage host provision HOST"
            )
        return
    missed, checked = [], run.session.checked_scripts
    for spec in scripts:
        [path] = fill_all(spec.command, command_places(run.request, None), ())
        name = Path(path).name
        if path not in checked:
            run.tell(f"checking {name} with bpftrace")
            checked[path] = check_script(Path(path))
        if (error := checked[path]) is not None:
            reason, hint = f"bpftrace cannot run {name}: {error}", f"bpftrace --dry-run {name}"
            missed.append(MissedRequirement(Requirement.SCRIPT, reason, hint))
    if missed:
        raise RequirementMissed(missed)


class TrialCollectors:
    """The collectors of a trial, with the sampler and controllers of io.max."""

    def __init__(
        self,
        run: TrialRun,
        context: LaunchContext,
        files: tuple[Path, ...],
        data_directory: Path | None,
    ) -> None:
        self._run, self._files = run, files
        sampled, processes = files if len(files) <= _MOST_FILES else (), context.processes
        children = run.session.children
        self._context = CollectorContext(
            run.directory, context.disk, processes, sampled, children, context.disks
        )
        self.sampler = Sampler(self._context)
        names = [name for name in run.trial.collectors if name in _COLLECTORS]
        self._custom = list(self._custom_collectors(data_directory))
        self._controllers = dict(self._make_controllers())
        self._running: list[Collector] = [
            self.sampler,
            *(_COLLECTORS[name](self._context) for name in names),
            *self._custom,
            *self._controllers.values(),  # last, to begin when the others record
        ]

    def _custom_collectors(self, data_directory: Path | None) -> Iterator[OwnCollectorProcess]:
        run, context = self._run, self._context
        values = places(self._files, run.data_dir, run.trial.max_seconds, {})
        values |= command_places(run.request, data_directory)
        environment = {
            "PAGECAGE_TRIAL": run.trial.trial_id,
            "PAGECAGE_CGROUP": str(context.processes.cgroup or ""),
            "PAGECAGE_DISK": context.disk.node,
            "PAGECAGE_DISK_NUMBER": context.disk.maj_min,
        }
        for spec in run.trial.own_collectors:
            argv = fill_all(spec.command, values, self._files)
            yield OwnCollectorProcess(spec, argv, context, environment)

    def _make_controllers(self) -> Iterator[tuple[str, IoMaxController]]:
        cage, facts = self._run.trial.cage.cgroup_part, self._run.session.facts
        if rewrites_io_max(cage, facts):
            yield DATA_DISK, IoMaxController(self._context, cage)
        for name in cage.disks:
            if rewrites_io_max(cage.on_disk(name), facts):
                on_disk = replace(self._context, disk=self._context.disks[name])
                yield name, IoMaxController(on_disk, cage.on_disk(name), name=f"credits-{name}")

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

    def stop(
        self, traced_since: float | None = None, found: Mapping[str, float | None] | None = None
    ) -> None:
        """End the collectors, all at the same time, and keep their results.

        Does nothing the second time. With `traced_since` (CLOCK_MONOTONIC) the tracers' events
        since then are kept as well, and figures of the measured part are added to the responses
        `found`, unless there are none. Each collector waits for a tool to end or for a tracer's
        next tick; one after the other they would take an emulated CPU a second.
        """
        ends: dict[str, Callable[[], CollectorResult]] = {
            collector.name: collector.stop for collector in self._running
        }
        if traced_since is not None:
            for one in (c for c in self._running if isinstance(c, PerfMem | OwnCollectorProcess)):
                ends[one.name] = partial(self._take_figures, one, found or {})
            traces = {"bpftrace": self._take_trace, "blocklat": self._take_block_trace}
            for name in (name for name in traces if name in self._run.trial.collectors):
                ends[name] = partial(traces[name], traced_since, found or {})
        self._running = []
        if ends:
            with self._run.session.interruption.held(), ThreadPoolExecutor(len(ends)) as pool:
                results = pool.map(_result_of, ends.values())
                self._run.collected |= dict(zip(ends, results, strict=True))
        for disk, controller in self._controllers.items():
            self._run.keep("cage", disk, credits=controller.to_json())

    def _take_trace(self, since: float, _found: Mapping[str, float | None]) -> CollectorResult:
        if not self._files:
            return CollectorResult("missing", "the trial has no dataset")
        tracer = self._run.session.tracer
        tracer.wait_for_tick()
        inodes = {file.stat().st_ino for file in self._files}
        return tracer.excerpt(inodes, since, self._run.directory / "bpftrace.jsonl")

    def _take_block_trace(self, since: float, found: Mapping[str, float | None]) -> CollectorResult:
        run, tracer = self._run, self._run.session.block_tracer
        tracer.wait_for_tick()
        path = run.directory / "blocklat.jsonl"
        result, rows = tracer.excerpt(self._context.disk.maj_min, since, path)
        if run.interval and found:
            begin, end = run.interval.start_monotonic_seconds, run.interval.end_monotonic_seconds
            run.keep("response", **responses_of(rows, begin, end))
        return result

    def _take_figures(
        self, collector: PerfMem | OwnCollectorProcess, found: Mapping[str, float | None]
    ) -> CollectorResult:
        """Stop a collector and add its figures; a custom one is judged even if it failed."""
        run, result = self._run, collector.stop()
        is_custom = isinstance(collector, OwnCollectorProcess)
        if run.interval is None or not (is_custom or result.status == "ok"):
            return result
        begin, end = run.interval.start_monotonic_seconds, run.interval.end_monotonic_seconds
        result, figures = collector.report(begin, end)
        if found:
            new = {name: n for name, n in figures.items() if not (is_custom and name in found)}
            run.keep("response", **new)
        return result


def _result_of(end: Callable[[], CollectorResult]) -> CollectorResult:
    try:
        return end()
    except (PagecageError, OSError, RuntimeError) as error:
        return CollectorResult("failed", f"it could not be stopped properly: {error}")
