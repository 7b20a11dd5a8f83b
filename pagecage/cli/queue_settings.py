"""Settings of a disk's request queue that a plan changes, and the question before it."""

from __future__ import annotations

import sys
from pathlib import Path

from pagecage.agent.system.block_device import resolve_disk
from pagecage.cli.output import Notify, confirmed
from pagecage.errors import PagecageError
from pagecage.hosts.host import Host
from pagecage.hosts.local import LocalHost
from pagecage.model.trial import Trial
from pagecage.planning.plan import Plan
from pagecage.runner.resource_needs import needed_disk_bytes


def ask_before_queue_settings(plan: Plan, host: Host, yes: bool, notify: Notify) -> None:
    """Ask before a setting of the disk under / changes, which affects every other program.

    The settings are read_ahead_kb and max_sectors_kb. Without a terminal nobody can answer. The
    data of an experiment then get a disk of pagecage's own. Where none can be made, and for files
    of the user, the change is announced: it slows other programs at most, and each trial undoes it.
    """
    if yes or not isinstance(host, LocalHost) or not any(map(sets_queue_settings, plan.trials)):
        return
    disk = host.facts()["disk"]
    if "error" in disk or disk["maj_min"] != _disk_of_root():  # prepare() refuses an unknown disk
        return
    settings = f"{_queue_settings_of(plan)} of {disk['node']}"
    changes = f"{settings}, which holds /,"
    if not sys.stdin.isatty():
        if plan.document.get("replay") is None and host.can_make_disk():
            file = host.make_disk(needed_disk_bytes(plan.trials))
            notify(f"disk: {file} by loop, which leaves {settings} alone")
            return
        notify(f"{changes} will be changed during each trial and restored after it")
        return
    question = f"Set {changes} during each trial?"
    if not confirmed(question):
        raise PagecageError(f"not confirmed: {question}", "add --yes, or give another --data-dir")


def sets_queue_settings(trial: Trial) -> bool:
    """Return whether a trial changes settings of its disk's request queue."""
    return trial.read_ahead_kb is not None or _splits_requests(trial)


def _splits_requests(trial: Trial) -> bool:
    """Return whether requests are split at the size that the provider counts as one I/O."""
    return trial.cage.accounting is not None and trial.cage.accounting.io_size_bytes is not None


def _queue_settings_of(plan: Plan) -> str:
    names = {"read_ahead_kb": any(t.read_ahead_kb is not None for t in plan.trials)}
    names["max_sectors_kb"] = any(map(_splits_requests, plan.trials))
    return " and ".join(name for name, is_set in names.items() if is_set)


def _disk_of_root() -> str | None:
    """Return the disk under / as MAJOR:MINOR; None if / is on no single disk (an overlay, ZFS)."""
    try:
        return resolve_disk(Path("/")).maj_min
    except PagecageError:
        return None
