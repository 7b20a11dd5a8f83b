"""`pagecage host ...`: the embedded guest by hand."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Literal

from cyclopts import App, Parameter

from pagecage.cli.examples import examples
from pagecage.cli.numbers import whole
from pagecage.cli.output import say_step
from pagecage.cli.paths import Folder, writing
from pagecage.cli.provision import provision, unprovision, verify
from pagecage.errors import EXIT_OK
from pagecage.hosts.vm import guest
from pagecage.hosts.vm.cache import DEFAULT_NAME, GuestCache, known_caches
from pagecage.hosts.vm.machine import CPUS
from pagecage.hosts.vm.vm_host import GuestOptions

_ABOUT = "Make hosts fit for experiments, and look after the embedded guest."
app = App(name="host", help=_ABOUT, help_epilogue=examples("host"))
Vm = Annotated[Literal["vm"], Parameter(help="the only host that can be brought up and down")]
Called = Annotated[
    str, Parameter(name="--name", help="which guest, where there are several; HOST=vm is the one called vm")
]
Suite = Annotated[Literal["bookworm", "trixie"] | None, Parameter(help="the guest's Debian release")]
Cpus = Annotated[int, whole(1, 64), Parameter(help="how many processors it has")]


for _verb in (provision, verify, unprovision):
    app.command(_verb, help_epilogue=examples(f"host {_verb.__name__}"))


@app.command(help_epilogue=examples("host which"))
def which(host: str = "auto") -> int:
    """Print which host HOST means here: local, vm, or group for one of an inventory."""
    from pagecage.cli.run_options import is_group
    from pagecage.cli.run_plan import choose_host

    print("group" if is_group(host) else choose_host(host, None, lambda _: None).name)
    return EXIT_OK


@app.command(help_epilogue=examples("host prepare"))
def prepare(
    host: Vm = "vm",
    *,
    experiment: Annotated[str | None, Parameter(name="--for", help="the experiment that it is made for")] = None,
    size: str = "auto",
    cage: str | None = None,
) -> int:
    """Make what a start of the guest needs, where it is missing: image, saved machine state, data disk.

    A run does it too. Beforehand it can be done beside other things. A guest that is in use has all of it.
    """
    from pagecage.cli import execution
    from pagecage.cli.run_options import RunOptions
    from pagecage.runner.campaign import need_of

    if guest.status().running:
        say_step("the guest is running")
        return EXIT_OK
    if experiment is None:
        guest.prepare(say_step)
        return EXIT_OK
    plan, vm = execution.plan_for(experiment, RunOptions(host=host, size=size, cage=cage), "", say_step)
    try:
        vm.prepare(need_of(plan), say_step)
    finally:
        vm.stop()
    return EXIT_OK


@app.command(help_epilogue=examples("host up"))
def up(host: Vm = "vm", *, called: Called = DEFAULT_NAME, suite: Suite = None, cpus: Cpus = CPUS) -> int:
    """Restore the guest and leave it running (make it first, where there is none).

    Guests of other names have a disk and an image of their own; the group `guests` of the inventory has all that run.
    """
    guest.up(say_step, GuestCache.of_user(called), GuestOptions(suite, cpus))
    return EXIT_OK


@app.command(help_epilogue=examples("host down"))
def down(host: Vm = "vm", *, called: Called = DEFAULT_NAME) -> int:
    """End the guest that `up` left running."""
    guest.down(say_step, GuestCache.of_user(called))
    return EXIT_OK


@app.command(help_epilogue=examples("host shell"))
def shell(host: Vm = "vm", *, called: Called = DEFAULT_NAME) -> int:
    """A root shell in the guest; it is brought up if it is not."""
    return guest.shell(say_step, GuestCache.of_user(called))


@app.command(help_epilogue=examples("host status"))
def status(
    host: Vm = "vm",
    *,
    called: Called = DEFAULT_NAME,
    json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> int:
    """Say whether the guest runs, for whom, and what is stored of it."""
    state = asdict(guest.status(GuestCache.of_user(called)))
    if json_:
        print(json.dumps(state, default=str))
        return EXIT_OK
    for key, value in state.items():
        print(f"{key:<24} {value}")
    return EXIT_OK


@app.command(help_epilogue=examples("host rebuild"))
def rebuild(host: Vm = "vm", *, called: Called = DEFAULT_NAME) -> int:
    """Throw image and saved state away and make them again; datasets stay."""
    guest.rebuild(say_step, GuestCache.of_user(called))
    return EXIT_OK


@app.command(help_epilogue=examples("host pack"))
def pack(
    host: Vm = "vm", *, out: Annotated[Folder, Parameter(help="the folder that becomes build/guest of a copy")]
) -> int:
    """Pack an image of the guest for a copy of this checkout, which then needs no network and no rights to make one.

    It is made anew, with ssh keys of its own: whoever has the copy can read them.
    """
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    say_step(f"packed in {guest.pack_image(out, say_step)}")
    return EXIT_OK


@app.command(help_epilogue=examples("host inventory"))
def inventory() -> int:
    """Print the guests that run as an inventory of Ansible's: the group vm has the one of that name, guests has all."""
    from pagecage.hosts.vm.provision import GUEST, guest_variables, kept_variables

    target = guest.running_target()
    hosts = {GUEST: guest_variables(target)} if target else {}
    kept = {
        f"{GUEST}-{cache.name}": kept_variables(told)
        for cache in known_caches()
        if (told := guest.running_target(cache))
    }
    listed = {"vm": {"hosts": list(hosts)}, "guests": {"hosts": list(kept)}}
    print(json.dumps({**listed, "_meta": {"hostvars": {**hosts, **kept}}}))
    return EXIT_OK
