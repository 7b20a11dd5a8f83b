"""`pagecage run NAME --host GROUP`: one experiment on every host of an inventory's group, in one run and one report."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from pagecage.checkout import RUNS, TOP
from pagecage.cli.analyse import report
from pagecage.cli.execution import refuse_new_wishes, require_same_definition, sets_queue_settings
from pagecage.cli.output import OutputFormat
from pagecage.cli.progress import FleetProgress, expected_seconds
from pagecage.cli.run_options import HOSTS, FleetOptions, RunOptions, definitions
from pagecage.cli.run_plan import build_plan, with_cage
from pagecage.errors import EXIT_INCOMPLETE, EXIT_INTERRUPTED, EXIT_OK, HostError, PagecageError, nearest
from pagecage.fleet.folder import FleetFolder, FleetRequest, find_fleet
from pagecage.fleet.host_plans import host_plans
from pagecage.fleet.host_run import HostRun
from pagecage.fleet.inventory import FleetHost, find_group
from pagecage.fleet.playbook import FleetPlaybook, make_stage
from pagecage.fleet.preflight import Preflight, ReadyHost, look, unlike
from pagecage.fleet.rounds import FleetCampaign
from pagecage.hosts.agent_package import make_kit
from pagecage.hosts.host import Progress
from pagecage.planning.plan import Plan, plan_to_json
from pagecage.process import replay
from pagecage.runner.campaign import check_memory_floor
from pagecage.units import format_seconds

Say = Callable[[str], None]


@dataclass(frozen=True)
class HostGroup:
    """A group of hosts in the place of one host, where a plan is made."""

    name: str
    seen: tuple[ReadyHost, ...]

    def is_emulated(self, progress: Progress) -> bool:  # noqa: ARG002 - facts have told
        """Whether any of them is, so that the size that is chosen suits all."""
        return any(one.is_emulated for one in self.seen)


@dataclass(frozen=True)
class ResumeOptions:
    """Whether a run that is there is gone on with, and whether changing settings of a disk with / was agreed to."""

    resume: bool
    yes: bool


@dataclass(frozen=True)
class PreparedFleetRun:
    """A fleet run with its folder, where it plays, and the hosts that take part."""

    stage: FleetPlaybook
    folder: FleetFolder
    seen: tuple[ReadyHost, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)


def hosts_of(group: str) -> tuple[FleetHost, ...]:
    """The hosts of a group. Raises PagecageError for one that no inventory has."""
    try:
        return find_group(group)
    except PagecageError as error:
        close = nearest(group, list(HOSTS))
        if close.startswith("did you mean"):
            raise PagecageError(f"there is no host {group!r}", close) from None
        if isinstance(error, HostError):
            raise
        hint = f"auto, local, vm, or a group: {error.hint}"
        raise PagecageError(f"there is no host {group!r}, and {error.message}", hint) from None


def planned(
    name: str, wishes: RunOptions, own: FleetOptions, command: str, yes: bool, say: Say
) -> tuple[Plan, dict[str, Plan], PreparedFleetRun]:
    """The whole plan, each host's, and a job whose folder is not made yet; whatever is wrong is found here."""
    experiment = definitions().experiment(name)
    if wishes.until_ci is not None:
        raise PagecageError("--until-ci decides while one host runs, and a fleet has many", "use --repeats")
    if wishes.data_dir is not None:
        raise PagecageError("--data-dir is for host local", "set pagecage_data_dir in the inventory (docs/HOSTS.md)")
    hosts = hosts_of(wishes.host)
    stage = make_stage(TOP, make_kit(TOP), TOP / "build" / "fleet")
    found = _able(stage, wishes.host, hosts, own.skip_unreachable, say)
    seen = found.seen
    if own.fleet == "spread" and not own.mixed and (differing := list(unlike(seen))):
        raise PagecageError(f"these hosts are not alike: {'; '.join(differing)}", "--fleet replicate, or --mixed")
    plan = build_plan(wishes, with_cage(experiment, wishes.cage), HostGroup(wishes.host, seen), command, say)
    check_memory_floor(plan)
    if not yes:
        _refuse_root_disks(plan, seen)
    plans = host_plans(plan, [one.host.name for one in seen], own.fleet)
    left_out = {host: error.message for host, error in found.unreachable.items()}
    return plan, plans, PreparedFleetRun(stage, FleetFolder(RUNS / plan.run_id), seen, left_out)


def new(name: str, wishes: RunOptions, own: FleetOptions, command: str, yes: bool, say: Say) -> PreparedFleetRun:
    """A fleet run that starts now."""
    plan, plans, job = planned(name, wishes, own, command, yes, say)
    FleetFolder.create(RUNS, plan, FleetRequest(wishes.host, own.fleet, job.left_out), plans)
    return job


def resumed(name: str, wishes: RunOptions, own: FleetOptions, say: Say) -> PreparedFleetRun:
    """The newest run of an experiment on this group, to be finished on the hosts that lack something."""
    refuse_new_wishes(wishes)
    folder = find_fleet(RUNS, f"{name}@{wishes.host}")
    if folder is None:
        raise PagecageError(f"there is no run of {name} on {wishes.host}", f"pagecage run {name} --host {wishes.host}")
    folders = folder.host_folders()
    require_same_definition(next(iter(folders.values())).plan())
    open_hosts = {host for host, run in folders.items() if run.remaining(run.plan())}
    known = {host.name: host for host in hosts_of(wishes.host)}
    if gone := sorted(open_hosts - set(known)):
        raise PagecageError(f"{gone[0]} is no more in {wishes.host}", "put it back into the inventory")
    stage = make_stage(TOP, make_kit(TOP), TOP / "build" / "fleet")
    wanted = tuple(host for name, host in known.items() if name in open_hosts)
    left_working = folder.left_working()
    if not wanted:
        return PreparedFleetRun(stage, folder, ())
    return PreparedFleetRun(
        stage, folder, _able(stage, wishes.host, wanted, own.skip_unreachable, say, left_working).seen
    )


