"""The execution of a prepared run, and its exit status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pagecage.checkout import RUNS, TOP
from pagecage.cli.enforcement import ask_before_queue_settings
from pagecage.cli.host_choice import can_run_here, plan_on_host, refuse_limits
from pagecage.cli.known_definitions import ask_before_commands
from pagecage.cli.options import RunOptions, definitions
from pagecage.cli.output import Notify, StdioRelay
from pagecage.cli.progress import RunProgress, expected_seconds
from pagecage.cli.run_plan import build_plan, check_levels, parse_treatment, with_cage, with_driver
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
from pagecage.memory_search.rounds import KEY, rule_of
from pagecage.model.experiment import Experiment
from pagecage.model.record import Record
from pagecage.model.trial import Trial
from pagecage.planning.plan import Plan
from pagecage.runner.campaign import Campaign, prepare
from pagecage.runner.resource_needs import check_memory_floor
from pagecage.runner.run_folder import RunFolder
from pagecage.units import format_seconds

_LONG_RUN_SECONDS = 20 * 60


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


def plan_for(name: str, options: RunOptions, command: str, notify: Notify) -> tuple[Plan, Host]:
    """Return the plan of a new run and its host.

    All errors in the input are found here, before anything starts.
    """
    experiment = definitions().experiment(name)
    if options.cage is not None:
        definitions().cage(options.cage, experiment.sizes["full"].total_bytes)
    make = partial(_make_plan, experiment, options, command, notify)
    plan, host = plan_on_host(options.host, options.data_dir, make, notify, options.disk)
    if "expected_seconds" in plan.document:
        notify(f"size: {plan.document['size_reason']}")
    return plan, host


def _make_plan(
    experiment: Experiment, options: RunOptions, command: str, notify: Notify, host: Host
) -> Plan:
    chosen = with_driver(with_cage(experiment, options.cage), options.driver)
    check_levels(chosen, parse_treatment(options.treatment))
    plan = build_plan(options, chosen, host, command, notify)
    check_memory_floor(plan)
    return plan


def runs_here(name: str, options: RunOptions) -> bool:
    """Return whether a run on host auto takes this machine; the guest need not be set up."""
    make = partial(_make_plan, definitions().experiment(name), options, "", lambda _: None)
    return can_run_here(LocalHost(options.data_dir), make)


def new_run(name: str, options: RunOptions, command: str, yes: bool, notify: Notify) -> PreparedRun:
    """Prepare a new run of an experiment."""
    ask_before_commands(definitions().experiment(name), options.host, yes=yes)
    require_workloads(make_agent_package(TOP))
    return create_run(*plan_for(name, options, command, notify), yes, notify)


def create_run(plan: Plan, host: Host, yes: bool, notify: Notify) -> PreparedRun:
    """Prepare the host for a plan and create its run folder.

    Unless `yes`, asks before the run changes settings of the disk that holds /. The folder is
    created last, so that a refused run leaves none.
    """
    try:
        prepare_host(plan, host, yes, notify)
        return PreparedRun(plan, RunFolder.create(RUNS, plan), host)
    except BaseException:
        host.stop()
        raise


def prepare_host(plan: Plan, host: Host, yes: bool, notify: Notify) -> None:
    """Check everything that can be checked before the run exists, and prepare the host to start."""
    package = make_agent_package(TOP)
    require_programs(package, plan.trials)
    if isinstance(host, LocalHost):
        refuse_limits(plan.trials, host)
    ask_before_queue_settings(plan, host, yes, notify)
    prepare(host, plan, package, lambda step: notify(f"{step} ..."))


def _extent(prepared: PreparedRun, remaining: Sequence[Trial]) -> tuple[int, int]:
    """Return the number of trials of a run, and of those that are left.

    Of a search, whose rounds are not planned, these are the most.
    """
    search = prepared.plan.document.get(KEY)
    if not search or not remaining:
        return len(prepared.plan.trials), len(remaining)
    done = sum(record.is_final for record in prepared.folder.last_records().values())
    left = max(len(remaining), search["most_trials"] - done)
    return done + left, left


def _estimate(document: Mapping[str, Any], remaining: tuple[Trial, ...]) -> float:
    """Return the expected duration of the remaining trials; by a plan's own estimate if any."""
    if whole := document.get("expected_seconds"):
        return float(whole) * len(remaining) / len(document["trials"])
    return expected_seconds(remaining)


def execute(prepared: PreparedRun, notify: Notify, stdout: int = 1) -> int:
    """Run the remaining trials; return EXIT_OK if every trial of the plan has a result.

    The standard output of a replayed program is written to the descriptor `stdout`.
    """
    remaining = prepared.folder.remaining(prepared.plan)
    total, left = _extent(prepared, remaining)
    document = prepared.plan.document
    estimate = _estimate(document, remaining) * left / max(1, len(remaining))
    about = "at most" if document.get("until_ci") or rule_of(document) else "about"
    notify(
        f"{left} of {total} trials to run, {about} {format_seconds(estimate)}:"
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
            total, total - left, estimate, bar=not prepared.streams_output
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
    return shell_status(failed[0].failed_status) or status


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
