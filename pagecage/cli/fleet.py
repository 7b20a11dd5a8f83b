"""Runs over a fleet: its hosts, plans and progress."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from pagecage.checkout import BUILD, RUNS, TOP
from pagecage.cli.execution import ask_before_commands, refuse_plan_options, require_same_definition
from pagecage.cli.progress import FleetProgress
from pagecage.cli.run import ResumeOptions
from pagecage.cli.show import report
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
from pagecage.model.plan import Plan, plan_to_json
from pagecage.planning.cage_choice import cage_name
from pagecage.planning.enforcement import queue_settings
from pagecage.planning.options import HOSTS, FleetOptions, RunOptions, definitions
from pagecage.planning.plan import with_cage, with_ready_port
from pagecage.planning.run_plan import build_plan
from pagecage.planning.size import expected_seconds
from pagecage.planning.time_left import TimeEstimate
from pagecage.process import replay
from pagecage.runner.resource_needs import check_memory_floor
from pagecage.terminal import Notify
from pagecage.units import format_seconds


@dataclass(frozen=True)
class HostGroup:
    """A group of hosts, for choosing a size."""

    name: str
    hosts: tuple[ReadyHost, ...]

    def is_emulated(self, progress: Progress) -> bool:  # noqa: ARG002 - the facts are known already
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


@dataclass(frozen=True)
class PreparedFleetRun:
    """A fleet run with its folder, its playbook, and the hosts that take part."""

    playbook: FleetPlaybook
    folder: FleetFolder
    hosts: tuple[ReadyHost, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class FleetCommand:
    """A run of an experiment on a group of hosts, as it was asked for."""

    name: str
    options: RunOptions
    fleet_options: FleetOptions
    command: str
    yes: bool
    notify: Notify

    def plan(self) -> tuple[Plan, dict[str, Plan], PreparedFleetRun]:
        """Return the whole plan, each host's, and the run, whose folder does not exist yet."""
        options, fleet_options, group = self.options, self.fleet_options, self.options.host
        experiment = definitions().experiment(self.name)
        _refuse_options(options)
        named, playbook = hosts_of(group), make_playbook()
        preflight = self._checked(playbook, named)
        hosts = preflight.ready
        must_be_alike = fleet_options.fleet == "spread" and not fleet_options.mixed
        if must_be_alike and (differing := list(differences(hosts))):
            raise PagecageError(
                f"these hosts differ: {'; '.join(differing)}", "--fleet replicate, or --mixed"
            )
        caged = with_ready_port(
            with_cage(experiment, *map(cage_name, options.cage)), options.ready_port
        )
        plan = build_plan(options, caged, HostGroup(group, hosts), self.command, self.notify)
        check_memory_floor(plan)
        on_root = [one.host.name for one in hosts if one.facts["disk"].get("mount_point") == "/"]
        if on_root and not self.yes and any(map(queue_settings, plan.trials)):  # it cannot ask
            raise PagecageError(
                f"each trial would change settings of the disk that holds / on"
                f" {', '.join(on_root)}",
                "add --yes, or set another disk in pagecage_data_device",
            )
        plans = host_plans(plan, [ready.host.name for ready in hosts], fleet_options.fleet)
        left_out = {host: error.message for host, error in preflight.unreachable.items()}
        folder = FleetFolder(RUNS / plan.run_id)
        return plan, plans, PreparedFleetRun(playbook, folder, hosts, left_out)

    def _checked(
        self, playbook: FleetPlaybook, hosts: tuple[FleetHost, ...], busy: Collection[str] = ()
    ) -> Preflight:
        group, notify = self.options.host, self.notify
        if hosts:
            notify(f"checking {len(hosts)} host{'s' if len(hosts) != 1 else ''} of {group} ...")
        preflight = check_hosts(playbook, group, hosts, busy)
        for error in preflight.unfit.values():
            raise error
        for name, error in preflight.unreachable.items():
            if not self.fleet_options.skip_unreachable:
                raise HostError(
                    error.message, f"bring {name} back, or leave out such hosts: --skip-unreachable"
                )
            notify(f"left out: {error.message}")
        if not preflight.ready:
            message = f"no host of {group} answers"
            raise HostError(message, f"find out why: ansible -i ansible/inventory {group} -m ping")
        return preflight

    def show_plan(self, as_json: bool) -> int:
        plan, plans, _ = self.plan()
        if as_json:
            print(json.dumps({host: plan_to_json(host_plan) for host, host_plan in plans.items()}))
        else:
            print("\n".join(plan_lines(plan, plans, self.fleet_options.fleet)))
        return EXIT_OK

    def run(self, resumption: ResumeOptions, form: str) -> int:
        if resumption.resume:
            prepared = self._resumed()
        else:
            experiment, group = definitions().experiment(self.name), self.options.host
            ask_before_commands(experiment, group, yes=self.yes)
            plan, plans, prepared = self.plan()
            require_programs(make_agent_package(TOP), plan.trials)
            request = FleetRequest(group, self.fleet_options.fleet, prepared.left_out)
            FleetFolder.create(RUNS, plan, request, plans)
        status = execute(prepared, self.notify)
        if any(run.records() for run in prepared.folder.host_folders().values()):
            report(prepared.folder.path, form)
        return status

    def _resumed(self) -> PreparedFleetRun:
        """Prepare the newest run of an experiment on this group, to be finished."""
        name, group = self.name, self.options.host
        refuse_plan_options(self.options)
        folder = find_fleet(RUNS, f"{name}@{group}")
        if folder is None:
            raise PagecageError(
                f"there is no run of {name} on {group}", f"pagecage run {name} --host {group}"
            )
        folders = folder.host_folders()
        experiment = require_same_definition(next(iter(folders.values())).plan())
        ask_before_commands(experiment, group, yes=self.yes)
        open_hosts = {host for host, run in folders.items() if run.remaining(run.plan())}
        inventory_hosts = {host.name: host for host in hosts_of(group)}
        if missing := sorted(open_hosts - set(inventory_hosts)):
            raise PagecageError(
                f"{missing[0]} is no longer in {group}", "put it back into the inventory"
            )
        # A host may have all results and still a stream, whose round was not ended there.
        busy = folder.unfetched_hosts()
        hosts = tuple(host for name, host in inventory_hosts.items() if name in open_hosts | busy)
        playbook = make_playbook()
        ready = self._checked(playbook, hosts, busy).ready if hosts else ()
        return PreparedFleetRun(playbook, folder, ready)


