"""The overhead of a fleet run, by hosts and by trials: `python -m reliability.bench.fleet GROUP`.

The controller's seconds are from the command's start to its end, less the time of the slowest
agent, from its first phase to its last. No report is made.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace

from pagecage.checkout import TOP
from pagecage.cli.fleet import hosts_of
from pagecage.cli.progress import FleetProgress
from pagecage.errors import PagecageError
from pagecage.fleet.folder import FleetFolder, FleetRequest
from pagecage.fleet.preflight import check_hosts
from pagecage.fleet.provisioning import FleetHost, make_fleet_playbook
from pagecage.fleet.rounds import FleetCampaign, HostRun, host_plans
from pagecage.hosts.agent_package import make_agent_package
from pagecage.model.plan import Plan
from pagecage.model.trial import Workload, trial_to_json
from pagecage.planning.time_left import TimeEstimate
from pagecage.runner.run_folder import RunFolder
from reliability.bench.bed import (
    Figure,
    make_plan,
    make_trial,
    scratch,
    single_figure,
    spread_figure,
)
from reliability.campaign import tell

FEW, MANY = 4, 24
MOST_SECONDS_A_HOST = 10.0


def controller_seconds(hosts: Sequence[FleetHost], trials: int, name: str) -> float:
    """One fleet run of trials of nothing; what it took beside the agents' own work."""
    package = make_agent_package(TOP)
    began = time.monotonic()
    stage = make_fleet_playbook(TOP, package, TOP / "build" / "fleet")
    ready = check_hosts(stage, "bench", hosts).ready
    plans = host_plans(_plan(trials, name), [one.host.name for one in ready], "replicate")
    folder = FleetFolder.create(
        scratch(), _plan(trials, name), FleetRequest("bench", "replicate"), plans
    )
    runs, streams = folder.host_folders(), folder.path / "streams"
    streams.mkdir()
    times = {host: TimeEstimate(trials, 0, 1.0) for host in plans}
    with FleetProgress(times) as progress:
        lanes = [
            HostRun(one.remote, plans[one.host.name], runs[one.host.name], streams, progress)
            for one in ready
        ]
        FleetCampaign(stage, folder, lanes, package, progress).run()
    whole = time.monotonic() - began
    worked = [_agent_seconds(run, trials) for run in runs.values()]
    tell(
        f"{len(hosts)} hosts, {trials} trials each: {whole:.1f} s, of which the agents worked"
        f" {max(worked):.1f} s"
    )
    return whole - max(worked)


def _agent_seconds(run: RunFolder, trials: int) -> float:
    records = run.records()
    if len(records) != trials:
        raise PagecageError(
            f"{run.path.name} has {len(records)} records of {trials}", "look at its host"
        )
    phases = [phase for record in records for phase in record.phases]
    start = min(phase.start_monotonic_seconds for phase in phases)
    return float(max(phase.start_monotonic_seconds + phase.seconds for phase in phases) - start)


def _plan(count: int, name: str) -> Plan:
    sleep = Workload("sleep", ("0.3",), "command")
    plan = make_plan([make_trial(f"nothing_{n}", sleep, position=n) for n in range(count)])
    run_id = plan.run_id.replace("Z-", f"Z{name}-") + "-fleet"
    rows = [trial_to_json(trial) for trial in plan.trials]
    more = {"command": "", "run_id": run_id, "host": "bench", "trials": rows}
    return replace(plan, run_id=run_id, document={**plan.document, **more})


def _seconds(name: str, few: float, many: float) -> Figure:
    aim, says = f"under {MOST_SECONDS_A_HOST:.0f}", f"{FEW} and {MANY} trials of nothing"
    return spread_figure(name, (few, many), aim, lambda middle: middle < MOST_SECONDS_A_HOST, says)


def main(group: str) -> int:
    """Measure with one host and with all, with few trials and with many; write
    build/bench-fleet.json.
    """
    hosts = hosts_of(group)
    controller_seconds(hosts, 1, "w")  # brings the package, which a host has from then on
    one_few = controller_seconds(hosts[:1], FEW, "a")
    one_many = controller_seconds(hosts[:1], MANY, "b")
    more = len(hosts) - 1
    all_few = controller_seconds(hosts, FEW, "c") if more else one_few
    all_many = controller_seconds(hosts, MANY, "d") if more else one_many
    figures = [_seconds("controller seconds, the first host", one_few, one_many)]
    if more:
        further = ((all_few - one_few) / more, (all_many - one_many) / more)
        figures.append(_seconds("and each further one", *further))
    ratio, says = all_many / all_few, f"{all_few:.1f} and {all_many:.1f} s on {len(hosts)} hosts"
    name = "24 trials / 4 trials, all hosts"
    figures.append(single_figure(name, ratio, "about 1", ratio < 1.5, says))
    for figure in figures:
        tell(f"{figure.name}: {figure.ratio:.2f} ({figure.aim}; {figure.says})")
    (TOP / "build/bench-fleet.json").write_text(
        json.dumps([asdict(figure) for figure in figures], indent=1) + "\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "guests"))
