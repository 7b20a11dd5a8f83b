"""Turns what the user typed into a host, a size and a plan; says which was chosen and why."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pagecage.checkout import TOP
from pagecage.cli.output import Say
from pagecage.cli.run_options import HOSTS, FleetOptions, RunOptions, definitions, is_group
from pagecage.errors import PagecageError, nearest
from pagecage.hosts.host import Host, SizedHost
from pagecage.hosts.local import LocalHost
from pagecage.model.cage import UNCAGED, Cage
from pagecage.model.experiment import SIZES, Experiment, Level
from pagecage.model.requirements import check_host
from pagecage.planning.plan import Plan, PlanOptions, make_plan
from pagecage.process import find_tool, run
from pagecage.runner.run_folder import new_run_id
from pagecage.version import VERSION

MOST_REPEATS = 30
"""The bound of --until-ci where none is given."""


def check_wishes(wishes: RunOptions, fleet: FleetOptions) -> None:
    """Raise PagecageError for options that no host can satisfy, before a host is asked."""
    _known_size(wishes.size)
    _check_repeats(wishes)
    until_ci(wishes)
    if not is_group(wishes.host) and fleet != FleetOptions():
        option = next(name for name, value in vars(fleet).items() if value != getattr(FleetOptions(), name))
        raise PagecageError(
            f"--{option.replace('_', '-')} is for a group of hosts, and {wishes.host} is none", "name one: --host GROUP"
        )


def choose_host(wish: str, data_dir: Path | None, say: Say) -> Host:
    """The host by name; `auto` is local where doctor finds nothing missing, else the vm."""
    if is_group(wish):
        raise PagecageError(f"there is no host {wish!r} for this", nearest(wish, list(HOSTS)))
    if wish == "vm" and data_dir is not None:
        raise PagecageError("--data-dir is for host local, and the vm has a disk of its own", "leave --data-dir out")
    local = LocalHost(data_dir)
    if wish == "local":
        return local
    if wish == "auto":
        missed = check_host(local.facts())
        if not missed:
            say("host: local, because this machine lacks nothing (pagecage doctor)")
            return local
        say(f"host: vm, because {missed[0].reason} (pagecage doctor)")
    return _guest(say)


def _guest(say: Say) -> Host:
    """The guest that is kept up, where there is one, else one of our own for each machine state."""
    from pagecage.hosts.vm.kept_guest import KeptGuest, kept_guest
    from pagecage.hosts.vm.vm_host import VmHost

    user, kept = os.environ.get("PAGECAGE_VM_USER", "root"), kept_guest()
    if kept is None:
        return VmHost(user)
    since = time.strftime("%H:%M:%S", time.localtime(kept.since_unix_seconds))
    say(f"host: vm, the guest that is kept up since {since}, as it is now (pagecage host down vm ends it)")
    return KeptGuest(kept, user)


def choose_size(wish: str, host: SizedHost, say: Say) -> tuple[str, str]:
    """The size's name and why."""
    if _known_size(wish) != "auto":
        return wish, "asked for"
    if host.is_emulated(say):
        return "emulated", f"the {host.name} host translates instructions, so sizes and caps are small"
    return "default", f"the {host.name} host runs instructions in hardware"


def _known_size(wish: str) -> str:
    if wish not in ("auto", *SIZES):
        raise PagecageError(f"there is no size {wish!r}", nearest(wish, ["auto", *SIZES]))
    return wish


def with_cage(experiment: Experiment, cage: str | None) -> Experiment:
    """The experiment with every caged level replaced by one cage; the control stays."""
    if cage is None:
        return experiment
    if any(level.cage for factor, table in experiment.levels.items() if factor != "cage" for level in table.values()):
        raise PagecageError(f"{experiment.name} sets its cages itself, in its levels", "leave CAGE out")
    if "cage" not in experiment.factors:
        levels = {**experiment.levels, "cage": {cage: Level(cage=cage)}}
        return replace(experiment, factors={"cage": (cage,), **experiment.factors}, levels=levels)
    kept = tuple(level for level in experiment.factors["cage"] if level == "uncaged")
    names = (*kept, cage) if cage not in kept else kept
    levels = {name: table for name, table in experiment.levels.items() if name != "cage"}
    return replace(experiment, factors={**experiment.factors, "cage": names}, levels=levels)


