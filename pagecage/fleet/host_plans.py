"""One plan for a group becomes one for each of its hosts: the same for all, or its blocks dealt over them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from pagecage.errors import PagecageError
from pagecage.model.trial import Trial, trial_to_json
from pagecage.planning.plan import Plan

MODES = ("replicate", "spread")


def host_plans(plan: Plan, hosts: Sequence[str], mode: str) -> dict[str, Plan]:
    """Each host's plan, by its name, in the hosts' order.

    `replicate` gives each the whole plan, in the same order. `spread` deals the blocks, each of which holds every
    treatment once, so that the host is a block factor. Raises PagecageError when there are fewer blocks than hosts.
    """
    if mode == "replicate":
        return {host: _of_host(plan, host, plan.trials) for host in hosts}
    blocks = list(dict.fromkeys(trial.block for trial in plan.trials))
    if len(blocks) < len(hosts):
        raise PagecageError(
            f"{len(blocks)} repeats cannot be spread over {len(hosts)} hosts: each takes whole ones",
            f"--repeats {len(hosts)}, or --fleet replicate",
        )
    owner = {block: hosts[place % len(hosts)] for place, block in enumerate(blocks)}
    return {host: _of_host(plan, host, (t for t in plan.trials if owner[t.block] == host)) for host in hosts}


def _of_host(plan: Plan, host: str, trials: Iterable[Trial]) -> Plan:
    """The plan as one host's own, with a run id that names it."""
    own = tuple(trials)
    stamp = plan.run_id.partition("-")[0]
    run_id = f"{stamp}-{plan.document['experiment']}-{host}"
    told = {"run_id": run_id, "host": host, "trials": [trial_to_json(trial) for trial in own]}
    return replace(plan, run_id=run_id, trials=own, document={**plan.document, **told})
