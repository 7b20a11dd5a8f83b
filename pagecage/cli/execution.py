"""Preparation and execution of a run on one host, and its exit status."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pagecage.agent.system.block_device import resolve_disk
from pagecage.checkout import RUNS, TOP
from pagecage.cli.host_choice import choose_host, needs_no_limits, plan_on_host, refuse_limits
from pagecage.cli.output import Notify
from pagecage.cli.progress import RunProgress, expected_seconds, expected_trial_seconds
from pagecage.cli.run_options import RunOptions, definitions
from pagecage.cli.run_plan import (
    build_plan,
    parse_treatment,
    with_cage,
    with_driver,
    with_treatment,
)
from pagecage.cli.stdio import StdioRelay
from pagecage.errors import (
    EXIT_HOST,
    EXIT_INCOMPLETE,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    PagecageError,
)
from pagecage.hosts.agent_package import make_agent_package, require_programs, require_workloads
from pagecage.hosts.host import Host
from pagecage.hosts.local import LocalHost
from pagecage.model.experiment import Experiment
from pagecage.model.record import Record
from pagecage.model.trial import Trial
from pagecage.planning.plan import Plan
from pagecage.planning.sweep import SWEEP_PREFIX
from pagecage.planning.treatments import selected
from pagecage.runner.campaign import Campaign, check_memory_floor, prepare
from pagecage.runner.run_folder import RunFolder, find_run
from pagecage.units import format_bytes, format_seconds


@dataclass(frozen=True)
class PreparedRun:
    """A plan with its run folder and its host."""

    plan: Plan
    folder: RunFolder
    host: Host

    @property
    def streams_output(self) -> bool:
        """True if the program's output goes to the terminal, so that no bar is shown."""
        return any(
            trial.workload.command and trial.workload.command.streams_output
            for trial in self.plan.trials
        )


def summary_row(experiment: Experiment) -> dict[str, Any]:
    """Return an experiment's row for `pagecage list`.

    The duration is an estimate for an emulated host.
    """
    count = len(selected(experiment, "emulated"))
    size = experiment.sizes["emulated"]
    seconds = (
        count * (size.repeats or experiment.repeats) * expected_trial_seconds(size.max_seconds)
    )
    return {
        "name": experiment.name,
        "question": experiment.question,
        "treatments": count,
        "factors": {name: list(levels) for name, levels in experiment.factors.items()},
        "about": f"about {format_seconds(seconds)}",
        "expected_seconds": seconds,
    }


def plan_for(name: str, options: RunOptions, command: str, notify: Notify) -> tuple[Plan, Host]:
    """Return the plan of a new run and its host.

    All errors in the input are found here, before anything starts.
    """
    experiment = definitions().experiment(name)
    if options.cage is not None:
        definitions().cage(options.cage, experiment.sizes["full"].total_bytes)
    make = partial(_make_plan, experiment, options, command, notify)
    return plan_on_host(options.host, options.data_dir, make, notify)


def _make_plan(
    experiment: Experiment, options: RunOptions, command: str, notify: Notify, host: Host
) -> Plan:
    chosen = with_driver(with_cage(experiment, options.cage), options.driver)
    with_treatment(chosen, parse_treatment(options.treatment))
    plan = build_plan(options, chosen, host, command, notify)
    check_memory_floor(plan)
    return plan


def runs_here(name: str, options: RunOptions) -> bool:
    """Return whether a run on host auto needs no limits, so that this machine serves it."""
    make = partial(_make_plan, definitions().experiment(name), options, "", lambda _: None)
    return needs_no_limits(LocalHost(options.data_dir), make)


def new_run(name: str, options: RunOptions, command: str, yes: bool, notify: Notify) -> PreparedRun:
    """Prepare a new run of an experiment."""
    definitions().experiment(name)
    require_workloads(make_agent_package(TOP))
    return create_run(*plan_for(name, options, command, notify), yes, notify)


def create_run(plan: Plan, host: Host, yes: bool, notify: Notify) -> PreparedRun:
    """Prepare the host for a plan and create its run folder.

    Unless `yes`, asks before the run changes settings of the disk that holds /. The folder is
    created last, so that a refused run leaves none.
    """
    try:
        _prepare(plan, host, yes, notify)
        return PreparedRun(plan, RunFolder.create(RUNS, plan), host)
    except BaseException:
        host.stop()
        raise


