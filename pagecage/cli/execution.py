"""The execution of a run: new or resumed, its questions before, and its exit status."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from pagecage.checkout import RUNS, TOP
from pagecage.cli.output import StdioRelay
from pagecage.cli.progress import RunProgress
from pagecage.cli.show import show_run
from pagecage.definitions.experiment import Experiment
from pagecage.definitions.known import (
    command_lines,
    is_known,
    remember_definition,
    remember_sections,
)
from pagecage.definitions.reader import is_path
from pagecage.errors import (
    EXIT_HOST,
    EXIT_INCOMPLETE,
    EXIT_INTERRUPTED,
    EXIT_NOT_FOUND,
    EXIT_OK,
    EXIT_USAGE,
    PagecageError,
    runner_code,
)
from pagecage.hosts.agent_package import make_agent_package, require_programs, require_workloads
from pagecage.hosts.host import Host
from pagecage.hosts.local import LocalHost
from pagecage.memory_search.rounds import KEY, rule_of
from pagecage.model.plan import Plan
from pagecage.model.record import Record
from pagecage.planning.enforcement import ask_before_queue_settings
from pagecage.planning.host_choice import choose_host, refuse_limits, refuse_missing_programs
from pagecage.planning.options import RunOptions, definitions, given_options
from pagecage.planning.run_plan import plan_for
from pagecage.planning.size import expected_seconds
from pagecage.planning.sweep import SWEEP_PREFIX
from pagecage.planning.time_left import TimeEstimate
from pagecage.runner.campaign import Campaign, prepare
from pagecage.runner.images import with_values
from pagecage.runner.run_folder import RunFolder, find_run
from pagecage.terminal import Notify, confirmed
from pagecage.units import format_seconds

_LONG_RUN_SECONDS = 20 * 60
_SIGNAL_BASE = 128  # a shell's exit status for signal N is 128 + N
# Requirements that the user can meet by changing the command; the others are the host's.
_REQUIREMENTS_OF_COMMAND = frozenset({"workload", "data", "port", "local_disk"})
_PLAN_OPTIONS = (
    *("dataset", "budget", "cage", "volume", "ready_port", "treatment", "repeats", "until_ci"),
    *("max_repeats", "seed", "fresh", "driver", "cold_metadata", "fresh_home", "same_output"),
)
_WHERE = {
    "local": "on this machine",
    "vm": "in the guest",
    "auto": "in the guest, or on this machine if it can measure the whole plan",
}


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

    @property
    def all_requirements_missed(self) -> bool:
        """True if every trial missed a requirement, so that there is no table to show."""
        records = self.folder.last_records().values()
        return bool(records) and all(record.outcome == "requirement_missed" for record in records)


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
        if plan.document.get("replay") is None:  # whose programs are looked for before its plan
            refuse_missing_programs(plan.trials, notify)
    ask_before_queue_settings(plan, host, yes, notify)
    prepare(host, plan, package, lambda step: notify(f"{step} ..."))


def ask_before_commands(experiment: Experiment, host: str, *, yes: bool) -> None:
    if not is_known(experiment):
        lines = [f"{experiment.file} has not run on this machine before. Its commands:"]
        where = _WHERE.get(host, f"on every host of {host}")
        lines += [f"  {line}" for line in command_lines(experiment, where)]
        # Control characters could hide a command on a terminal.
        shown = ("".join(c if c.isprintable() else repr(c)[1:-1] for c in line) for line in lines)
        sys.stderr.write("\n".join(shown) + "\n")
        if not yes and not sys.stdin.isatty():
            raise PagecageError(
                f"{experiment.name} has commands that have not run on this machine before",
                f"read them above, and `pagecage run {experiment.name} --dry-run`; then add --yes",
            )
        if not yes and not confirmed("Run them?"):
            raise PagecageError(
                f"not confirmed: the commands of {experiment.name}",
                f"pagecage run {experiment.name} --dry-run lists every command",
            )
        remember_definition(experiment)
    remember_sections(experiment.sections)


def resume_run(
    name: str, options: RunOptions, repeat_excluded: bool, yes: bool, notify: Notify
) -> PreparedRun:
    """Prepare the newest run of an experiment to be finished, or to repeat excluded trials."""
    refuse_plan_options(options)
    folder = find_run(RUNS, Path(name).stem if is_path(name) else name)
    plan = folder.plan()
    if options.host not in ("auto", plan.document["host"]):
        message = f"{plan.run_id} is a run on {plan.document['host']}, not on {options.host}"
        raise PagecageError(message, "remove --host, or start a new run")
    if plan.document.get("replay") is None:
        ask_before_commands(require_same_definition(plan, name), options.host, yes=yes)
    host = choose_host(plan.document["host"], options.data_dir, notify, options.disk)
    try:
        if repeat_excluded:
            folder.supersede(excluded_trials(folder))
        if folder.remaining(plan):
            plan = with_values(plan)
            prepare_host(plan, host, yes, notify)
    except BaseException:
        host.stop()
        raise
    return PreparedRun(plan, folder, host)


def excluded_trials(folder: RunFolder) -> list[str]:
    if not folder.attempts():
        return []
    trials = json.loads(show_run(folder.path, "json"))["trials"]
    return [trial["trial_id"] for trial in trials if trial["verdicts"]["excluded"]]


def refuse_plan_options(options: RunOptions) -> None:
    """Raise PagecageError for an option that would change the plan of a resumed run."""
    for option in given_options(options, _PLAN_OPTIONS):
        option = "--size" if option == "--volume" else option
        raise PagecageError(f"{option} and --resume are mutually exclusive", f"remove {option}")


def require_same_definition(plan: Plan, given: str = "") -> Experiment:
    """Return the plan's experiment; of a sweep the experiment that is swept."""
    name = given if is_path(given) else plan.document["experiment"]
    if plan.document.get("sweep"):
        name = name.removeprefix(SWEEP_PREFIX)
    experiment = definitions().experiment(name)
    if experiment.definition_sha256 != plan.document["definition_sha256"]:
        file = name if is_path(name) else f"experiments/{name}.toml"
        message = f"{file} has changed since {plan.run_id} was planned"
        raise PagecageError(message, f"start a new run: pagecage run {name}")
    return experiment


