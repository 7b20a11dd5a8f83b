"""From a name and wishes to a finished run: plan it or find it again, then let the campaign work."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagecage.agent.system.block_device import resolve_disk
from pagecage.checkout import RUNS, TOP
from pagecage.cli.output import Say
from pagecage.cli.progress import RunProgress, expected_seconds, expected_trial_seconds
from pagecage.cli.run_options import RunOptions, definitions
from pagecage.cli.run_plan import build_plan, choose_host, with_cage, with_driver
from pagecage.cli.stdio import StdioRelay
from pagecage.errors import EXIT_HOST, EXIT_INCOMPLETE, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, PagecageError
from pagecage.hosts.agent_package import make_kit, require_programs, require_workloads
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
    """A plan with its folder and the host it will run on."""

    plan: Plan
    folder: RunFolder
    host: Host

    @property
    def streams_output(self) -> bool:
        """Whether a program's output comes out of ours, where a bar would be in its way."""
        return any(trial.workload.command and trial.workload.command.streams_output for trial in self.plan.trials)


def summary_row(experiment: Experiment) -> dict[str, Any]:
    """What `pagecage list` shows of an experiment; the time is a guess for an emulated host."""
    count = len(selected(experiment, "emulated"))
    size = experiment.sizes["emulated"]
    seconds = count * (size.repeats or experiment.repeats) * expected_trial_seconds(size.max_seconds)
    return {
        "name": experiment.name, "question": experiment.question, "treatments": count,
        "factors": {name: list(levels) for name, levels in experiment.factors.items()},
        "about": f"about {format_seconds(seconds)}", "expected_seconds": seconds,
    }  # fmt: skip


def plan_for(name: str, wishes: RunOptions, command: str, say: Say) -> tuple[Plan, Host]:
    """The plan and its host; everything that can be wrong with the input is found before anything starts."""
    experiment = definitions().experiment(name)
    if wishes.cage is not None:
        definitions().cage(wishes.cage, experiment.sizes["full"].total_bytes)
    host = choose_host(wishes.host, wishes.data_dir, say)
    try:
        plan = build_plan(wishes, with_driver(with_cage(experiment, wishes.cage), wishes.driver), host, command, say)
        check_memory_floor(plan)
    except BaseException:
        host.stop()
        raise
    return plan, host


def new(name: str, wishes: RunOptions, command: str, yes: bool, say: Say) -> PreparedRun:
    """A run that starts now."""
    definitions().experiment(name)
    require_workloads(make_kit(TOP))
    return begun(*plan_for(name, wishes, command, say), yes, say)


def begun(plan: Plan, host: Host, yes: bool, say: Say) -> PreparedRun:
    """The run of a plan, with its folder; asks before it changes a setting of the disk that holds /.

    The folder is made last: a run that is refused leaves none.
    """
    try:
        _prepare(plan, host, yes, say)
        return PreparedRun(plan, RunFolder.create(RUNS, plan), host)
    except BaseException:
        host.stop()
        raise


def resumed(name: str, wishes: RunOptions, yes: bool, say: Say) -> PreparedRun:
    """The newest run of an experiment, to be finished. Refuses when its definition has changed since."""
    refuse_new_wishes(wishes)
    folder = find_run(RUNS, name)
    plan = folder.plan()
    if plan.document.get("replay") is None:
        require_same_definition(plan)
    if wishes.host not in ("auto", plan.document["host"]):
        what = f"{plan.run_id} is a run on {plan.document['host']}, and --host says {wishes.host}"
        raise PagecageError(what, "leave --host out, or start a new run")
    host = choose_host(plan.document["host"], wishes.data_dir, say)
    try:
        if folder.remaining(plan):
            _prepare(plan, host, yes, say)
    except BaseException:
        host.stop()
        raise
    return PreparedRun(plan, folder, host)


def _prepare(plan: Plan, host: Host, yes: bool, say: Say) -> None:
    """Refuse whatever can be refused before a run is there, and make the host ready to start."""
    kit = make_kit(TOP)
    require_programs(kit, plan.trials)
    _ask_before_queue_settings(plan, host, yes)
    prepare(host, plan, kit, lambda step: say(f"{step} ..."))


def refuse_new_wishes(wishes: RunOptions) -> None:
    """Refuse what would change the plan of a run that is gone on with."""
    given = [
        key for key in ("size", "cage", "repeats", "until_ci", "max_repeats", "seed", "fresh", "driver")
        if getattr(wishes, key) != getattr(RunOptions(), key)
    ]  # fmt: skip
    if given:
        option = given[0].replace("_", "-")
        raise PagecageError(f"--{option} does not go with --resume: the plan stands", f"leave --{option} out")


def require_same_definition(plan: Plan) -> None:
    """Refuse to go on where an experiment, or the one that is swept, has changed since its plan was made."""
    name = plan.document["experiment"]
    if plan.document.get("sweep"):
        name = name.removeprefix(SWEEP_PREFIX)
    if definitions().experiment(name).definition_sha256 != plan.document["definition_sha256"]:
        raise PagecageError(
            f"experiments/{name}.toml has changed since {plan.run_id} was planned",
            f"start a new run: pagecage run {name}",
        )


