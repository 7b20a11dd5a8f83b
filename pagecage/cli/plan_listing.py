"""A plan as text, for `pagecage plan` and --dry-run."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from pagecage.hosts.host import Host
from pagecage.model.cage import Cage
from pagecage.planning.plan import Plan
from pagecage.units import format_bytes, format_seconds


def show_plan(plan: Plan, host: Host) -> None:
    """Print a plan and the commands of each trial."""
    from pagecage.agent.preview import trial_commands  # imported late: it loads most of the agent

    print("\n".join(plan_lines(plan)))
    for trial in plan.trials:
        print(f"\n# {trial.trial_id}\n" + "\n".join(trial_commands(trial, host.user)))


def plan_lines(plan: Plan) -> Iterator[str]:
    """Yield a summary of the plan, then one line per trial, in order."""
    document = plan.document
    datasets = {(t.files, t.dataset.size_bytes) for t in plan.trials if t.dataset}
    sizes = (
        f"{files} × {format_bytes(size)}" if files > 1 else format_bytes(size)
        for files, size in sorted(datasets)
    )
    count, repeats = len(plan.trials), document["repeats"]
    yield (
        f"{document['experiment']} on {document['host']}: {count} trials, {repeats} repeats of each"
        " treatment"
    )
    if document.get("until_ci"):
        yield (
            f"stops earlier if every interval is within {100 * document['until_ci']:.3g} % of its"
            " median"
        )
    yield (
        f"size {document['size']} ({document['size_reason']}), dataset {', '.join(sizes) or 'none'}"
    )
    yield f"seed {document['seed']}, fresh: {document['fresh']}"
    yield from service_lines(plan)
    yield ""
    for trial in plan.trials:
        yield (
            f"{trial.position + 1:>4}  block {trial.block}  {trial.trial_id:<32} cache"
            f" {trial.cache:<9} {_limits(trial.cage)}"
        )


def service_lines(plan: Plan) -> Iterator[str]:
    """Yield each server of a plan once, with its load and the metrics of its output."""
    seen = []
    for workload in (trial.workload for trial in plan.trials if trial.workload.service):
        service, settings = workload.service, workload.command
        if service is None or settings is None or workload in seen:
            continue
        seen.append(workload)
        serves = f"prints {settings.ready_when!r}"
        if settings.ready_port is not None:
            serves = f"listens on port {settings.ready_port}"
        server = shlex.join([workload.program, *workload.arguments])
        yield f"server {server}, ready when it {serves}"
        times = (("warm-up", service.warm_up_seconds), ("pause", service.settle_seconds))
        before = [f"{format_seconds(seconds)} of {name}" for name, seconds in times if seconds]
        after = f", after {' and '.join(before)}" if before else ""
        yield f"load {shlex.join(service.load)}{after}"
        yield from (f"metric {name}: {one.pattern}" for name, one in service.metrics.items())


def _limits(cage: Cage) -> str:
    disks = {"": cage.properties}
    disks |= {f"; disk {name}: ": disk.properties for name, disk in cage.disks.items()}
    limits = "".join(
        name + (" ".join(f"{key}={value}" for key, value in one.items()) or "no limits")
        for name, one in disks.items()
    )
    if not cage.is_volume:
        return limits
    slower = f", {cage.dilation:g} times slower" if cage.dilation != 1 else ""
    return f"{limits} (I/O by a simulated volume{slower})"
