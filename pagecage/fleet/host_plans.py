"""Division of a group's plan into one plan per host."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from pagecage.errors import PagecageError
from pagecage.model.trial import Trial, trial_to_json
from pagecage.planning.plan import Plan


def host_plans(plan: Plan, hosts: Sequence[str], mode: str) -> dict[str, Plan]:
    """Return each host's plan by name, in the hosts' order.

    `replicate` gives each host the whole plan. `spread` deals out the blocks, each of which holds
    every treatment once, so that the host is a block factor. Raises PagecageError if there are
    fewer blocks than hosts.
    """
    if mode == "replicate":
        return {host: _host_plan(plan, host, plan.trials) for host in hosts}
    blocks = list(dict.fromkeys(trial.block for trial in plan.trials))
    if len(blocks) < len(hosts):
        raise PagecageError(
            f"{len(blocks)} repeats are too few to spread over {len(hosts)} hosts",
            f"--repeats {len(hosts)}, or --fleet replicate",
        )
    owner = {block: hosts[number % len(hosts)] for number, block in enumerate(blocks)}
    return {
        host: _host_plan(plan, host, (t for t in plan.trials if owner[t.block] == host))
        for host in hosts
    }


def _host_plan(plan: Plan, host: str, trials: Iterable[Trial]) -> Plan:
    """Return the plan with these trials, and with the host in its run id."""
    chosen = tuple(trials)
    stamp = plan.run_id.partition("-")[0]
    run_id = f"{stamp}-{plan.document['experiment']}-{host}"
    changes = {"run_id": run_id, "host": host, "trials": [trial_to_json(trial) for trial in chosen]}
    return replace(plan, run_id=run_id, trials=chosen, document={**plan.document, **changes})
