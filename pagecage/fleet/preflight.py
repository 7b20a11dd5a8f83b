"""Checks of all hosts of a group before a run: reachable, suitable, and similar."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pagecage.agent.facts import is_emulated
from pagecage.ansible import TaskEvent
from pagecage.errors import HostError, PagecageError
from pagecage.fleet.provisioning import FleetHost, FleetPlaybook, check_names
from pagecage.fleet.rounds import RemoteHost
from pagecage.hosts.agent_package import ARCHITECTURES, VARIABLE, target_machine
from pagecage.model.record_sections import Row
from pagecage.model.requirements import check_host
from pagecage.verdicts.counters import figure

SPOOL = "/dev/shm/pagecage"
"""The default of campaign_spool in role campaign."""
_FACTS_TASK = "campaign : Read the host's facts"
_COMPARED_FACTS = (
    "kernel",
    "machine",
    "cpus",
    "cpu_model",
    "disk.filesystem",
    "disk.queue_settings.rotational",
    "disk.queue_settings.scheduler",
)
"""Facts that hosts must share for one plan to be spread over them."""
_MEMORY_TOLERANCE = 0.05


@dataclass(frozen=True)
class ReadyHost:
    """A host that can run trials, and its facts."""

    host: FleetHost
    facts: Row

    @property
    def is_emulated(self) -> bool:
        return is_emulated(self.facts)

    @property
    def remote(self) -> RemoteHost:
        variables, data_dir = self.host.variables, self.host.variables["pagecage_data_dir"]
        spool_dir = str(variables.get("campaign_spool", SPOOL))
        disks = dict(variables.get("pagecage_disks") or {})
        return RemoteHost(self.host.name, str(data_dir), spool_dir, self.is_emulated, disks)


@dataclass(frozen=True)
class Preflight:
    """The hosts that can run trials, in the group's order, and an error for each of the others."""

    ready: tuple[ReadyHost, ...]
    unreachable: Mapping[str, HostError]
    unfit: Mapping[str, PagecageError]


def check_hosts(
    playbook: FleetPlaybook, group: str, hosts: Sequence[FleetHost], busy: Collection[str] = ()
) -> Preflight:
    """Check all hosts at once; `busy` ones may still run an earlier round of this fleet.

    Raises PagecageError for an empty group, and for a host without required variables.
    """
    if not hosts:
        hint = "name its hosts in ansible/inventory (docs/HOSTS.md)"
        hint = "pagecage host up vm" if group == "guests" else hint
        raise PagecageError(f"the group {group} has no hosts", hint)
    check_names(hosts)
    for known in hosts:
        if "pagecage_data_dir" not in known.variables:
            hint = "set it in the inventory to a directory on the disk to measure (docs/HOSTS.md)"
            raise PagecageError(f"{known.name} has no pagecage_data_dir", hint)
    events: list[TaskEvent] = []
    results = playbook.read_facts([host.name for host in hosts], busy).follow(events.append)
    log = playbook.scratch / "preflight/fleet.log"
    silent = {event.host for event in events if event.outcome == "unreachable"}
    printed = {e.host: e.stdout for e in events if e.task == _FACTS_TASK and e.outcome == "ok"}
    ready: list[ReadyHost] = []
    unreachable: dict[str, HostError] = {}
    unfit: dict[str, PagecageError] = {}
    obstacles: dict[str, PagecageError] = {}
    for host in hosts:
        name, result = host.name, results.get(host.name)
        error = result.error(log) if result else None
        facts = None
        with suppress(ValueError):
            facts = json.loads(printed.get(name, ""))
        facts = facts if isinstance(facts, dict) else None
        if error is not None:
            (unreachable if name in silent else unfit)[name] = error
        elif name in printed and (obstacle := _obstacle(name, group, facts)):
            obstacles[name] = obstacle
        elif facts is not None:
            ready.append(ReadyHost(host, facts))
    return Preflight(tuple(ready), unreachable, unfit | obstacles)


def _obstacle(name: str, group: str, facts: Row | None) -> HostError | None:
    if facts is None:
        reason = f"{name} printed other output than facts"
        return HostError(reason, "make sure that its login shell prints nothing")
    if facts["machine"] != target_machine():
        machine = str(facts["machine"])
        other = f", or build for it: make build MACHINE={machine}; export {VARIABLE}={machine}"
        return HostError(
            f"{name} is {machine}, but the workloads are built for {target_machine()}",
            f"remove {name} from the group{other if machine in ARCHITECTURES else ''}",
        )
    if missed := check_host(facts):
        reason = f"{name} cannot run trials: {missed[0].reason}"
        return HostError(reason, f"make provision HOST={group}")
    return None


def differences(hosts: Sequence[ReadyHost]) -> Iterator[str]:
    """Yield a phrase for each fact in which the hosts differ."""
    for name in _COMPARED_FACTS:
        values = {ready.host.name: str(figure(ready.facts, *name.split("."))) for ready in hosts}
        if len(set(values.values())) > 1:
            yield f"{name} is {', '.join(f'{value} on {host}' for host, value in values.items())}"
    memory = [ready.facts["memory_bytes"] or 0 for ready in hosts]
    if memory and min(memory) < max(memory) * (1 - _MEMORY_TOLERANCE):
        yield "their memory differs by more than 5 %"
