"""Groups and hosts of the inventories in ansible/inventory, as Ansible reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagecage.ansible import inventory_of
from pagecage.checkout import TOP
from pagecage.errors import PagecageError, nearest

_IMPLIED = ("all", "ungrouped")


@dataclass(frozen=True)
class FleetHost:
    """A host of an inventory: name, address (`ansible_host`, else the name), and variables."""

    name: str
    address: str
    variables: Mapping[str, Any]


def inventory_dir(project_dir: Path = TOP) -> Path:
    """Return the folder of the inventories, which Ansible reads as one."""
    return project_dir / "ansible" / "inventory"


def groups(project_dir: Path = TOP) -> Mapping[str, tuple[FleetHost, ...]]:
    """Return every group with its hosts and those of its child groups, in the inventory's order.

    Groups without hosts are included (`vm` while no guest runs). Raises HostError if Ansible
    rejects an inventory.
    """
    listed = inventory_of(project_dir, inventory_dir(project_dir))
    variables = listed.get("_meta", {}).get("hostvars", {})
    return {
        group: tuple(_host(name, variables.get(name, {})) for name in _names(listed, group))
        for group in _group_names(listed)
    }


def find_group(name: str, project_dir: Path = TOP) -> tuple[FleetHost, ...]:
    """Return the hosts of a group, or the single host of that name.

    Raises PagecageError for any other name.
    """
    by_name = groups(project_dir)
    if name in by_name:
        return by_name[name]
    single = {host.name: host for hosts in by_name.values() for host in hosts}
    if name in single:
        return (single[name],)
    raise PagecageError(
        f"no inventory has a group {name!r}", f"{nearest(name, sorted(by_name))} (docs/HOSTS.md)"
    )


def _group_names(listed: Mapping[str, Any]) -> list[str]:
    """Return the names of all groups; an empty group is listed only among its parent's children."""
    children = [child for table in listed.values() for child in table.get("children", [])]
    return [
        name for name in dict.fromkeys([*children, *listed]) if name not in (*_IMPLIED, "_meta")
    ]


def _names(listed: Mapping[str, Any], group: str) -> list[str]:
    table = listed.get(group, {})
    below = [name for child in table.get("children", []) for name in _names(listed, child)]
    return list(dict.fromkeys([*table.get("hosts", []), *below]))


def _host(name: str, variables: Mapping[str, Any]) -> FleetHost:
    return FleetHost(name, str(variables.get("ansible_host", name)), variables)
