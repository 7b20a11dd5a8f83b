"""`pagecage host provision`, `verify` and `unprovision`, called by the targets of make."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from pagecage.ansible import TaskEvent
from pagecage.checkout import LOGS
from pagecage.cli.failures import fix_here
from pagecage.cli.options import ExistingFile, definitions
from pagecage.cli.output import Json, notify, notify_step
from pagecage.errors import EXIT_HOST, EXIT_OK, HostError, PagecageError
from pagecage.fleet.provisioning import ProvisionRequest, run_playbook

HostGroup = Annotated[
    str, Parameter(help="Group or host of ansible/inventory, among them local and vm")
]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SudoOptions:
    """Options for hosts on which sudo asks for a password.

    Parameters
    ----------
    ask_password
        Ask once for sudo's password of all hosts
    password_file
        Read sudo's password from this file
    """

    ask_password: bool = False
    password_file: ExistingFile | None = None

    def request(self, group: str, playbook: str) -> ProvisionRequest:
        """Return the request to apply a playbook to a group."""
        return ProvisionRequest(group, playbook, None, self.ask_password, self.password_file)


def provision(
    group: HostGroup,
    /,
    sudo: SudoOptions = SudoOptions(),
    *,
    device: Annotated[str | None, Parameter(metavar="DEVICE")] = None,
    experiment: Annotated[str | None, Parameter(name="--for", metavar="EXPERIMENT")] = None,
    as_json: Json = False,
) -> int:
    """Prepare hosts for measuring.

    Installs packages, delegates cgroup controllers, applies settings, sets up storage on a named
    device, and installs the agent.

    Parameters
    ----------
    device
        Disk or partition for data, which must be blank or provisioned before; none for no disk
        of its own. The group must be a single host
    experiment
        Install the packages that this experiment needs as well
    """
    if device == "":
        raise PagecageError(
            "--device: '' is not the name of a device", "--device /dev/disk/by-id/NAME, or none"
        )
    packages = definitions().experiment(experiment).packages if experiment is not None else ()
    request = sudo.request(group, "site.yml")
    return _execute(replace(request, device=device, packages=packages), as_json)


def verify(group: HostGroup, /, sudo: SudoOptions = SudoOptions(), *, as_json: Json = False) -> int:
    """Check what hosts lack for measuring; change nothing."""
    return _execute(sudo.request(group, "verify.yml"), as_json)


def unprovision(
    group: HostGroup,
    /,
    sudo: SudoOptions = SudoOptions(),
    *,
    erase: bool = False,
    as_json: Json = False,
) -> int:
    """Undo the provisioning of hosts; data stay.

    Parameters
    ----------
    erase
        Also destroy the data
    """
    return _execute(replace(sudo.request(group, "unprovision.yml"), erase=erase), as_json)


def _execute(request: ProvisionRequest, as_json: bool) -> int:
    results = run_playbook(request, LOGS, notify_step, _show_change)
    rows = []
    for name, result in results.items():
        error = result.error(LOGS / f"{Path(request.playbook).stem}.log")
        message, hint = (error.message, fix_here(error.hint)) if error else (None, None)
        changes = f"{result.changed} change{'s' if result.changed > 1 else ''}"
        if error:
            notify(f"pagecage: {HostError(error.message, hint or '')}")
        else:
            notify(f"{name}: {changes if result.changed else 'up to date, nothing changed'}")
        rows.append({"host": name, "changed": result.changed, "error": message, "hint": hint})
    if as_json:
        print(json.dumps(rows))
    return EXIT_HOST if any(row["error"] is not None for row in rows) else EXIT_OK


def _show_change(event: TaskEvent) -> None:
    if event.changed and event.outcome == "ok":
        notify(f"{event.host}: {event.task}")
