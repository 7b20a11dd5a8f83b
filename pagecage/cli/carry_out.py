"""From a name and wishes to a finished run: plan it or find it again, then let the campaign work."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagecage.agent.device import resolve_disk
from pagecage.campaign import Campaign, check_memory_floor, prepare
from pagecage.cli.choose import build_plan, choose_host, with_cage, with_driver
from pagecage.cli.pass_through import PassThrough
from pagecage.cli.places import RUNS, TOP
from pagecage.cli.progress import RunProgress, expected_seconds, expected_trial_seconds
from pagecage.cli.run_options import Wishes, definitions
from pagecage.cli.say import Say
from pagecage.covering import selected
from pagecage.errors import EXIT_INCOMPLETE, EXIT_INTERRUPTED, EXIT_OK, PagecageError
from pagecage.experiment import Experiment
from pagecage.hosts.host import Host
from pagecage.hosts.kit import make_kit, require_programs, require_workloads
from pagecage.hosts.local import LocalHost
from pagecage.plan import Plan
from pagecage.runs import RunFolder, find_run
from pagecage.sweep import SWEPT
from pagecage.trial import Trial
from pagecage.units import format_seconds


@dataclass(frozen=True)
class Job:
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


def plan_for(name: str, wishes: Wishes, command: str, say: Say) -> tuple[Plan, Host]:
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


def new(name: str, wishes: Wishes, command: str, yes: bool, say: Say) -> Job:
    """A run that starts now."""
    definitions().experiment(name)
    require_workloads(make_kit(TOP))
    return begun(*plan_for(name, wishes, command, say), yes, say)


def begun(plan: Plan, host: Host, yes: bool, say: Say) -> Job:
    """The run of a plan, with its folder; asks before it changes a setting of the disk that holds /.

    The folder is made last: a run that is refused leaves none.
    """
    try:
        _prepare(plan, host, yes, say)
        return Job(plan, RunFolder.create(RUNS, plan), host)
    except BaseException:
        host.stop()
        raise


def resumed(name: str, wishes: Wishes, yes: bool, say: Say) -> Job:
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
    return Job(plan, folder, host)


def _prepare(plan: Plan, host: Host, yes: bool, say: Say) -> None:
    """Refuse whatever can be refused before a run is there, and make the host ready to start."""
    kit = make_kit(TOP)
    require_programs(kit, plan.trials)
    _ask_before_knobs(plan, host, yes)
    prepare(host, plan, kit, lambda step: say(f"{step} ..."))


def refuse_new_wishes(wishes: Wishes) -> None:
    """Refuse what would change the plan of a run that is gone on with."""
    given = [
        key for key in ("size", "cage", "repeats", "until_ci", "max_repeats", "seed", "fresh", "driver")
        if getattr(wishes, key) != getattr(Wishes(), key)
    ]  # fmt: skip
    if given:
        option = given[0].replace("_", "-")
        raise PagecageError(f"--{option} does not go with --resume: the plan stands", f"leave --{option} out")


def require_same_definition(plan: Plan) -> None:
    """Refuse to go on where an experiment, or the one that is swept, has changed since its plan was made."""
    name = plan.document["experiment"]
    if plan.document.get("sweep"):
        name = name.removeprefix(SWEPT)
    if definitions().experiment(name).definition_sha256 != plan.document["definition_sha256"]:
        raise PagecageError(
            f"experiments/{name}.toml has changed since {plan.run_id} was planned",
            f"start a new run: pagecage run {name}",
        )


def carry_out(job: Job, say: Say, stdout: int = 1) -> int:
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
            campaign = Campaign(job.host, job.plan, job.folder, make_kit(TOP), PassThrough(progress, stdout))
            summary = campaign.run(is_prepared=True)
    except KeyboardInterrupt:
        raise PagecageError("interrupted; what was recorded stays", resume, EXIT_INTERRUPTED) from None
    if summary.lacking:
        say(f"{summary.lacking} trials have no answer\n  mend: {resume}")
        return EXIT_INCOMPLETE
    return EXIT_OK


def _ask_before_knobs(plan: Plan, host: Host, yes: bool) -> None:
    """Setting read_ahead_kb or max_sectors_kb on the disk under / touches every other program, so it is asked for."""
    if yes or not isinstance(host, LocalHost) or not any(map(sets_knobs, plan.trials)):
        return
    disk = host.facts()["disk"]
    if "error" in disk or disk["maj_min"] != _disk_of_root():  # an unknown disk is refused by prepare()
        return
    question = f"set {_knobs_of(plan)} on {disk['node']}, which holds /, for the time of each trial?"
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if not sys.stdin.isatty() or sys.stdin.readline().strip().lower() != "y":
        raise PagecageError(f"not confirmed: {question}", "add --yes, or name another --data-dir")


def sets_knobs(trial: Trial) -> bool:
    """Whether a trial changes settings of its disk."""
    return trial.read_ahead_kb is not None or _splits(trial)


def _splits(trial: Trial) -> bool:
    """Whether requests are split where the provider counts another I/O."""
    return trial.cage.accounting is not None and trial.cage.accounting.io_size_bytes is not None


def _knobs_of(plan: Plan) -> str:
    names = {"read_ahead_kb": any(t.read_ahead_kb is not None for t in plan.trials)}
    names["max_sectors_kb"] = any(map(_splits, plan.trials))
    return " and ".join(name for name, is_set in names.items() if is_set)


def _disk_of_root() -> str | None:
    """The disk under /; None where / is on none (an overlay, ZFS), so that no data directory shares it."""
    try:
        return resolve_disk(Path("/")).maj_min
    except PagecageError:
        return None
