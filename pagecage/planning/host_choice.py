"""The host of a run: the one that was asked for, or with `auto` the one that fits the plan."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from pagecage.agent.storage import check_disks
from pagecage.agent.volume_server import choose_path
from pagecage.errors import HostError, PagecageError, nearest
from pagecage.hosts.agent_package import is_foreign_target, require_native_target, target_machine
from pagecage.hosts.host import Host
from pagecage.hosts.local import LocalHost
from pagecage.model.json_codec import JsonView
from pagecage.model.plan import Plan
from pagecage.model.requirements import Requirement, check_host, check_trial, default_driver
from pagecage.model.trial import Trial
from pagecage.planning.options import HOSTS, ReplayOptions, RunOptions, is_group, parse_disks
from pagecage.runner.local_programs import missing_programs
from pagecage.terminal import Notify

MakePlan = Callable[[Host], Plan]
"""Makes the plan of a run for a host. Raises PagecageError if the host cannot run it."""
_MOST_NAMED = 4
_ELSEWHERE = {
    Requirement.LIMITS,
    Requirement.CGROUP_V2,
    Requirement.CPU_CONTROLLER,
    Requirement.SYSTEMD_PID1,
    Requirement.STORAGE,
    Requirement.MACHINE_MEMORY,
    Requirement.DIRTY_LIMITS,
    Requirement.DRIVER,
}
"""Requirements that the guest meets where this machine does not, without a choice of the user."""


def choose_host(
    name: str, data_dir: Path | None, notify: Notify, disks: Sequence[str] = ()
) -> Host:
    """Return the host of this name; `auto` is local if it can hold limits, else vm."""
    folders = parse_disks(disks)
    if is_group(name):
        raise PagecageError(f"there is no single host {name!r}", nearest(name, list(HOSTS)))
    if name == "vm":
        own = {"--data-dir": (data_dir, "its own disk"), "--disk": (disks, "disks of its own")}
        for option in (option for option, (value, _) in own.items() if value):
            message = f"{option} applies only to --host local: the vm has {own[option][1]}"
            raise PagecageError(message, f"remove {option}")
        return _guest(notify)
    local = LocalHost(data_dir, folders)
    if name == "local":
        require_native_target()
        return local
    if is_foreign_target():
        notify(f"host: vm ({target_machine()}, emulated on this machine)")
        return _guest(notify)
    facts = local.facts()
    if missed := check_host(facts):
        notify(f"host: vm ({missed[0].reason}, see pagecage doctor)")
        return _guest(notify)
    notify(f"host: local ({limits_by(facts)} holds the limits, see pagecage doctor)")
    return local


def limits_by(facts: JsonView) -> str:
    """Return the maker of the cgroups that hold limits on this machine, for a sentence."""
    if default_driver(facts) is None:
        return str(facts["cgroup"]["manager"])
    versions = {"v1": "v1", "v2": "v2", "hybrid": "v1 and v2"}
    return f"the driver cgroupfs with cgroup {versions[facts['cgroupfs']['hierarchy']]}"


def plan_on_host(
    options: RunOptions | ReplayOptions, make: MakePlan, notify: Notify
) -> tuple[Plan, Host]:
    """Return the plan of a run, and the host that runs it.

    With `auto`, a plan that needs no limits runs on this machine even if it cannot hold any, and a
    plan of which this machine cannot hold a part runs in the guest.
    """
    if options.host == "auto":
        plan = _plan_without_limits(LocalHost(options.data_dir), make)
        if plan is not None:
            notify("host: local (no limit needs a cgroup, so this machine's own CPU is measured)")
            return plan, LocalHost(options.data_dir)
    host = choose_host(options.host, options.data_dir, notify, options.disk)
    try:
        plan = make(host)
        if options.host == "auto" and (reason := _cannot_run_here(host, plan)):
            notify(f"host: vm ({reason})")
            host = _guest(notify)
            plan = make(host)
        return plan, host
    except BaseException:
        host.stop()
        raise


def can_run_here(local: LocalHost, make: MakePlan) -> bool:
    """Return whether `auto` takes this machine for a plan, without a plan for the guest."""
    if _plan_without_limits(local, make) is not None:
        return True
    if is_foreign_target() or check_host(local.facts()):
        return False
    try:
        return _cannot_run_here(local, make(local)) is None
    except PagecageError:
        return True


def _plan_without_limits(local: LocalHost, make: MakePlan) -> Plan | None:
    """Return the plan on this machine if it can hold no limits and none is needed, else None."""
    if is_foreign_target() or not local.missed_for_limits():
        return None
    try:
        plan = make(local)
    except PagecageError:  # the guest may do better, and names the error if it does not
        return None
    facts = local.facts()
    fits = not any(check_trial(facts, trial) for trial in plan.trials)
    return plan if fits and _no_volume(plan.trials) is None else None


def _cannot_run_here(host: Host, plan: Plan) -> str | None:
    """Return why this machine cannot run a part of a plan; None for another host, or if it can."""
    if not isinstance(host, LocalHost):
        return None
    facts = host.facts()
    for trial in plan.trials:
        if trial.machine_memory_bytes is not None or trial.dirty_limits:
            return "memory and dirty limits of the whole machine are changed only in a guest"
        missed = [one for one in check_trial(facts, trial) if one.requirement in _ELSEWHERE]
        for one in (*check_disks(facts, trial.cage), *missed):
            return one.reason
    return _no_volume(plan.trials)


def _no_volume(trials: Iterable[Trial]) -> str | None:
    """Return why this machine cannot attach the simulated volumes of trials; None if it can."""
    if any(trial.cage.is_volume for trial in trials):
        try:
            choose_path()
        except HostError as error:
            return error.message
    return None


def refuse_limits(trials: Iterable[Trial], local: LocalHost) -> None:
    """Raise HostError naming the treatments whose limits this machine cannot hold."""
    limited = [trial for trial in trials if trial.cage.cgroup_part.has_limits]
    if not limited or not (found := local.missed_for_limits()):
        return
    missed = found[0]
    message = f"this machine cannot hold the limits of {_named(limited)}: {missed.reason}"
    without = "--treatment cage=uncaged"
    if missed.hint:  # alone, since it can be a command
        raise HostError(f"{message} ({without} leaves them out)", missed.hint)
    raise HostError(message, f"run only treatments without limits: {without}")


def _named(trials: Iterable[Trial]) -> str:
    """Return the treatments of trials for a sentence, the first four by name."""
    levels = list(dict.fromkeys(tuple(trial.treatment.values()) for trial in trials))
    names = ", ".join(" ".join(one) or "the trial" for one in levels[:_MOST_NAMED])
    return names + (f" and {len(levels) - _MOST_NAMED} more" if len(levels) > _MOST_NAMED else "")


def refuse_missing_programs(trials: Sequence[Trial], notify: Notify) -> None:
    """Raise HostError if this machine lacks a program for every trial.

    If it lacks one for some of them, their treatments are named, and the others can run.
    """
    found = missing_programs(trials)
    if found and sum(len(one.trials) for one in found) == len(trials):
        reasons = "; ".join(one.reason for one in found)
        raise HostError(f"this machine cannot run the trials: {reasons}", found[0].hint)
    for one in found:
        what = f"{_named(one.trials)} will have no result: {one.reason}"
        notify(f"{what}\n  fix: {one.hint}")


def _guest(notify: Notify) -> Host:
    """Return the guest that `pagecage host up` left running, else a host that starts its own."""
    from pagecage.hosts.vm.vm_host import PersistentGuest, VmHost, find_persistent_guest

    user, running = os.environ.get("PAGECAGE_VM_USER", "root"), find_persistent_guest()
    if running is None:
        return VmHost(user)
    since = time.strftime("%H:%M:%S", time.localtime(running.since_unix_seconds))
    notify(
        f"host: vm (the guest running since {since}, in its present state; pagecage host down vm"
        " stops it)"
    )
    return PersistentGuest(running, user)
