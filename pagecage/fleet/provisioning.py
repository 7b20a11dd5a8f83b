"""Playbooks that provision, verify and unprovision the hosts of a group."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pagecage.ansible import FIX, HostResult, Playbook, TaskEvent, run_to_end
from pagecage.checkout import TOP
from pagecage.errors import PagecageError
from pagecage.fleet.inventory import FleetHost, find_group, inventory_dir
from pagecage.hosts.agent_package import make_agent_package
from pagecage.hosts.host import Progress
from pagecage.hosts.vm import guest
from pagecage.model.needs.packages import Package

VM = "vm"
_PASSWORD = ("sudo password", "become password", "password is required")
"""Parts of Ansible's messages when sudo's password is missing or wrong."""


@dataclass(frozen=True)
class ProvisionRequest:
    """A playbook and a group. `device` replaces pagecage_data_device of a single host.

    `ask_password` makes Ansible ask for sudo's password, `password_file` contains it. `erase` makes
    unprovisioning destroy data. `packages` are installed too.
    """

    group: str
    playbook: str
    device: str | None = None
    ask_password: bool = False
    password_file: Path | None = None
    erase: bool = False
    packages: tuple[Package, ...] = ()

    def words(self) -> tuple[str, ...]:
        """Return the arguments for ansible-playbook(1)."""
        settings = {
            "pagecage_data_device": self.device,
            "pagecage_erase_data": self.erase or None,
            "base_experiment_packages": [asdict(package) for package in self.packages] or None,
        }
        variables = {name: value for name, value in settings.items() if value is not None}
        words = [
            "--limit",
            self.group,
            *(["--extra-vars", json.dumps(variables)] if variables else []),
        ]
        if self.password_file is not None:
            words += ["--become-password-file", str(self.password_file)]
        return (*words, *(["--ask-become-pass"] if self.ask_password else []))


def run_playbook(
    request: ProvisionRequest,
    scratch: Path,
    progress: Progress,
    listener: Callable[[TaskEvent], None],
    project_dir: Path = TOP,
) -> Mapping[str, HostResult]:
    """Run the playbook on every host of the group and return the results by host.

    The guest is started if needed. Raises PagecageError for an unknown or empty group, and for one
    device on several hosts; HostError if the agent is not built or Ansible could not start.
    """
    hosts = find_group(request.group, project_dir)
    _check(request, hosts)
    words = request.words()
    if request.playbook == "site.yml":
        agent = make_agent_package(project_dir).agent
        words += ("--extra-vars", json.dumps({"agent_file": str(agent)}))
    playbook = Playbook(project_dir, request.playbook, inventory_dir(project_dir), scratch, words)
    with _connected(request.group, progress):
        results = run_to_end(playbook, listener)
    by_name = {host.name: host for host in hosts}
    return {name: _with_hint(result, by_name.get(name)) for name, result in results.items()}


def _check(request: ProvisionRequest, hosts: Sequence[FleetHost]) -> None:
    if not hosts and request.group != VM:
        message = f"the group {request.group!r} has no hosts"
        raise PagecageError(message, "name them in ansible/inventory (docs/HOSTS.md)")
    if request.packages and request.group == VM:
        raise PagecageError(
            "the packages of an experiment are part of the guest's image",
            "make setup HOST=vm with the experiment's NAME, without make provision",
        )
    if request.device is not None and len(hosts) > 1:
        raise PagecageError(
            f"--device {request.device} would apply to {len(hosts)} hosts",
            "set pagecage_data_device for each host in ansible/inventory, or name one host",
        )


@contextmanager
def _connected(group: str, progress: Progress) -> Iterator[None]:
    """Start the guest if it is the group, and keep a shared connection to it open."""
    if group != VM:
        yield
        return
    guest.up(progress)
    with guest.connected():
        yield


def _with_hint(result: HostResult, host: FleetHost | None) -> HostResult:
    """Add a fix to two frequent messages of Ansible: a missing password and an unreachable host."""
    event = result.stopped_by
    if event is None or host is None or FIX in event.message:
        return result
    if any(words in event.message for words in _PASSWORD):
        message = (
            f"{event.message}{FIX}repeat with ASK=1 (--ask-password) and sudo's password for"
            f" {_account(host)}"
        )
    elif event.outcome == "unreachable":
        message = (
            f"the host is unreachable ({event.message}){FIX}make `{shlex.join(_ssh(host))}` work"
            " without a prompt"
        )
    else:
        return result
    return replace(result, stopped_by=replace(event, message=message))


def _account(host: FleetHost) -> str:
    user = host.variables.get("ansible_user")
    return f"{user}@{host.address}" if user else host.address


def _ssh(host: FleetHost) -> list[str]:
    port = host.variables.get("ansible_port")
    return ["ssh", *(["-p", str(port)] if port else []), _account(host), "true"]