def carry_out(job: PreparedRun, say: Say, stdout: int = 1) -> int:
    """Run what is lacking on a host that is prepared; the exit code is 0 if every trial has its answer.

    What a replayed program prints on its standard output goes to the descriptor `stdout`.
    """
    remaining = job.folder.remaining(job.plan)
    total, guess = len(job.plan.trials), expected_seconds(remaining)
    about = "at most" if job.plan.document.get("until_ci") else "about"
    say(f"{len(remaining)} of {total} trials to run, {about} {format_seconds(guess)}: {job.folder.path.name}")
    if not remaining:
        job.host.stop()
        return EXIT_OK
    resume = f"pagecage run {job.plan.document['experiment']} --resume"
    try:
        with RunProgress(total, total - len(remaining), guess, bar=not job.streams_output) as progress:
            campaign = Campaign(job.host, job.plan, job.folder, make_kit(TOP), StdioRelay(progress, stdout))
            summary = campaign.run(is_prepared=True)
    except KeyboardInterrupt:
        raise PagecageError("interrupted; what was recorded stays", resume, EXIT_INTERRUPTED) from None
    if summary.lacking:
        say(f"{summary.lacking} trials have no answer\n  fix: {resume}")
        return EXIT_INCOMPLETE
    return EXIT_OK


def _ask_before_queue_settings(plan: Plan, host: Host, yes: bool) -> None:
    """Setting read_ahead_kb or max_sectors_kb on the disk under / touches every other program, so it is asked for."""
    if yes or not isinstance(host, LocalHost) or not any(map(sets_queue_settings, plan.trials)):
        return
    disk = host.facts()["disk"]
    if "error" in disk or disk["maj_min"] != _disk_of_root():  # an unknown disk is refused by prepare()
        return
    question = f"set {_queue_settings_of(plan)} on {disk['node']}, which holds /, for the time of each trial?"
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if not sys.stdin.isatty() or sys.stdin.readline().strip().lower() != "y":
        raise PagecageError(f"not confirmed: {question}", "add --yes, or name another --data-dir")


def sets_queue_settings(trial: Trial) -> bool:
    """Whether a trial changes settings of its disk."""
    return trial.read_ahead_kb is not None or _splits(trial)


def _splits(trial: Trial) -> bool:
    """Whether requests are split where the provider counts another I/O."""
    return trial.cage.accounting is not None and trial.cage.accounting.io_size_bytes is not None


def _queue_settings_of(plan: Plan) -> str:
    names = {"read_ahead_kb": any(t.read_ahead_kb is not None for t in plan.trials)}
    names["max_sectors_kb"] = any(map(_splits, plan.trials))
    return " and ".join(name for name, is_set in names.items() if is_set)


def _disk_of_root() -> str | None:
    """The disk under /; None where / is on none (an overlay, ZFS), so that no data directory shares it."""
    try:
        return resolve_disk(Path("/")).maj_min
    except PagecageError:
        return None


_SIGNAL_BASE = 128  # how a shell tells that a signal ended a program
# What the user can fix in the command; anything else is the host's.
_TYPED = frozenset({"workload", "data", "port", "local_disk"})


def exit_code(job: PreparedRun, status: int, say: Say) -> int:
    """The program's own status where it failed, else `status`.

    Raises PagecageError for what the host lacks or the user can fix. Of an experiment that stands in a file it is
    `status` alone.
    """
    if job.plan.document.get("replay") is None:
        return status
    last = job.folder.last_records()
    records = [last[trial.trial_id] for trial in job.plan.trials if trial.trial_id in last]
    for record in records:
        _raise_for(record)
    failed = [record for record in records if record.is_programs_own_failure]
    if not failed:
        return status
    if not job.streams_output:
        say(f"{job.plan.document['experiment']}: the program failed in {len(failed)} of {len(records)} trials")
    return shell_status(failed[0].exit.status or 0) or status


def shell_status(status: int) -> int:
    """An exit status as a shell tells it: 128 and the signal's number where one ended it."""
    return status if status >= 0 else _SIGNAL_BASE - status


def _raise_for(record: Record) -> None:
    for missed in record.missed_requirements:
        code = EXIT_USAGE if missed.requirement in _TYPED else EXIT_HOST
        raise PagecageError(missed.reason, missed.hint, code)
    if record.exit.escaped:
        raise PagecageError(record.error or "", "start what it starts there in the cage itself: pagecage shell CAGE")
    if record.exit.left_behind and record.outcome == "failed":
        hint = "keep it in the foreground by its own option, or measure until it serves: --ready-port, --ready-when"
        raise PagecageError(record.error or "", hint)


def is_all_missed(job: PreparedRun) -> bool:
    """Whether no trial came to anything because each was refused, so that there is no table to show."""
    records = job.folder.last_records().values()
    return bool(records) and all(record.outcome == "requirement_missed" for record in records)


def plan_lines(plan: Plan) -> Iterator[str]:
    """A head about the whole and one line a trial, in order."""
    document = plan.document
    datasets = {(t.files, t.dataset.size_bytes) for t in plan.trials if t.dataset}
    many = (f"{files} × {format_bytes(size)}" if files > 1 else format_bytes(size) for files, size in sorted(datasets))
    sizes = ", ".join(many) or "none"
    count, repeats = len(plan.trials), document["repeats"]
    yield f"{document['experiment']} on {document['host']}: {count} trials, {repeats} repeats of each treatment"
    if document.get("until_ci"):
        yield f"fewer, as soon as every interval is within {100 * document['until_ci']:.3g} % of its median"
    yield f"size {document['size']} ({document['size_reason']}), dataset {sizes}"
    yield f"seed {document['seed']}, fresh: {document['fresh']}"
    yield ""
    for trial in plan.trials:
        limits = " ".join(f"{name}={value}" for name, value in trial.cage.properties.items()) or "no limits"
        yield f"{trial.position + 1:>4}  block {trial.block}  {trial.trial_id:<32} cache {trial.cache:<9} {limits}"