def with_driver(experiment: Experiment, driver: str | None) -> Experiment:
    """The experiment with every workload run by one driver."""
    if driver is None:
        return experiment
    if any(level.driver for table in experiment.levels.values() for level in table.values()):
        raise PagecageError(f"{experiment.name} sets its drivers itself, in its levels", "leave --driver out")
    return replace(experiment, driver=driver)


def build_plan(
    wishes: RunOptions,
    experiment: Experiment,
    host: SizedHost,
    command: str,
    say: Say,
    made: Mapping[str, Cage] | None = None,
) -> Plan:
    """The whole plan, every value resolved. Its cages are those of cgroups/, or `made` ones that stand in no file."""
    size, reason = choose_size(wishes.size, host, say)
    dataset_bytes = experiment.sizes[size].total_bytes
    room_bytes = (dataset_bytes or 0) + experiment.sizes[size].writes_bytes
    if room_bytes and isinstance(host, LocalHost):
        host.require_room(room_bytes)
    cages = made or {name: definitions().cage(name, dataset_bytes) for name in experiment.cage_names() | {UNCAGED}}
    fresh = wishes.fresh or experiment.fresh
    if host.name != "vm" and fresh != "never":
        raise PagecageError(
            f'fresh = "{fresh}" needs a saved machine state, and host {host.name} has none', "use --host vm"
        )
    choices = PlanOptions(
        size=size, size_reason=reason, host=host.name, fresh=fresh,
        repeats=choose_repeats(wishes, experiment, size), until_ci=until_ci(wishes),
        seed=wishes.seed if wishes.seed is not None else random.SystemRandom().randrange(2**32),
    )  # fmt: skip
    return make_plan(new_run_id(experiment.name, host.name), experiment, cages, choices, command, harness())


def choose_repeats(wishes: RunOptions, experiment: Experiment, size: str) -> int:
    """How often each treatment is planned: the bound where a stopping rule may end the run before it."""
    _check_repeats(wishes)
    if wishes.until_ci is not None:
        return wishes.max_repeats or MOST_REPEATS
    return wishes.repeats or experiment.sizes[size].repeats or experiment.repeats


def _check_repeats(wishes: RunOptions) -> None:
    if wishes.until_ci is None and wishes.max_repeats is not None:
        raise PagecageError(
            "--max-repeats bounds --until-ci, which is not given", "add --until-ci 5%, or use --repeats"
        )
    if wishes.until_ci is not None and wishes.repeats is not None:
        raise PagecageError("--repeats fixes what --until-ci finds out", "use --max-repeats for the bound")


def until_ci(wishes: RunOptions) -> float | None:
    """The share that `--until-ci` names: 0.05 of `5%`."""
    if wishes.until_ci is None:
        return None
    match = re.fullmatch(r"([0-9]{1,2}(?:\.[0-9]+)?)\s*%", wishes.until_ci)
    if not match or not float(match[1]):
        raise PagecageError(f"--until-ci {wishes.until_ci} is no share of a median", "write it as 5%")
    return float(match[1]) / 100


def harness() -> dict[str, object]:
    """Version and git revision of this checkout; None where it is no git checkout, or where there is no git."""
    if find_tool("git") is None:
        return {"version": VERSION, "git_revision": None, "git_dirty": None}
    revision = run(["git", "-C", TOP, "rev-parse", "HEAD"], check=False)
    dirty = run(["git", "-C", TOP, "status", "--porcelain", "--untracked-files=no"], check=False)
    known = revision.ok
    return {
        "version": VERSION, "git_revision": revision.stdout.strip() if known else None,
        "git_dirty": bool(dirty.stdout.strip()) if known else None,
    }  # fmt: skip