def execute(prepared: PreparedRun, notify: Notify, stdout: int = 1) -> int:
    """Run the remaining trials; return EXIT_OK if every trial of the plan has a result."""
    time_left, document = _time_left(prepared), prepared.plan.document
    total, left = time_left.total, time_left.total - time_left.done
    estimate = time_left.left_seconds
    about = "at most" if document.get("until_ci") or rule_of(document) else "about"
    notify(
        f"{left} of {total} trials to run, {about} {format_seconds(estimate)}:"
        f" {prepared.folder.path.name}"
    )
    if not left:
        prepared.host.stop()
        return EXIT_OK
    resume = f"pagecage run {document['experiment']} --resume"
    if estimate > _LONG_RUN_SECONDS:
        notify(f"it may be interrupted: finished trials are kept, and `{resume}` continues")
    try:
        with RunProgress(time_left, bar=not prepared.streams_output) as progress:
            relay = StdioRelay(progress, stdout)
            package = make_agent_package(TOP)
            campaign = Campaign(prepared.host, prepared.plan, prepared.folder, package, relay)
            summary = campaign.run(is_prepared=True)
    except KeyboardInterrupt:
        raise PagecageError(
            "interrupted; finished trials are kept", resume, EXIT_INTERRUPTED
        ) from None
    if summary.unfinished:
        notify(f"{summary.unfinished} trials have no result\n  fix: {resume}")
        return EXIT_INCOMPLETE
    return EXIT_OK


def _time_left(prepared: PreparedRun) -> TimeEstimate:
    """Return the trials that are left, and their time.

    Of a search, whose rounds are not planned, these are the most.
    """
    document, remaining = prepared.plan.document, prepared.folder.remaining(prepared.plan)
    records = prepared.folder.last_records().values()
    total, left = len(prepared.plan.trials), len(remaining)
    estimate = expected_seconds(remaining)
    if whole := document.get("expected_seconds"):
        estimate = float(whole) * left / len(document["trials"])
    if (search := document.get(KEY)) and remaining:
        done = sum(record.is_final for record in records)
        most = max(left, search["most_trials"] - done)
        return TimeEstimate(done + most, done, estimate / left)
    return TimeEstimate.of(total, remaining, records, estimate)


def exit_code(prepared: PreparedRun, status: int, notify: Notify) -> int:
    """Return the exit status of the program if it failed, else `status`."""
    if prepared.plan.document.get("replay") is None:
        return status
    last = prepared.folder.last_records()
    records = [last[trial.trial_id] for trial in prepared.plan.trials if trial.trial_id in last]
    for record in records:
        _raise_for(record)
    failed = [record for record in records if record.is_programs_own_failure]
    if not failed:
        return runner_code(status)
    if not prepared.streams_output:
        notify(
            f"{prepared.plan.document['experiment']}: the program failed in {len(failed)} of"
            f" {len(records)} trials"
        )
    return shell_status(failed[0].failed_status) or runner_code(status)


def shell_status(status: int) -> int:
    """Return an exit status as a shell reports it: 128 + N if signal N ended the process."""
    return status if status >= 0 else _SIGNAL_BASE - status


def _raise_for(record: Record) -> None:
    for missed in record.missed_requirements:
        code = EXIT_USAGE if missed.requirement in _REQUIREMENTS_OF_COMMAND else EXIT_HOST
        code = EXIT_NOT_FOUND if missed.requirement == "workload" else code
        raise PagecageError(missed.reason, missed.hint, code)
    if record.exit.escaped:
        raise PagecageError(
            record.error or "", "start those processes in the cage by hand: pagecage shell CAGE"
        )
    if record.exit.left_behind and record.outcome == "failed":
        hint = "run it in the foreground, or measure until it is ready: --ready-port, --ready-when"
        raise PagecageError(record.error or "", hint)


def new_run(name: str, options: RunOptions, command: str, yes: bool, notify: Notify) -> PreparedRun:
    ask_before_commands(definitions().experiment(name), options.host, yes=yes)
    require_workloads(make_agent_package(TOP))
    return create_run(*plan_for(name, options, command, notify), yes, notify)
