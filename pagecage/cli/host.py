"""`pagecage host`: hosts, their set-up and the guest's image."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from pagecage.ansible import TaskEvent
from pagecage.checkout import LOGS, TOP
from pagecage.cli.failures import fix_here
from pagecage.cli.output import Json, examples, writing
from pagecage.errors import EXIT_HOST, EXIT_OK, HostError, PagecageError
from pagecage.fleet.provisioning import ProvisionRequest, run_playbook
from pagecage.hosts.controller import install_programs
from pagecage.hosts.vm import guest
from pagecage.hosts.vm.cache import DEFAULT_NAME, GuestCache, existing_caches
from pagecage.hosts.vm.image import packed_directory, read_recipe
from pagecage.hosts.vm.qemu import CPUS
from pagecage.hosts.vm.vm_host import GuestOptions
from pagecage.planning.options import (
    Dataset,
    ExistingFile,
    Folder,
    HostName,
    RunOptions,
    Treatments,
    definitions,
    is_group,
    whole,
)
from pagecage.terminal import notify, notify_step

For = Annotated[str | None, Parameter(name="--for", metavar="EXPERIMENT")]
ProvisionedGroup = Annotated[
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
        return ProvisionRequest(group, playbook, None, self.ask_password, self.password_file)


def provision(
    group: ProvisionedGroup,
    /,
    sudo: SudoOptions = SudoOptions(),
    *,
    device: Annotated[str | None, Parameter(metavar="DEVICE")] = None,
    experiment: For = None,
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


def verify(
    group: ProvisionedGroup, /, sudo: SudoOptions = SudoOptions(), *, as_json: Json = False
) -> int:
    """Check what hosts lack for measuring; change nothing."""
    return _execute(sudo.request(group, "verify.yml"), as_json)


def unprovision(
    group: ProvisionedGroup,
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


Purpose = Literal["vm", "local", "volume"]
_ROLE_PURPOSES = {"vm": "guest", "local": "record", "volume": "volume"}
_SYSTEMD = Path("/run/systemd/system")  # sd_booted(3)


def setup(*purposes: Annotated[Purpose, Parameter(metavar="PURPOSE")]) -> int:
    """Install the programs of this machine that pagecage starts, with its package manager.

    A user who may not install packages is shown the command to run as root.

    Parameters
    ----------
    purposes
        vm: make and run the guest. local: record trials on this machine. volume: serve simulated
        volumes. Without any: vm and volume, and local if systemd runs here
    """
    chosen = purposes or ("vm", "volume", *(("local",) if _SYSTEMD.exists() else ()))
    notify(f"installing what is missing for {', '.join(dict.fromkeys(chosen))} ...")
    install_programs([_ROLE_PURPOSES[name] for name in dict.fromkeys(chosen)], _show)
    notify("this machine has the programs; `pagecage doctor` shows what else it lacks")
    return EXIT_OK


def _show(event: TaskEvent) -> None:
    if event.changed and event.outcome == "ok":
        notify(event.task)
    for line in event.stdout.splitlines():
        if line.startswith("note: "):
            notify(line)


Vm = Annotated[Literal["vm"], Parameter(help="The embedded guest", show_choices=False)]
CageNames = Annotated[tuple[str, ...], Parameter(metavar="CAGE", consume_multiple=False)]


def image(host: Vm = "vm", /, *, experiment: For = None, as_json: Json = False) -> int:
    """Print the key of the guest's image, and the folder of its packed form.

    Both depend on the recipe alone. A cache restores the folder by its key, or keeps what
    `pagecage host pack --out` writes to the folder above it.

    Parameters
    ----------
    experiment
        Image with the packages of this experiment
    """
    key = read_recipe(TOP, packages=_packages(experiment)).key
    folder = packed_directory(key)
    _print({"key": key, "folder": str(folder), "is_packed": folder.is_dir()}, 10, as_json)
    return EXIT_OK


def _print(values: dict[str, object], width: int, as_json: bool) -> None:
    lines = (f"{key:<{width}} {value}" for key, value in values.items())
    print(json.dumps(values, default=str) if as_json else "\n".join(lines))


def pack(
    host: Vm = "vm",
    /,
    *,
    out: Annotated[Folder, Parameter(help="Directory to write; use it as build/guest")],
    experiment: For = None,
) -> int:
    """Pack an image of the guest for another checkout.

    That checkout then starts a guest without network access or privileges. The image is built anew
    with its own ssh keys; everyone who has the packed image can read them.

    Parameters
    ----------
    experiment
        Image with the packages of this experiment
    """
    packages = _packages(experiment)
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    notify(f"packed: {guest.pack_image(out, notify_step, packages)}")
    return EXIT_OK


def _packages(experiment: str | None) -> tuple[str, ...]:
    if experiment is None:
        return ()
    return tuple(package.debian for package in definitions().experiment(experiment).packages)


app = App(
    name="host",
    help="Prepare hosts and control the embedded guest.",
    help_epilogue=examples("host"),
)
GuestName = Annotated[
    str,
    Parameter(name="--name", metavar="NAME", help="Name of the guest; --host vm is the guest vm"),
]
Suite = Annotated[
    Literal["bookworm", "trixie", "noble"] | None,
    Parameter(metavar="RELEASE", help="Debian or Ubuntu release"),
]
Cpus = Annotated[int, whole(1, 64), Parameter(help="Number of processors")]


for _verb in (setup, provision, verify, unprovision, image, pack):
    app.command(_verb, help_epilogue=examples(f"host {_verb.__name__}"))


@app.command(help_epilogue=examples("host which"))
def which(
    host: HostName = "auto",
    /,
    *,
    experiment: For = None,
    dataset: Dataset = "auto",
    cage: CageNames = (),
    treatment: Treatments = (),
) -> int:
    """Print the kind of a host: local, vm, or group.

    Parameters
    ----------
    host
        Host or group; auto is local if this machine can measure, else vm
    experiment
        Choose the host for a run of this experiment, which may need no limits
    dataset
        Size of the data: auto, full, default, emulated or smoke
    cage
        Cage instead of the experiment's cages; repeatable
    treatment
        Run only treatments with this level
    """
    from pagecage.planning.host_choice import choose_host
    from pagecage.planning.run_plan import runs_here

    options = RunOptions(host=host, dataset=dataset, cage=cage, treatment=treatment)
    if is_group(host):
        print("group")
    elif host == "auto" and experiment is not None:
        print("local" if runs_here(experiment, options) else "vm")
    else:
        print(choose_host(host, None, lambda _: None).name)
    return EXIT_OK


@app.command(help_epilogue=examples("host prepare"))
def prepare(
    host: Vm = "vm", /, *, experiment: For = None, dataset: Dataset = "auto", cage: CageNames = ()
) -> int:
    """Make the guest's image, saved state and data disk where missing.

    A run does this too. A guest in use has all of them already.

    Parameters
    ----------
    experiment
        Prepare for this experiment, with the memory and the disk that it needs
    dataset
        Size of the data: auto, full, default, emulated or smoke
    cage
        Cage instead of the experiment's cages; repeatable
    """
    from pagecage.planning.run_plan import plan_for
    from pagecage.runner.resource_needs import resource_needs

    if guest.status().running:
        notify("the guest is already running")
        return EXIT_OK
    if experiment is None:
        guest.prepare(notify_step)
        return EXIT_OK
    plan, vm = plan_for(
        experiment, RunOptions(host=host, dataset=dataset, cage=cage), "", notify_step
    )
    try:
        vm.prepare(resource_needs(plan), notify_step)
    finally:
        vm.stop()
    return EXIT_OK


@app.command(help_epilogue=examples("host up"))
def up(
    host: Vm = "vm",
    /,
    *,
    guest_name: GuestName = DEFAULT_NAME,
    suite: Suite = None,
    cpus: Cpus = CPUS,
) -> int:
    """Start the guest and leave it running.

    The guest is made first if it does not exist. Guests with other names have their own disk and
    image; the inventory group `guests` contains all running guests.
    """
    guest.up(notify_step, GuestCache.of_user(guest_name), GuestOptions(suite, cpus))
    return EXIT_OK


@app.command(help_epilogue=examples("host down"))
def down(host: Vm = "vm", /, *, guest_name: GuestName = DEFAULT_NAME) -> int:
    """Stop the guest that `host up` started."""
    guest.down(notify_step, GuestCache.of_user(guest_name))
    return EXIT_OK


@app.command(help_epilogue=examples("host shell"))
def shell(host: Vm = "vm", /, *, guest_name: GuestName = DEFAULT_NAME) -> int:
    """Open a root shell in the guest, which is started if needed."""
    return guest.shell(notify_step, GuestCache.of_user(guest_name))


@app.command(help_epilogue=examples("host status"))
def status(
    host: Vm = "vm", /, *, guest_name: GuestName = DEFAULT_NAME, as_json: Json = False
) -> int:
    """Show whether the guest is running, its user, and its stored files."""
    _print(asdict(guest.status(GuestCache.of_user(guest_name))), 24, as_json)
    return EXIT_OK


@app.command(help_epilogue=examples("host rebuild"))
def rebuild(host: Vm = "vm", /, *, guest_name: GuestName = DEFAULT_NAME) -> int:
    """Delete the guest's image and saved states and make them again; datasets stay."""
    guest.rebuild(notify_step, GuestCache.of_user(guest_name))
    return EXIT_OK


@app.command(help_epilogue=examples("host inventory"))
def inventory() -> int:
    """Print the running guests as an Ansible inventory.

    The group vm contains the guest vm, the group guests all running guests.
    """
    from pagecage.hosts.vm.image_build import GUEST, guest_variables, self_connecting_variables

    target = guest.running_target()
    vm = {GUEST: guest_variables(target)} if target else {}
    guests = {
        f"{GUEST}-{cache.name}": self_connecting_variables(target)
        for cache in existing_caches()
        if (target := guest.running_target(cache))
    }
    groups = {"vm": {"hosts": list(vm)}, "guests": {"hosts": list(guests)}}
    print(json.dumps({**groups, "_meta": {"hostvars": {**vm, **guests}}}))
    return EXIT_OK
