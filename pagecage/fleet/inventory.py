"""Which hosts a group means: Ansible's inventories in ansible/inventory, as Ansible itself reads them."""

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
    """A host of an inventory: its name there, where it is reached (`ansible_host`, else the name), its variables."""

    name: str
    address: str
    variables: Mapping[str, Any]


def inventory_dir(project_dir: Path = TOP) -> Path:
    """The folder whose files are the inventories; Ansible takes it as one."""
    return project_dir / "ansible" / "inventory"


def groups(project_dir: Path = TOP) -> Mapping[str, tuple[FleetHost, ...]]:
    """Every group by name with its hosts in the inventory's order, those of its children among them.

    A group without hosts is there too (`vm` while no guest runs). Raises HostError when Ansible refuses an inventory.
    """
    listed = inventory_of(project_dir, inventory_dir(project_dir))
    variables = listed.get("_meta", {}).get("hostvars", {})
    return {
        group: tuple(_host(name, variables.get(name, {})) for name in _names(listed, group))
        for group in _group_names(listed)
    }


def find_group(name: str, project_dir: Path = TOP) -> tuple[FleetHost, ...]:
    """The hosts that a group's name means, or the one host of that name. Raises PagecageError for any other name."""
    known = groups(project_dir)
    if name in known:
        return known[name]
    alone = {host.name: host for hosts in known.values() for host in hosts}
    if name in alone:
        return (alone[name],)
    raise PagecageError(f"no inventory has a group {name!r}", f"{nearest(name, sorted(known))} (docs/HOSTS.md)")


def _group_names(listed: Mapping[str, Any]) -> list[str]:
    """Ansible lists a group where it stands and among its parent's children; an empty one only there."""
    children = [child for table in listed.values() for child in table.get("children", [])]
    return [name for name in dict.fromkeys([*children, *listed]) if name not in (*_IMPLIED, "_meta")]


def _names(listed: Mapping[str, Any], group: str) -> list[str]:
    table = listed.get(group, {})
    below = [name for child in table.get("children", []) for name in _names(listed, child)]
    return list(dict.fromkeys([*table.get("hosts", []), *below]))


def _host(name: str, variables: Mapping[str, Any]) -> FleetHost:
    return FleetHost(name, str(variables.get("ansible_host", name)), variables)
