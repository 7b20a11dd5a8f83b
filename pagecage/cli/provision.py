"""`pagecage host provision|verify|unprovision`: what `make provision` and its like call."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from pagecage.ansible import HostResult, TaskEvent
from pagecage.checkout import TOP
from pagecage.cli.output import Json, say, say_step
from pagecage.cli.paths import FileThere
from pagecage.errors import EXIT_HOST, EXIT_OK, HostError, PagecageError
from pagecage.fleet.provisioning import ProvisionRequest, carry_out

LOGS = TOP / "build" / "log"
HostGroup = Annotated[
    str, Parameter(help="A group of ansible/inventory or one of its hosts: local, vm, or one of yours.")
]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SudoOptions:
    """How root is become on hosts where sudo asks for a password.

    Parameters
    ----------
    ask_password
        Ask for it here, once for all hosts.
    password_file
        Read it from this file.
    """

    ask_password: bool = False
    password_file: FileThere | None = None


def provision(
    group: HostGroup, sudo: SudoOptions = SudoOptions(), *, device: str | None = None, as_json: Json = False
) -> int:
    """Make hosts fit for experiments: packages, delegation, settings, storage on a named device, the agent.

    Parameters
    ----------
    device
        The disk or partition for data, where the group is one host; none: no disk of its own. It must be blank or ours.
    """
    if device == "":
        raise PagecageError("'' is not a name of a device", "--device /dev/disk/by-id/NAME, or none")
    return _carry_out(ProvisionRequest(group, "site.yml", device, sudo.ask_password, sudo.password_file), as_json)


def verify(group: HostGroup, sudo: SudoOptions = SudoOptions(), *, as_json: Json = False) -> int:
    """Say what hosts lack that provisioning would give them; changes nothing."""
    return _carry_out(ProvisionRequest(group, "verify.yml", None, sudo.ask_password, sudo.password_file), as_json)


def unprovision(
    group: HostGroup, sudo: SudoOptions = SudoOptions(), *, erase: bool = False, as_json: Json = False
) -> int:
    """Put hosts back as they were before they were provisioned; data stay.

    Parameters
    ----------
    erase
        Destroy the data too.
    """
    return _carry_out(
        ProvisionRequest(group, "unprovision.yml", None, sudo.ask_password, sudo.password_file, erase), as_json
    )


def _carry_out(order: ProvisionRequest, as_json: bool) -> int:
    ends = carry_out(order, LOGS, say_step, _tell)
    log = LOGS / f"{Path(order.playbook).stem}.log"
    errors = {name: end.error(log) for name, end in ends.items()}
    for name, end in ends.items():
        say(f"pagecage: {errors[name]}" if errors[name] else f"{name}: {_changed(end)}")
    if as_json:
        print(json.dumps([_row(name, end, errors[name]) for name, end in ends.items()]))
    return EXIT_HOST if any(errors.values()) else EXIT_OK


def _tell(event: TaskEvent) -> None:
    if event.changed and event.outcome == "ok":
        say(f"{event.host}: {event.task}")


def _changed(end: HostResult) -> str:
    if not end.changed:
        return "as it should be, nothing changed"
    return "1 thing changed" if end.changed == 1 else f"{end.changed} things changed"


def _row(name: str, end: HostResult, error: HostError | None) -> dict[str, object]:
    said = {"error": error.message, "hint": error.hint} if error else {"error": None, "hint": None}
    return {"host": name, "changed": end.changed, **said}