def make_playbook() -> FleetPlaybook:
    return make_fleet_playbook(TOP, make_agent_package(TOP), BUILD / "fleet")


def _refuse_options(options: RunOptions) -> None:
    if options.until_ci is not None:
        raise PagecageError("--until-ci does not work on a group of hosts", "use --repeats")
    for option, value, variable in (
        ("--data-dir", options.data_dir, "pagecage_data_dir"),
        ("--disk", options.disk, "pagecage_disks"),
    ):
        if value:
            message = f"{option} applies only to --host local"
            raise PagecageError(message, f"set {variable} in the inventory (docs/HOSTS.md)")


def plan_lines(plan: Plan, plans: dict[str, Plan], mode: str) -> Iterator[str]:
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


def execute(prepared: PreparedFleetRun, notify: Notify) -> int:
    folders = prepared.folder.host_folders()
    plans = {ready.host.name: folders[ready.host.name].plan() for ready in prepared.hosts}
    remaining = {host: folders[host].remaining(plan) for host, plan in plans.items()}
    times = {
        host: TimeEstimate.of(
            len(plan.trials),
            remaining[host],
            folders[host].last_records().values(),
            expected_seconds(remaining[host]),
        )
        for host, plan in plans.items()
    }
    estimate = max((one.left_seconds for one in times.values()), default=0.0)
    total = sum(map(len, remaining.values()))
    notify(
        f"{total} trials to run on {len(plans)} hosts, about {format_seconds(estimate)}:"
        f" {prepared.folder.path.name}"
    )
    streams = prepared.folder.path / "streams"
    streams.mkdir(exist_ok=True)
    package = make_agent_package(TOP)
    with FleetProgress(times) as progress:
        host_runs = [
            HostRun(
                ready.remote, plans[ready.host.name], folders[ready.host.name], streams, progress
            )
            for ready in prepared.hosts
        ]
        try:
            FleetCampaign(prepared.playbook, prepared.folder, host_runs, package, progress).run()
        except KeyboardInterrupt:
            hint = resume_command(prepared.folder.document())
            raise PagecageError(
                "interrupted; finished trials are kept", hint, EXIT_INTERRUPTED
            ) from None
    return report_unfinished(prepared.folder, notify)


def resume_command(document: dict[str, object]) -> str:
    experiment, group = str(document["experiment"]), str(document["group"])
    return replay(["pagecage", "run", experiment, "--host", group, "--resume"])


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
