"""What a run would do, down to the commands: for `pagecage plan` and `--dry-run`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pagecage.agent.program import gated
from pagecage.agent.systemd import Systemd, scope_command, slice_commands, unit_name
from pagecage.agent.workload_run import fill_all
from pagecage.plan import Plan
from pagecage.process import replay
from pagecage.trial import Trial
from pagecage.units import format_bytes


def trial_commands(trial: Trial, user: bool) -> Iterator[str]:
    """The commands of one trial as the host will run them; DISK and DIR are resolved there."""
    systemd, unit = Systemd(user, 257), unit_name(trial.trial_id)
    for command in slice_commands(systemd, unit, trial.cage, "DISK"):
        yield replay(command)
    yield replay(scope_command(systemd, unit, _shown_argv(trial)))
    yield replay(systemd.systemctl("stop", unit))
    yield replay(["rm", "-r", systemd.control_directory() / f"{unit}.d"])


def _shown_argv(trial: Trial) -> list[str]:
    workload = trial.workload
    if workload.kind != "command":
        return [workload.program, *_shown_arguments(trial)]
    is_literal = workload.command is not None and workload.command.is_literal
    return gated([workload.program, *(workload.arguments if is_literal else _shown_arguments(trial))])


def _shown_arguments(trial: Trial) -> list[str]:
    files = [Path("DIR") / dataset.file_name for dataset in trial.datasets]
    file = files[0] if files else "DIR"
    places = {"file": file, "sidecar": f"{file}.json", "data_dir": "DIR", "max_seconds": trial.max_seconds}
    return fill_all(trial.workload.arguments, places, files)


def plan_lines(plan: Plan) -> Iterator[str]:
    """A head about the whole and one line a trial, in order."""
    document = plan.document
    datasets = {(t.files, t.dataset.size_bytes) for t in plan.trials if t.dataset}
    many = (f"{files} × {format_bytes(size)}" if files > 1 else format_bytes(size) for files, size in sorted(datasets))
    sizes = ", ".join(many) or "none"
    count, repeats = len(plan.trials), document["repeats"]
    yield f"{document['experiment']} on {document['host']}: {count} trials, {repeats} repeats of each treatment"
    yield f"size {document['size']} ({document['size_reason']}), dataset {sizes}"
    yield f"seed {document['seed']}, fresh: {document['fresh']}"
    yield ""
    for trial in plan.trials:
        limits = " ".join(f"{name}={value}" for name, value in trial.cage.properties.items()) or "no limits"
        yield f"{trial.position + 1:>4}  block {trial.block}  {trial.trial_id:<32} cache {trial.cache:<9} {limits}"
