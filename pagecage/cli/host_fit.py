"""`pagecage host provision|verify|unprovision`: what `make provision` and its like call."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated

from cyclopts import Parameter

from pagecage.cli.form import Json
from pagecage.cli.places import TOP
from pagecage.cli.say import say
from pagecage.errors import EXIT_HOST, EXIT_OK
from pagecage.fleet.provisioning import Order, carry_out
from pagecage.playbook import Event, HostEnd

LOGS = TOP / "build" / "log"
Group = Annotated[str, Parameter(help="A group of ansible/inventory or one of its hosts: local, vm, or one of yours.")]
Password = Annotated[bool, Parameter(negative=(), help="Ask for sudo's password on those hosts.")]


def provision(group: Group, *, device: str | None = None, ask_password: Password = False, as_json: Json = False) -> int:
    """Make hosts fit for experiments: packages, delegation, settings, storage on a named device, the agent.

    Parameters
    ----------
    device
        The disk or partition for data, where the group is one host; none: no disk of its own. It must be blank or ours.
    """
    return _carry_out(Order(group, "site.yml", device=device, ask_password=ask_password), as_json)


def verify(group: Group, *, ask_password: Password = False, as_json: Json = False) -> int:
    """Say what hosts lack that provisioning would give them; changes nothing."""
    return _carry_out(Order(group, "verify.yml", ask_password=ask_password), as_json)


def unprovision(
    group: Group,
    *,
    erase: Annotated[bool, Parameter(negative=())] = False,
    ask_password: Password = False,
    as_json: Json = False,
) -> int:
    """Put hosts back as they were before they were provisioned; data stay.

    Parameters
    ----------
    erase
        Destroy the data too.
    """
    return _carry_out(Order(group, "unprovision.yml", erase=erase, ask_password=ask_password), as_json)


def _carry_out(order: Order, as_json: bool) -> int:
    ends = carry_out(order, LOGS, lambda text: say(f"{text} ..."), _tell)
    log = LOGS / f"{order.playbook.removesuffix('.yml')}.log"
    errors = {name: error for name, end in ends.items() if (error := end.error(log))}
    for name, end in ends.items():
        say(f"pagecage: {errors[name]}" if name in errors else f"{name}: {_changed(end)}")
    if as_json:
        print(json.dumps([_row(name, end, errors) for name, end in ends.items()]))
    return EXIT_HOST if errors else EXIT_OK


def _tell(event: Event) -> None:
    if event.changed and event.outcome == "ok":
        say(f"{event.host}: {event.task}")


def _changed(end: HostEnd) -> str:
    return (
        f"changed {end.changed} thing{'s' if end.changed > 1 else ''}"
        if end.changed
        else "as it should be, nothing changed"
    )


def _row(name: str, end: HostEnd, errors: Mapping[str, object]) -> dict[str, object]:
    error = errors.get(name)
    return {
        "host": name, "changed": end.changed, "error": getattr(error, "message", None),
        "mend": getattr(error, "hint", None),
    }  # fmt: skip
