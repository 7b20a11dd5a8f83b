"""The collectors of a trial: which of them run, from its first measured moment to its last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path

from pagecage.agent import collectors
from pagecage.agent.collectors.collector import (
    Collector,
    CollectorContext,
    CollectorResult,
    Figures,
)
from pagecage.agent.collectors.custom import CustomCollector, check_script
from pagecage.agent.collectors.sampler import Sampler
from pagecage.agent.collectors.tracer import TracedTrial
from pagecage.agent.drivers.driver import LaunchContext
from pagecage.agent.limits.fidelity import IoMaxController, rewrites_io_max
from pagecage.agent.programs.command import command_places, fill_all, places
from pagecage.agent.trial_run import TrialRun
from pagecage.errors import PagecageError
from pagecage.model.cage import DATA_DISK
from pagecage.model.requirements import MissedRequirement, Requirement, RequirementMissed
from pagecage.model.trial import TRACERS
from pagecage.process import find_tool

_MOST_FILES = 64
"""Files above which residency is not sampled, because sampling would be a load of its own."""


def require_scripts(run: TrialRun) -> None:
    """Check scripts once per session. Raises RequirementMissed if one cannot be attached."""
    scripts = [spec for spec in run.trial.own_collectors if spec.is_script]
    if scripts and not find_tool("bpftrace"):
        if any(spec.required for spec in scripts):
            reason = "bpftrace is not installed"
            raise RequirementMissed.of(Requirement.SCRIPT, reason, "pagecage host provision HOST")
        return
    checked, missed = run.session.checked_scripts, []
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


def make_collector(name: str, context: CollectorContext) -> Collector:
    """Return the collector with this name, which imports the module of no other."""
    module = import_module(f"{collectors.__name__}.{name.replace('-', '_')}")
    [kind] = {one for one in vars(module).values() if getattr(one, "name", "") == name}
    made: Collector = kind(context)
    return made


class TrialCollectors:
    """The collectors of a trial, with the sampler and, if needed, controllers of io.max."""

    def __init__(
        self,
        run: TrialRun,
        context: LaunchContext,
        files: tuple[Path, ...],
        data_directory: Path | None,
    ) -> None:
        self._run = run
        around = CollectorContext(
            run.directory,
            context.disk,
            context.processes,
            files if len(files) <= _MOST_FILES else (),
            run.session.children,
            context.disks,
            files,
        )
        self.sampler = Sampler(around)
        cage, disks = run.trial.cage.cgroup_part, {DATA_DISK: context.disk, **context.disks}
        self._controllers = {
            name: IoMaxController(
                replace(around, disk=disks[name]),
                of_disk,
                name="credits" if name == DATA_DISK else f"credits-{name}",
            )
            for name, of_disk in cage.by_disk.items()
            if rewrites_io_max(of_disk, run.session.facts)
        }
        names = run.trial.collectors
        tracers = (run.session.tracer, run.session.block_tracer)
        self._running: list[Collector] = [
            self.sampler,
            *(make_collector(name, around) for name in names if name not in TRACERS),
            *_custom(run, around, data_directory),
            *self._controllers.values(),  # last, to begin when the others record
            *(TracedTrial(tracer, around) for tracer in tracers if tracer.name in names),
        ]

    @property
    def controllers(self) -> tuple[IoMaxController, ...]:
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

        Does nothing the second time. `traced_since` (CLOCK_MONOTONIC) is the launch of the program,
        None if it never was. Figures of the measured part are added to the responses `found`,
        unless there are none. Each collector waits for a tool to end or for a tracer's next tick;
        one after the other they would take an emulated CPU a second.
        """
        ended, self._running = self._running, []
        run, interval = self._run, self._run.interval
        measured = None
        if interval is not None:
            measured = interval.start_monotonic_seconds, interval.end_monotonic_seconds
        if ended:
            end = partial(_end, launched=traced_since, measured=measured)
            with run.session.interruption.held(), ThreadPoolExecutor(len(ended)) as pool:
                results = list(pool.map(end, ended))
            for collector, (result, figures) in zip(ended, results, strict=True):
                if result is not None:
                    run.collected[collector.name] = result
                if found:
                    new = {k: n for k, n in figures.items() if found.get(k) is None}
                    run.keep("response", **new)
        for disk, controller in self._controllers.items():
            run.keep("cage", disk, credits=controller.to_json())


def _end(
    collector: Collector, *, launched: float | None, measured: tuple[float, float] | None
) -> tuple[CollectorResult | None, Figures]:
    try:
        return collector.end(launched, measured)
    except (PagecageError, OSError, RuntimeError) as error:
        return CollectorResult("failed", f"it could not be stopped properly: {error}"), {}


def _custom(
    run: TrialRun, context: CollectorContext, data_directory: Path | None
) -> Iterator[CustomCollector]:
    """Yield the collectors of the definition, with the variables by which they find the trial."""
    cgroup = context.processes.cgroup
    environment = {
        "PAGECAGE_TRIAL": run.trial.trial_id,
        "PAGECAGE_CGROUP": str(cgroup) if cgroup else "",
        "PAGECAGE_DISK": context.disk.node,
        "PAGECAGE_DISK_NUMBER": context.disk.maj_min,
    }
    values = places(context.files, run.data_dir, run.trial.max_seconds, {})
    values |= command_places(run.request, data_directory)
    for spec in run.trial.own_collectors:
        argv = fill_all(spec.command, values, context.files)
        yield CustomCollector(spec, argv, context, environment)
