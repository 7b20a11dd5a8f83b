"""Runs over a fleet: its hosts, plans and progress."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from pagecage.checkout import BUILD, RUNS, TOP
from pagecage.cli.analyse import report
from pagecage.cli.enforcement import sets_queue_settings
from pagecage.cli.known_definitions import ask_before_commands
from pagecage.cli.options import HOSTS, FleetOptions, RunOptions, definitions
from pagecage.cli.output import Notify, OutputFormat
from pagecage.cli.progress import FleetProgress, expected_seconds
from pagecage.cli.run import ResumeOptions, refuse_plan_options, require_same_definition
from pagecage.cli.run_plan import build_plan, with_cage
from pagecage.errors import (
    EXIT_INCOMPLETE,
    EXIT_INTERRUPTED,
    EXIT_OK,
    HostError,
    PagecageError,
    nearest,
)
from pagecage.fleet.folder import FleetFolder, FleetRequest, find_fleet
from pagecage.fleet.preflight import Preflight, ReadyHost, check_hosts, differences
from pagecage.fleet.provisioning import FleetHost, FleetPlaybook, find_group, make_fleet_playbook
from pagecage.fleet.rounds import FleetCampaign, HostRun, host_plans
from pagecage.hosts.agent_package import make_agent_package, require_programs
from pagecage.hosts.host import Progress
from pagecage.planning.plan import Plan, plan_to_json
from pagecage.process import replay
from pagecage.runner.resource_needs import check_memory_floor
from pagecage.units import format_seconds


@dataclass(frozen=True)
class HostGroup:
    """A group of hosts, for choosing a size."""

    name: str
    hosts: tuple[ReadyHost, ...]

    def is_emulated(self, progress: Progress) -> bool:  # noqa: ARG002 - the facts are known already
        """Return whether any of the hosts is emulated."""
        return any(host.is_emulated for host in self.hosts)


def hosts_of(group: str) -> tuple[FleetHost, ...]:
    """Return the hosts of a group. Raises PagecageError if no inventory has the group."""
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


def check_group(
    playbook: FleetPlaybook,
    group: str,
    hosts: tuple[FleetHost, ...],
    skip_unreachable: bool,
    notify: Notify,
    busy: Collection[str] = (),
) -> Preflight:
    """Check every host of a group.

    Raises HostError or PagecageError if a host is unsuitable or, unless it is skipped, unreachable.
    """
    if hosts:
        notify(f"checking {len(hosts)} host{'s' if len(hosts) != 1 else ''} of {group} ...")
    preflight = check_hosts(playbook, group, hosts, busy)
    for error in preflight.unfit.values():
        raise error
    for name, error in preflight.unreachable.items():
        if not skip_unreachable:
            raise HostError(
                error.message, f"bring {name} back, or leave out such hosts: --skip-unreachable"
            )
        notify(f"left out: {error.message}")
    if not preflight.ready:
        raise HostError(
            f"no host of {group} answers",
            f"find out why: ansible -i ansible/inventory {group} -m ping",
        )
    return preflight


def refuse_root_disks(plan: Plan, hosts: tuple[ReadyHost, ...]) -> None:
    """Raise PagecageError if a run would change settings of a disk that holds /.

    On a group of hosts the user is not asked.
    """
    on_root = [ready.host.name for ready in hosts if ready.facts["disk"].get("mount_point") == "/"]
    if on_root and any(map(sets_queue_settings, plan.trials)):
        raise PagecageError(
            f"each trial would change settings of the disk that holds / on {', '.join(on_root)}",
            "add --yes, or set another disk in pagecage_data_device",
        )


@dataclass(frozen=True)
class PreparedFleetRun:
    """A fleet run with its folder, its playbook, and the hosts that take part."""

    playbook: FleetPlaybook
    folder: FleetFolder
    hosts: tuple[ReadyHost, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)


def plan_for(
    name: str,
    options: RunOptions,
    fleet_options: FleetOptions,
    command: str,
    yes: bool,
    notify: Notify,
) -> tuple[Plan, dict[str, Plan], PreparedFleetRun]:
    """Return the whole plan, the plan of each host, and the run, whose folder does not exist yet.

    All errors in the input and all unsuitable hosts are found here, before anything starts.
    """
    experiment = definitions().experiment(name)
    _refuse_options(options)
    group = hosts_of(options.host)
    playbook = make_fleet_playbook(TOP, make_agent_package(TOP), BUILD / "fleet")
    preflight = check_group(playbook, options.host, group, fleet_options.skip_unreachable, notify)
    hosts = preflight.ready
    if fleet_options.fleet == "spread" and not fleet_options.mixed:
        _refuse_differences(hosts)
    plan = build_plan(
        options,
        with_cage(experiment, options.cage),
        HostGroup(options.host, hosts),
        command,
        notify,
    )
    check_memory_floor(plan)
    if not yes:
        refuse_root_disks(plan, hosts)
    plans = host_plans(plan, [ready.host.name for ready in hosts], fleet_options.fleet)
    left_out = {host: error.message for host, error in preflight.unreachable.items()}
    return plan, plans, PreparedFleetRun(playbook, FleetFolder(RUNS / plan.run_id), hosts, left_out)


def _refuse_options(options: RunOptions) -> None:
    """Raise PagecageError for an option that does not apply to a group of hosts."""
    if options.until_ci is not None:
        raise PagecageError("--until-ci does not work on a group of hosts", "use --repeats")
    if options.data_dir is not None:
        raise PagecageError(
            "--data-dir applies only to --host local",
            "set pagecage_data_dir in the inventory (docs/HOSTS.md)",
        )
    if options.disk:
        raise PagecageError(
            "--disk applies only to --host local",
            "set pagecage_disks in the inventory (docs/HOSTS.md)",
        )


def _refuse_differences(hosts: tuple[ReadyHost, ...]) -> None:
    """Raise PagecageError if the hosts differ in a fact that trials depend on."""
    if differing := list(differences(hosts)):
        raise PagecageError(
            f"these hosts differ: {'; '.join(differing)}", "--fleet replicate, or --mixed"
        )


def show_plan(
    name: str,
    options: RunOptions,
    fleet_options: FleetOptions,
    command: str,
    as_json: bool,
    notify: Notify,
) -> int:
    """Print the plan of each host; start nothing."""
    plan, plans, _ = plan_for(name, options, fleet_options, command, True, notify)
    if as_json:
        print(json.dumps({host: plan_to_json(host_plan) for host, host_plan in plans.items()}))
    else:
        print("\n".join(plan_lines(plan, plans, fleet_options.fleet)))
    return EXIT_OK


def plan_lines(plan: Plan, plans: dict[str, Plan], mode: str) -> Iterator[str]:
    """Yield the plan of a fleet run: each host with its trials and their estimated duration."""
    document = plan.document
    yield (
        f"{document['experiment']} on {document['host']}, {mode}: size {document['size']}"
        f" ({document['size_reason']})"
    )
    width = max(map(len, plans))
    for host, host_plan in plans.items():
        repeats = len({trial.block for trial in host_plan.trials})
        about = format_seconds(expected_seconds(host_plan.trials))
        yield (
            f"  {host:<{width}} {len(host_plan.trials):>4} trials, {repeats} repeats of each"
            f" treatment, about {about}"
        )


def new_run(
    name: str,
    options: RunOptions,
    fleet_options: FleetOptions,
    command: str,
    yes: bool,
    notify: Notify,
) -> PreparedFleetRun:
    """Prepare a new fleet run. Raises HostError if one of its programs is not compiled."""
    ask_before_commands(definitions().experiment(name), options.host, yes=yes)
    plan, plans, prepared = plan_for(name, options, fleet_options, command, yes, notify)
    require_programs(make_agent_package(TOP), plan.trials)
    FleetFolder.create(
        RUNS, plan, FleetRequest(options.host, fleet_options.fleet, prepared.left_out), plans
    )
    return prepared


def resume_run(
    name: str, options: RunOptions, fleet_options: FleetOptions, yes: bool, notify: Notify
) -> PreparedFleetRun:
    """Prepare the newest run of an experiment on this group, to be finished."""
    refuse_plan_options(options)
    folder = find_fleet(RUNS, f"{name}@{options.host}")
    if folder is None:
        raise PagecageError(
            f"there is no run of {name} on {options.host}",
            f"pagecage run {name} --host {options.host}",
        )
    folders = folder.host_folders()
    experiment = require_same_definition(next(iter(folders.values())).plan())
    ask_before_commands(experiment, options.host, yes=yes)
    open_hosts = {host for host, run in folders.items() if run.remaining(run.plan())}
    inventory_hosts = {host.name: host for host in hosts_of(options.host)}
    if missing := sorted(open_hosts - set(inventory_hosts)):
        raise PagecageError(
            f"{missing[0]} is no longer in {options.host}", "put it back into the inventory"
        )
    playbook = make_fleet_playbook(TOP, make_agent_package(TOP), BUILD / "fleet")
    # A host may have all results and still a stream, whose round was not ended there.
    busy = folder.unfetched_hosts()
    hosts = tuple(host for name, host in inventory_hosts.items() if name in open_hosts | busy)
    if not hosts:
        return PreparedFleetRun(playbook, folder, ())
    preflight = check_group(
        playbook, options.host, hosts, fleet_options.skip_unreachable, notify, busy
    )
    return PreparedFleetRun(playbook, folder, preflight.ready)


def run(
    name: str,
    options: RunOptions,
    fleet_options: FleetOptions,
    command: str,
    resumption: ResumeOptions,
    yes: bool,
    output_format: OutputFormat,
    notify: Notify,
) -> int:
    """Start or resume a fleet run, execute it, and show its report."""
    if resumption.resume:
        prepared = resume_run(name, options, fleet_options, yes, notify)
    else:
        prepared = new_run(name, options, fleet_options, command, yes, notify)
    status = execute(prepared, notify)
    if any(run.records() for run in prepared.folder.host_folders().values()):
        report(prepared.folder.path, output_format.options(), notify)
    return status


def execute(prepared: PreparedFleetRun, notify: Notify) -> int:
    """Run the remaining trials on every host.

    Returns EXIT_OK if every trial of the plan has a result.
    """
    folders = prepared.folder.host_folders()
    plans = {ready.host.name: folders[ready.host.name].plan() for ready in prepared.hosts}
    remaining = {host: folders[host].remaining(plan) for host, plan in plans.items()}
    counts = {
        host: (len(plan.trials), len(plan.trials) - len(remaining[host]))
        for host, plan in plans.items()
    }
    estimate = max((expected_seconds(trials) for trials in remaining.values()), default=0.0)
    total = sum(map(len, remaining.values()))
    notify(
        f"{total} trials to run on {len(plans)} hosts, about {format_seconds(estimate)}:"
        f" {prepared.folder.path.name}"
    )
    streams = prepared.folder.path / "streams"
    streams.mkdir(exist_ok=True)
    with FleetProgress(
        counts, estimate / max(1, max(map(len, remaining.values()), default=1))
    ) as progress:
        host_runs = [
            HostRun(
                ready.remote, plans[ready.host.name], folders[ready.host.name], streams, progress
            )
            for ready in prepared.hosts
        ]
        try:
            FleetCampaign(
                prepared.playbook, prepared.folder, host_runs, make_agent_package(TOP), progress
            ).run()
        except KeyboardInterrupt:
            hint = resume_command(prepared.folder.document())
            raise PagecageError(
                "interrupted; finished trials are kept", hint, EXIT_INTERRUPTED
            ) from None
    return report_unfinished(prepared.folder, notify)


def resume_command(document: dict[str, object]) -> str:
    """Return the command that resumes a fleet run."""
    return replay(
        [
            "pagecage",
            "run",
            str(document["experiment"]),
            "--host",
            str(document["group"]),
            "--resume",
        ]
    )


def report_unfinished(folder: FleetFolder, notify: Notify) -> int:
    """Print which hosts have trials without a result, and why; return the exit code."""
    unfinished = {
        host: len(run.remaining(run.plan())) for host, run in folder.host_folders().items()
    }
    results = folder.last_results()
    for host, count in unfinished.items():
        if count:
            result = results.get(host)
            reason = f" ({result.outcome}: {result.reason})" if result and result.reason else ""
            notify(f"{host}: {count} trials have no result{reason}")
    if any(unfinished.values()):
        notify(f"  fix: {resume_command(folder.document())}")
        return EXIT_INCOMPLETE
    return EXIT_OK
