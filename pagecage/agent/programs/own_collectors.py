"""The collectors of a trial's definition: their commands, and the check of their scripts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pagecage.agent.collectors.collector import CollectorContext, CollectorResult
from pagecage.agent.collectors.own_collector import OwnCollectorProcess
from pagecage.agent.collectors.own_scripts import check_script
from pagecage.agent.programs.arguments import fill_all, own_places, places
from pagecage.agent.trial_run import RequirementMissed, TrialRun
from pagecage.model.collectors.spec import OwnCollector
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
