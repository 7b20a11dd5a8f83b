"""The hosts of a group: found in an inventory and checked before a run."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pagecage.cli.output import Notify
from pagecage.cli.queue_settings import sets_queue_settings
from pagecage.cli.run_options import HOSTS
from pagecage.errors import HostError, PagecageError, nearest
from pagecage.fleet.inventory import FleetHost, find_group
from pagecage.fleet.playbook import FleetPlaybook
from pagecage.fleet.preflight import Preflight, ReadyHost, check_hosts
from pagecage.hosts.host import Progress
from pagecage.planning.plan import Plan


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
