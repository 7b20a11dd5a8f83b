"""`pagecage host ...`: the embedded guest by hand."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Literal

from cyclopts import App, Parameter
from rich.console import Console

from pagecage.cli.host_fit import provision, unprovision, verify
from pagecage.errors import EXIT_OK
from pagecage.hosts.vm import guest

app = App(name="host", help="Make hosts fit for experiments, and look after the embedded guest.")
_error = Console(stderr=True, highlight=False)
Vm = Annotated[Literal["vm"], Parameter(help="the only host that can be brought up and down")]


def _say(text: str) -> None:
    _error.print(f"{text} ...", soft_wrap=True)


for _verb in (provision, verify, unprovision):
    app.command(_verb)


@app.command
def up(name: Vm = "vm") -> int:
    """Restore the guest and leave it running (make it first, where there is none)."""
    guest.up(_say)
    return EXIT_OK


@app.command
def down(name: Vm = "vm") -> int:
    """End the guest that `up` left running."""
    guest.down(_say)
    return EXIT_OK


@app.command
def shell(name: Vm = "vm") -> int:
    """A root shell in the guest; it is brought up if it is not."""
    return guest.shell(_say)


@app.command
def status(name: Vm = "vm", *, json_: Annotated[bool, Parameter(name="--json", negative=())] = False) -> int:
    """Say whether the guest runs, for whom, and what is stored of it."""
    state = asdict(guest.status())
    if json_:
        print(json.dumps(state, default=str))
        return EXIT_OK
    for key, value in state.items():
        print(f"{key:<24} {value}")
    return EXIT_OK


@app.command
def rebuild(name: Vm = "vm") -> int:
    """Throw image and saved state away and make them again; datasets stay."""
    guest.rebuild(_say)
    return EXIT_OK


@app.command
def inventory() -> int:
    """Print the guest as an inventory of Ansible's: the group vm, empty while none runs."""
    from pagecage.hosts.vm.fitting import GUEST, guest_variables

    target = guest.running_target()
    hosts = {GUEST: guest_variables(target)} if target else {}
    print(json.dumps({"vm": {"hosts": list(hosts)}, "_meta": {"hostvars": hosts}}))
    return EXIT_OK
