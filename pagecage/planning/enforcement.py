"""Enforcement of a plan's limits: by cgroup or volume, and settings of a disk's queue."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from pagecage.errors import PagecageError
from pagecage.hosts.host import Host, SizedHost
from pagecage.hosts.local import LocalHost
from pagecage.linux.block_device import resolve_disk
from pagecage.model.cage import MEMORY_EVENT, Cage
from pagecage.model.plan import Plan
from pagecage.model.trial import Trial
from pagecage.model.volume_model import dilated
from pagecage.planning.options import ReplayOptions, RunOptions
from pagecage.planning.size import fitting_dilation
from pagecage.runner.resource_needs import needed_disk_bytes
from pagecage.terminal import Notify, confirmed

MOST_DILATION = 1000.0
_SWAP = "MemorySwapMax"


def enforced(
    cages: Mapping[str, Cage], options: RunOptions | ReplayOptions, host: SizedHost, notify: Notify
) -> dict[str, Cage]:
    chosen = {name: _by(cage, options.enforced_by) for name, cage in cages.items()}
    volumes = [cage for cage in chosen.values() if cage.is_volume]
    if options.enforced_by == "volume" and not volumes:
        raise PagecageError(
            "--enforced-by volume: no cage has a limit on I/O", "name another cage with --cage"
        )
    factor = _dilation(options.dilate, volumes, host, notify)
    return {
        name: _slowed(cage, factor) if cage.is_volume else cage for name, cage in chosen.items()
    }


def missing_latencies(plan: Plan) -> Iterator[str]:
    """Yield a sentence for each cage whose latency nothing imposes."""
    cages = {trial.cage.name: trial.cage for trial in plan.trials}
    for cage in cages.values():
        simulated = cage.simulation and (
            cage.simulation.read_latency or cage.simulation.write_latency
        )
        if not cage.is_volume and (cage.latency or simulated):
            yield (
                f"note: {cage.name} has a latency, which a cgroup does not impose;"
                " --enforced-by volume does"
            )


def _slowed(cage: Cage, factor: float) -> Cage:
    """Return a volume's cage dilated, without the ban on swap if it has no limit on memory."""
    properties = cage.properties
    if MEMORY_EVENT.keys().isdisjoint(properties) and properties.get(_SWAP) == 0:
        others = {name: value for name, value in properties.items() if name != _SWAP}
        cage = replace(cage, properties=others)
    return dilated(cage, factor)


def _by(cage: Cage, enforced_by: str | None) -> Cage:
    if enforced_by is None or not (cage.limits_io or cage.simulation or cage.latency):
        return cage
    simulations = [one.simulation for one in cage.by_disk.values() if one.simulation]
    if enforced_by == "cgroup" and any(one.restore or one.events for one in simulations):
        message = f"{cage.name} has a restore or events, which a cgroup cannot enforce"
        raise PagecageError(message, "use --enforced-by volume")
    return replace(cage, enforced_by=enforced_by)


def _dilation(dilate: str | None, volumes: list[Cage], host: SizedHost, notify: Notify) -> float:
    if dilate not in (None, "auto"):
        try:
            factor = float(str(dilate))
        except ValueError:
            factor = 0.0
        if not 1 <= factor <= MOST_DILATION:
            raise PagecageError(
                f"--dilate: {dilate!r} is not a factor from 1 to {MOST_DILATION:g}", "--dilate 10"
            )
        if not volumes:
            raise PagecageError(
                "--dilate applies only to simulated volumes", "add --enforced-by volume"
            )
        return factor
    if not volumes or not host.is_emulated(notify):
        return 1.0
    factor = max(map(fitting_dilation, volumes))
    if factor > 1:
        notify(
            f"dilation: {factor:g} (the emulated {host.name} host cannot drive the volume at its"
            " full speed; its rates are divided and its latencies multiplied)"
        )
    return factor


def ask_before_queue_settings(plan: Plan, host: Host, yes: bool, notify: Notify) -> None:
    """Ask before a setting of the disk under / changes, which affects every other program.

    The settings are read_ahead_kb and max_sectors_kb. Without a terminal nobody can answer. The
    data of an experiment then get a disk of pagecage's own. Where none can be made, and for files
    of the user, the change is announced: it slows other programs at most, and each trial undoes it.
    """
    changed = list(dict.fromkeys(name for trial in plan.trials for name in queue_settings(trial)))
    if yes or not isinstance(host, LocalHost) or not changed:
        return
    disk = host.facts()["disk"]
    if "error" in disk or disk["maj_min"] != _disk_of_root():  # prepare() refuses an unknown disk
        return
    settings = f"{' and '.join(sorted(changed, reverse=True))} of {disk['node']}"
    changes = f"{settings}, which holds /,"
    if not sys.stdin.isatty():
        if plan.document.get("replay") is None and host.can_make_disk():
            file = host.make_disk(needed_disk_bytes(plan.trials, serves_volumes=True))
            notify(f"disk: {file} by loop, which leaves {settings} alone")
            return
        notify(f"{changes} will be changed during each trial and restored after it")
        return
    question = f"Set {changes} during each trial?"
    if not confirmed(question):
        raise PagecageError(f"not confirmed: {question}", "add --yes, or give another --data-dir")


def queue_settings(trial: Trial) -> list[str]:
    accounting = trial.cage.accounting
    splits_requests = accounting is not None and accounting.io_size_bytes is not None
    changed = {"read_ahead_kb": trial.read_ahead_kb is not None, "max_sectors_kb": splits_requests}
    return [name for name, is_changed in changed.items() if is_changed]


def _disk_of_root() -> str | None:
    """Return the disk under / as MAJOR:MINOR; None if / is on no single disk (an overlay, ZFS)."""
    try:
        return resolve_disk(Path("/")).maj_min
    except PagecageError:
        return None