def resume_run(name: str, options: RunOptions, yes: bool, notify: Notify) -> PreparedRun:
    """Prepare the newest run of an experiment to be finished.

    Raises PagecageError if the experiment's definition has changed since.
    """
    refuse_plan_options(options)
    folder = find_run(RUNS, name)
    plan = folder.plan()
    if options.host not in ("auto", plan.document["host"]):
        message = f"{plan.run_id} is a run on {plan.document['host']}, not on {options.host}"
        raise PagecageError(message, "remove --host, or start a new run")
    if plan.document.get("replay") is None:
        require_same_definition(plan)
    host = choose_host(plan.document["host"], options.data_dir, notify)
    try:
        if folder.remaining(plan):
            _prepare(plan, host, yes, notify)
    except BaseException:
        host.stop()
        raise
    return PreparedRun(plan, folder, host)


def _prepare(plan: Plan, host: Host, yes: bool, notify: Notify) -> None:
    """Check everything that can be checked before the run exists, and prepare the host to start."""
    package = make_agent_package(TOP)
    require_programs(package, plan.trials)
    if isinstance(host, LocalHost):
        refuse_limits(plan.trials, host)
    _ask_before_queue_settings(plan, host, yes, notify)
    prepare(host, plan, package, lambda step: notify(f"{step} ..."))


_PLAN_OPTIONS = (
    "size",
    "cage",
    "treatment",
    "repeats",
    "until_ci",
    "max_repeats",
    "seed",
    "fresh",
    "driver",
)


_LONG_RUN_SECONDS = 20 * 60


def refuse_plan_options(options: RunOptions) -> None:
    """Raise PagecageError for an option that would change the plan of a resumed run."""
    given = [key for key in _PLAN_OPTIONS if getattr(options, key) != getattr(RunOptions(), key)]
    if given:
        option = given[0].replace("_", "-")
        raise PagecageError(f"--{option} and --resume are mutually exclusive", f"remove --{option}")


def require_same_definition(plan: Plan) -> None:
    """Raise PagecageError if the experiment has changed since its plan was made.

    Of a sweep it is the experiment that is swept.
    """
    name = plan.document["experiment"]
    if plan.document.get("sweep"):
        name = name.removeprefix(SWEEP_PREFIX)
    if definitions().experiment(name).definition_sha256 != plan.document["definition_sha256"]:
        raise PagecageError(
            f"experiments/{name}.toml has changed since {plan.run_id} was planned",
            f"start a new run: pagecage run {name}",
        )


def execute(prepared: PreparedRun, notify: Notify, stdout: int = 1) -> int:
    """Run the remaining trials; return EXIT_OK if every trial of the plan has a result.

    The standard output of a replayed program is written to the descriptor `stdout`.
    """
    remaining = prepared.folder.remaining(prepared.plan)
    total, estimate = len(prepared.plan.trials), expected_seconds(remaining)
    about = "at most" if prepared.plan.document.get("until_ci") else "about"
    notify(
        f"{len(remaining)} of {total} trials to run, {about} {format_seconds(estimate)}:"
        f" {prepared.folder.path.name}"
    )
    if not remaining:
        prepared.host.stop()
        return EXIT_OK
    resume = f"pagecage run {prepared.plan.document['experiment']} --resume"
    if estimate > _LONG_RUN_SECONDS:
        notify(f"it may be interrupted: finished trials are kept, and `{resume}` continues")
    try:
        with RunProgress(
            total, total - len(remaining), estimate, bar=not prepared.streams_output
        ) as progress:
            campaign = Campaign(
                prepared.host,
                prepared.plan,
                prepared.folder,
                make_agent_package(TOP),
                StdioRelay(progress, stdout),
            )
            summary = campaign.run(is_prepared=True)
    except KeyboardInterrupt:
        raise PagecageError(
            "interrupted; finished trials are kept", resume, EXIT_INTERRUPTED
        ) from None
    if summary.unfinished:
        notify(f"{summary.unfinished} trials have no result\n  fix: {resume}")
        return EXIT_INCOMPLETE
    return EXIT_OK