def _able(
    stage: FleetPlaybook,
    group: str,
    hosts: tuple[FleetHost, ...],
    skip: bool,
    say: Say,
    left_working: Collection[str] = (),
) -> Preflight:
    """The hosts that can serve. Refuses when one cannot, and when one does not answer unless these are skipped."""
    if hosts:
        say(f"looking at {len(hosts)} host{'s' if len(hosts) != 1 else ''} of {group} ...")
    found = look(stage, group, hosts, left_working)
    for error in found.unfit.values():
        raise error
    for name, error in found.unreachable.items():
        if not skip:
            raise HostError(error.message, f"bring {name} back, or leave such hosts out: --skip-unreachable")
        say(f"left out: {error.message}")
    if not found.seen:
        raise HostError(f"no host of {group} answers", "ansible -m ping tells why")
    return found


def _refuse_root_disks(plan: Plan, seen: tuple[ReadyHost, ...]) -> None:
    """Nobody can be asked on so many hosts whether a setting of the disk that holds / may be changed."""
    on_root = [one.host.name for one in seen if one.facts["disk"].get("mount_point") == "/"]
    if on_root and any(map(sets_queue_settings, plan.trials)):
        raise PagecageError(
            f"settings of the disk that holds / would be changed on {', '.join(on_root)}, for the time of each trial",
            "add --yes, or name another disk in pagecage_data_device",
        )


def run(
    name: str, wishes: RunOptions, own: FleetOptions, command: str, again: ResumeOptions, form: OutputFormat, say: Say
) -> int:
    """Start or resume a fleet run, carry it out, and show its report."""
    job = resumed(name, wishes, own, say) if again.resume else new(name, wishes, own, command, again.yes, say)
    status = carry_out(job, say)
    if any(run.records() for run in job.folder.host_folders().values()):
        report(job.folder.path, form.options(), say)
    return status


def show_plan(name: str, wishes: RunOptions, own: FleetOptions, command: str, as_json: bool, say: Say) -> int:
    """Print each host's part, and start nothing."""
    plan, plans, _ = planned(name, wishes, own, command, True, say)
    if as_json:
        print(json.dumps({host: plan_to_json(one) for host, one in plans.items()}))
    else:
        print("\n".join(plan_lines(plan, plans, own.fleet)))
    return EXIT_OK


def plan_lines(plan: Plan, plans: dict[str, Plan], mode: str) -> Iterator[str]:
    """What a fleet run would do: each host with its trials, and how long that takes."""
    document = plan.document
    yield f"{document['experiment']} on {document['host']}, {mode}: size {document['size']} ({document['size_reason']})"
    width = max(map(len, plans))
    for host, own in plans.items():
        repeats = len({trial.block for trial in own.trials})
        about = format_seconds(expected_seconds(own.trials))
        yield f"  {host:<{width}} {len(own.trials):>4} trials, {repeats} repeats of each treatment, about {about}"


def carry_out(job: PreparedFleetRun, say: Say) -> int:
    """Run what is lacking on every host that takes part; the exit code tells whether every trial has its answer."""
    folders = job.folder.host_folders()
    plans = {one.host.name: folders[one.host.name].plan() for one in job.seen}
    lacking = {host: folders[host].remaining(plan) for host, plan in plans.items()}
    counts = {host: (len(plan.trials), len(plan.trials) - len(lacking[host])) for host, plan in plans.items()}
    guess = max((expected_seconds(trials) for trials in lacking.values()), default=0.0)
    total = sum(map(len, lacking.values()))
    say(f"{total} trials to run on {len(plans)} hosts, about {format_seconds(guess)}: {job.folder.path.name}")
    streams = job.folder.path / "streams"
    streams.mkdir(exist_ok=True)
    with FleetProgress(counts, guess / max(1, max(map(len, lacking.values()), default=1))) as progress:
        lanes = [
            HostRun(one.place, plans[one.host.name], folders[one.host.name], streams, progress) for one in job.seen
        ]
        try:
            FleetCampaign(job.stage, job.folder, lanes, make_kit(TOP), progress).run()
        except KeyboardInterrupt:
            hint = resume_command(job.folder.document())
            raise PagecageError("interrupted; what was recorded stays", hint, EXIT_INTERRUPTED) from None
    return ended(job.folder, say)


def resume_command(document: dict[str, object]) -> str:
    """The command that goes on with a fleet run."""
    return replay(["pagecage", "run", str(document["experiment"]), "--host", str(document["group"]), "--resume"])


def ended(folder: FleetFolder, say: Say) -> int:
    """Say which hosts lack answers and why; the exit code."""
    lacking = {host: len(run.remaining(run.plan())) for host, run in folder.host_folders().items()}
    ends = folder.last_ends()
    for host, count in lacking.items():
        if count:
            end = ends.get(host)
            why = f" ({end.outcome}: {end.because})" if end and end.because else ""
            say(f"{host}: {count} trials have no answer{why}")
    if any(lacking.values()):
        say(f"  fix: {resume_command(folder.document())}")
        return EXIT_INCOMPLETE
    return EXIT_OK
