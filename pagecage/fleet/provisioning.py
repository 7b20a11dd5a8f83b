"""Making the hosts of a group fit, looking whether they are, putting them back: a playbook, a sentence a host."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pagecage.ansible import FIX, HostResult, Playbook, TaskEvent, play
from pagecage.checkout import TOP
from pagecage.errors import PagecageError
from pagecage.fleet.inventory import FleetHost, find_group, inventory_dir
from pagecage.hosts.agent_package import make_kit
from pagecage.hosts.host import Progress
from pagecage.hosts.vm import guest

VM = "vm"
_PASSWORD = ("sudo password", "become password", "password is required")
"""What Ansible says where sudo asks and nobody answers, or answers wrongly."""


@dataclass(frozen=True)
class ProvisionRequest:
    """Which playbook for which group. `device` replaces pagecage_data_device, which is one host's.

    `ask_password`: Ansible asks for sudo's password; `password_file` holds it. `erase`: unprovisioning destroys data.
    """

    group: str
    playbook: str
    device: str | None = None
    ask_password: bool = False
    password_file: Path | None = None
    erase: bool = False

    def words(self) -> tuple[str, ...]:
        """The words for ansible-playbook(1)."""
        settings = {"pagecage_data_device": self.device, "pagecage_erase_data": self.erase or None}
        given = {name: value for name, value in settings.items() if value is not None}
        words = ["--limit", self.group, *(["--extra-vars", json.dumps(given)] if given else [])]
        if self.password_file is not None:
            words += ["--become-password-file", str(self.password_file)]
        return (*words, *(["--ask-become-pass"] if self.ask_password else []))


def carry_out(
    order: ProvisionRequest,
    scratch: Path,
    progress: Progress,
    tell: Callable[[TaskEvent], None],
    project_dir: Path = TOP,
) -> Mapping[str, HostResult]:
    """Run the playbook on every host of the group; how it ended on each. The guest is brought up if it is not.

    Raises PagecageError for a group that is unknown or empty and for a device that cannot be every host's, HostError
    when the agent is not built or Ansible could not begin.
    """
    hosts = find_group(order.group, project_dir)
    _refuse(order, hosts)
    if order.playbook == "site.yml":
        make_kit(project_dir)
    playbook = Playbook(project_dir, order.playbook, inventory_dir(project_dir), scratch, order.words())
    with _reached(order.group, progress):
        ends = play(playbook, tell)
    by_name = {host.name: host for host in hosts}
    return {name: _with_hint(end, by_name.get(name)) for name, end in ends.items()}


def _refuse(order: ProvisionRequest, hosts: Sequence[FleetHost]) -> None:
    if not hosts and order.group != VM:
        raise PagecageError(f"the group {order.group!r} has no hosts", "name them in ansible/inventory (docs/HOSTS.md)")
    if order.device is not None and len(hosts) > 1:
        raise PagecageError(
            f"{order.device} would be taken on each of {len(hosts)} hosts",
            "set pagecage_data_device for each host in ansible/inventory, or name one host",
        )


@contextmanager
def _reached(group: str, progress: Progress) -> Iterator[None]:
    """The guest is no machine that waits: it is restored, and one connection to it is kept open meanwhile."""
    if group != VM:
        yield
        return
    guest.up(progress)
    with guest.connected():
        yield


def _with_hint(end: HostResult, host: FleetHost | None) -> HostResult:
    """Ansible's own messages end without a fix; two of them we know."""
    event = end.stopped_by
    if event is None or host is None or FIX in event.message:
        return end
    if any(words in event.message for words in _PASSWORD):
        message = f"{event.message}{FIX}repeat with ASK=1 (--ask-password), and sudo's password for {_account(host)}"
    elif event.outcome == "unreachable":
        message = f"it cannot be reached ({event.message}){FIX}{shlex.join(_ssh(host))} must work without a question"
    else:
        return end
    return replace(end, stopped_by=replace(event, message=message))


def _account(host: FleetHost) -> str:
    user = host.variables.get("ansible_user")
    return f"{user}@{host.address}" if user else host.address


def _ssh(host: FleetHost) -> list[str]:
    port = host.variables.get("ansible_port")
    return ["ssh", *(["-p", str(port)] if port else []), _account(host), "true"]
