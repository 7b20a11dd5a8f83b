"""The plan of a run on a group of hosts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pagecage.checkout import BUILD, RUNS, TOP
from pagecage.cli.fleet_hosts import HostGroup, check_group, hosts_of, refuse_root_disks
from pagecage.cli.output import Notify
from pagecage.cli.progress import expected_seconds
from pagecage.cli.run_options import FleetOptions, RunOptions, definitions
from pagecage.cli.run_plan import build_plan, with_cage
from pagecage.errors import EXIT_OK, PagecageError
from pagecage.fleet.folder import FleetFolder
from pagecage.fleet.host_plans import host_plans
from pagecage.fleet.playbook import FleetPlaybook, make_fleet_playbook
from pagecage.fleet.preflight import ReadyHost, differences
from pagecage.hosts.agent_package import make_agent_package
from pagecage.planning.plan import Plan, plan_to_json
from pagecage.runner.resource_needs import check_memory_floor
from pagecage.units import format_seconds


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
