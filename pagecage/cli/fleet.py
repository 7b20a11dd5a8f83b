"""`pagecage run NAME --host GROUP`: one experiment on every host of a group."""

from __future__ import annotations

from pagecage.checkout import BUILD, RUNS, TOP
from pagecage.cli.analyse import report
from pagecage.cli.fleet_hosts import check_group, hosts_of
from pagecage.cli.fleet_plan import PreparedFleetRun, plan_for
from pagecage.cli.new_commands import ask_before_commands
from pagecage.cli.output import Notify, OutputFormat
from pagecage.cli.progress import FleetProgress, expected_seconds
from pagecage.cli.resume import ResumeOptions, refuse_plan_options, require_same_definition
from pagecage.cli.run_options import FleetOptions, RunOptions, definitions
from pagecage.errors import EXIT_INCOMPLETE, EXIT_INTERRUPTED, EXIT_OK, PagecageError
from pagecage.fleet.folder import FleetFolder, FleetRequest, find_fleet
from pagecage.fleet.host_run import HostRun
from pagecage.fleet.playbook import make_fleet_playbook
from pagecage.fleet.rounds import FleetCampaign
from pagecage.hosts.agent_package import make_agent_package, require_programs
from pagecage.process import replay
from pagecage.units import format_seconds


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