def _ask_before_queue_settings(plan: Plan, host: Host, yes: bool, notify: Notify) -> None:
    """Ask before a setting of the disk under / changes, which affects every other program.

    The settings are read_ahead_kb and max_sectors_kb. Without a terminal nobody can answer, so the
    change is announced instead: it slows other programs at most, and each trial undoes it.
    """
    if yes or not isinstance(host, LocalHost) or not any(map(sets_queue_settings, plan.trials)):
        return
    disk = host.facts()["disk"]
    if "error" in disk or disk["maj_min"] != _disk_of_root():  # prepare() refuses an unknown disk
        return
    changes = f"{_queue_settings_of(plan)} of {disk['node']}, which holds /,"
    if not sys.stdin.isatty():
        notify(f"{changes} will be changed during each trial and restored after it")
        return
    question = f"Set {changes} during each trial?"
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() != "y":
        raise PagecageError(f"not confirmed: {question}", "add --yes, or give another --data-dir")


def sets_queue_settings(trial: Trial) -> bool:
    """Return whether a trial changes settings of its disk's request queue."""
    return trial.read_ahead_kb is not None or _splits_requests(trial)


def _splits_requests(trial: Trial) -> bool:
    """Return whether requests are split at the size that the provider counts as one I/O."""
    return trial.cage.accounting is not None and trial.cage.accounting.io_size_bytes is not None


def _queue_settings_of(plan: Plan) -> str:
    names = {"read_ahead_kb": any(t.read_ahead_kb is not None for t in plan.trials)}
    names["max_sectors_kb"] = any(map(_splits_requests, plan.trials))
    return " and ".join(name for name, is_set in names.items() if is_set)


def _disk_of_root() -> str | None:
    """Return the disk under / as MAJOR:MINOR; None if / is on no single disk (an overlay, ZFS)."""
    try:
        return resolve_disk(Path("/")).maj_min
    except PagecageError:
        return None


_SIGNAL_BASE = 128  # a shell's exit status for signal N is 128 + N
# Requirements that the user can meet by changing the command; the others are the host's.
_REQUIREMENTS_OF_COMMAND = frozenset({"workload", "data", "port", "local_disk"})


def exit_code(prepared: PreparedRun, status: int, notify: Notify) -> int:
    """Return the exit status of the program if it failed, else `status`.

    Raises PagecageError if the host lacks something, or if the user can fix the command. For an
    experiment from a file, returns `status`.
    """
    if prepared.plan.document.get("replay") is None:
        return status
    last = prepared.folder.last_records()
    records = [last[trial.trial_id] for trial in prepared.plan.trials if trial.trial_id in last]
    for record in records:
        _raise_for(record)
    failed = [record for record in records if record.is_programs_own_failure]
    if not failed:
        return status
    if not prepared.streams_output:
        notify(
            f"{prepared.plan.document['experiment']}: the program failed in {len(failed)} of"
            f" {len(records)} trials"
        )
    return shell_status(failed[0].exit.status or 0) or status


def shell_status(status: int) -> int:
    """Return an exit status as a shell reports it: 128 + N if signal N ended the process."""
    return status if status >= 0 else _SIGNAL_BASE - status


def _raise_for(record: Record) -> None:
    for missed in record.missed_requirements:
        code = EXIT_USAGE if missed.requirement in _REQUIREMENTS_OF_COMMAND else EXIT_HOST
        raise PagecageError(missed.reason, missed.hint, code)
    if record.exit.escaped:
        raise PagecageError(
            record.error or "", "start those processes in the cage by hand: pagecage shell CAGE"
        )
    if record.exit.left_behind and record.outcome == "failed":
        hint = "run it in the foreground, or measure until it is ready: --ready-port, --ready-when"
        raise PagecageError(record.error or "", hint)


def all_requirements_missed(prepared: PreparedRun) -> bool:
    """Return whether every trial missed a requirement, so that there is no table to show."""
    records = prepared.folder.last_records().values()
    return bool(records) and all(record.outcome == "requirement_missed" for record in records)


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
    yield ""
    for trial in plan.trials:
        limits = (
            " ".join(f"{name}={value}" for name, value in trial.cage.properties.items())
            or "no limits"
        )
        yield (
            f"{trial.position + 1:>4}  block {trial.block}  {trial.trial_id:<32} cache"
            f" {trial.cache:<9} {limits}"
        )
