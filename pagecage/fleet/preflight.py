"""A look at every host before anything starts: who answers, who is fit, what they are, and whether they are alike."""

from __future__ import annotations

import json
import platform
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pagecage.agent.system.facts import is_emulated
from pagecage.ansible import TaskEvent
from pagecage.errors import HostError, PagecageError
from pagecage.fleet.host_run import RemoteHost
from pagecage.fleet.inventory import FleetHost
from pagecage.fleet.playbook import FleetPlaybook, check_names
from pagecage.model.requirements import check_host

SPOOL = "/dev/shm/pagecage"
"""As role campaign has it where an inventory says nothing else."""
_FACTS_TASK = "campaign : Read the host's facts"
_ALIKE = (
    "kernel",
    "machine",
    "cpus",
    "cpu_model",
    "disk.filesystem",
    "disk.queue_settings.rotational",
    "disk.queue_settings.scheduler",
)
"""Facts that hosts must share for one plan to be spread over them."""
_MEMORY_ALIKE = 0.05


@dataclass(frozen=True)
class ReadyHost:
    """A host that can serve, and its facts as the agent tells them."""

    host: FleetHost
    facts: Mapping[str, Any]

    @property
    def is_emulated(self) -> bool:
        """Whether it is a guest without hardware help, as its CPU model tells."""
        return is_emulated(self.facts)

    @property
    def place(self) -> RemoteHost:
        """The host as a run sees it."""
        told = self.host.variables
        spool_dir = str(told.get("campaign_spool", SPOOL))
        return RemoteHost(self.host.name, str(told["pagecage_data_dir"]), spool_dir, self.is_emulated)


@dataclass(frozen=True)
class Preflight:
    """What a look found: hosts that can serve, in the group's order, and for each other one why it cannot."""

    seen: tuple[ReadyHost, ...]
    unreachable: Mapping[str, HostError]
    unfit: Mapping[str, PagecageError]


def look(stage: FleetPlaybook, group: str, hosts: Sequence[FleetHost], left_working: Collection[str] = ()) -> Preflight:
    """Ask all hosts at once; those `left_working` may be busy with an earlier round of ours.

    Raises PagecageError for an empty group, or one that says too little of a host.
    """
    _check(group, hosts)
    events: list[TaskEvent] = []
    names = [host.name for host in hosts]
    ends = stage.look(names, left_working).follow(events.append)
    log = stage.scratch / "preflight/fleet.log"
    lost = {event.host for event in events if event.outcome == "unreachable"}
    errors = {name: error for name in names if name in ends and (error := ends[name].error(log))}
    told = {event.host: event.stdout for event in events if event.task == _FACTS_TASK and event.outcome == "ok"}
    facts = {name: _facts(text) for name, text in told.items() if name not in errors}
    unfit: dict[str, PagecageError] = {name: error for name, error in errors.items() if name not in lost}
    unfit |= {name: error for name, one in facts.items() if (error := _unfit(name, group, one))}
    seen = tuple(
        ReadyHost(host, one) for host in hosts if (one := facts.get(host.name)) is not None and host.name not in unfit
    )
    return Preflight(seen, {name: error for name, error in errors.items() if name in lost}, unfit)


def _check(group: str, hosts: Sequence[FleetHost]) -> None:
    if not hosts:
        hint = "pagecage host up vm" if group == "guests" else "name its hosts in ansible/inventory (docs/HOSTS.md)"
        raise PagecageError(f"the group {group} has no host now", hint)
    check_names(hosts)
    for host in hosts:
        if "pagecage_data_dir" not in host.variables:
            hint = "say in the inventory which directory lies on the disk to be measured (docs/HOSTS.md)"
            raise PagecageError(f"{host.name} has no pagecage_data_dir", hint)


def _facts(text: str) -> Mapping[str, Any] | None:
    """What the agent told of its host; None where something else stands around it."""
    try:
        facts = json.loads(text)
    except ValueError:
        return None
    return facts if isinstance(facts, dict) else None


def _unfit(name: str, group: str, facts: Mapping[str, Any] | None) -> HostError | None:
    ours = platform.machine()
    if facts is None:
        return HostError(f"{name} answered with something that are no facts", "its login must print nothing")
    if facts["machine"] != ours:
        return HostError(f"{name} is {facts['machine']}, and the workloads here are built for {ours}",
                         f"drive hosts of one architecture, from a controller of theirs: leave {name} out")  # fmt: skip
    missed = check_host(facts)
    if missed:
        return HostError(f"{name} cannot serve: {missed[0].reason}", f"make provision HOST={group}")
    return None


def unlike(seen: Sequence[ReadyHost]) -> Iterator[str]:
    """What keeps hosts from being alike, a phrase for each fact that differs."""
    for name in _ALIKE:
        values = {one.host.name: str(_fact(one.facts, name)) for one in seen}
        if len(set(values.values())) > 1:
            yield f"{name} is {', '.join(f'{value} on {host}' for host, value in values.items())}"
    memory = [one.facts["memory_bytes"] or 0 for one in seen]
    if memory and min(memory) < max(memory) * (1 - _MEMORY_ALIKE):
        yield "their memory differs by more than 5 %"


def _fact(facts: Mapping[str, Any], name: str) -> Any:
    value: Any = facts
    for word in name.split("."):
        value = value.get(word) if isinstance(value, Mapping) else None
    return value
