"""The cage of a trial: its driver made ready, its slice with the limits, and proof that each is where it must be."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pagecage.agent.data_files import sidecar_of
from pagecage.agent.drivers.driver import LaunchContext
from pagecage.agent.drivers.registry import make_driver
from pagecage.agent.protocol.rpc import ask
from pagecage.agent.system import cgroupfs
from pagecage.agent.system.systemd import start_slice, stop_slice, unit_name
from pagecage.agent.trial_run import RequirementMissed, TrialRun
from pagecage.errors import PagecageError
from pagecage.model.cage import Cage, cloud_to_json, expected_read_back, limits_not_in_force
from pagecage.model.requirements import MissedRequirement, Requirement

_START_SECONDS = 60.0
_LOOK_SECONDS = 0.01
_INHERITED = ("HOME", "LANG", "PATH")


def prepare_driver(attempt: TrialRun) -> None:
    """Have there what is to run the workload: a container engine, say, which would disturb what is measured."""
    bench = attempt.bench
    attempt.driver = make_driver(attempt.trial.driver, bench.engines, partial(ask, bench.stream, bench.inbox))
    attempt.cage["driver"] = {"name": attempt.trial.driver}
    try:
        attempt.cage["driver"] |= attempt.driver.prepare()
    except PagecageError as error:
        raise RequirementMissed([MissedRequirement(Requirement.DRIVER, error.message, error.hint)]) from None


def place_of(attempt: TrialRun) -> LaunchContext:
    """Where the trial runs, as its driver needs to know it."""
    trial, request = attempt.trial, attempt.bench.request
    command, assumed = trial.workload.command, attempt.cgroup or Path("/")
    in_layer = trial.storage == "container_layer"
    is_command = trial.workload.kind == "command"
    return LaunchContext(
        systemd=attempt.bench.systemd, unit=attempt.unit, cgroup=assumed, cage=trial.cage, disk=attempt.disk,
        programs_dir=Path(request.programs_dir), spool=request.spool, data_dir=None if in_layer else attempt.data_dir,
        directory=Path(command.directory) if command and command.directory else None,
        paths=() if in_layer else attempt.datasets,
        files=(*attempt.datasets, *filter(Path.exists, map(sidecar_of, attempt.datasets))) if in_layer else (),
        environment=tuple(name for name in sorted(os.environ) if is_command or name in _INHERITED),
    )  # fmt: skip


def prepare_slice(attempt: TrialRun) -> None:
    """Make the slice with its limits on it, read them back, and have whoever holds the others hold them."""
    bench, trial, driver = attempt.bench, attempt.trial, attempt.driver
    carried = driver.on_slice(trial.cage)
    attempt.unit = unit_name(trial.trial_id, attempt.number)
    attempt.cleanup.callback(stop_slice, bench.systemd, attempt.unit)
    attempt.cgroup = start_slice(bench.systemd, attempt.unit, carried, attempt.disk.node)
    attempt.cage |= {
        "name": trial.cage.name, "requested": dict(trial.cage.properties), "slice": str(attempt.cgroup),
        "expected": expected_read_back(carried), **_read_back(attempt, attempt.cgroup), **cloud_to_json(trial.cage),
    }  # fmt: skip
    _require_read_back(attempt)
    attempt.cleanup.callback(_clear, attempt)
    try:
        imposed = driver.impose(place_of(attempt))
    except PagecageError as error:
        raise RequirementMissed([MissedRequirement(Requirement.LIMITS, error.message, error.hint)]) from None
    if imposed is not None:
        attempt.cage["external"] = imposed.to_json()
        wrong = {k: v for k, v in imposed.read_back.items() if trial.cage.properties.get(k) != v}
        _refuse([f"{imposed.by} holds {name} at {value}" for name, value in wrong.items()])


def _clear(attempt: TrialRun) -> None:
    attempt.driver.clear(place_of(attempt))


def _read_back(attempt: TrialRun, cgroup: Path) -> dict[str, Any]:
    maj_min = attempt.disk.maj_min
    return {
        "read_back": cgroupfs.read_limits(cgroup, maj_min),
        "ancestors": {str(above): cgroupfs.read_limits(above, maj_min) for above in cgroupfs.ancestors(cgroup)},
    }


def _require_read_back(attempt: TrialRun) -> None:
    """systemd starts a unit even when it could not apply a limit (a journal line at most), so ask the kernel."""
    cage = attempt.cage
    _refuse(limits_not_in_force(cage["expected"], cage["read_back"], cage["ancestors"]))


def _refuse(wrong: list[str], hint: str = "pagecage doctor") -> None:
    if wrong:
        raise RequirementMissed(
            [MissedRequirement(Requirement.LIMITS, f"limits are not as asked: {'; '.join(wrong)}", hint)]
        )


def confirm_limits(attempt: TrialRun, patience_seconds: float = 0.0) -> None:
    """Once the workload stands in its cage, before it is let go: read back what its driver has put on it by itself.

    An engine that loses a limit says nothing. Raises RequirementMissed with what is not as asked. Of a program that
    waits at no gate the engine's runtime may be there first, which sets one limit after the other: hence patience.
    """
    cage, asked = attempt.cage, expected_read_back(attempt.trial.cage)
    outside = expected_read_back(Cage("", cage.get("external", {}).get("read_back", {})))
    own = {key: value for key, value in asked.items() if key not in cage["expected"] and key not in outside}
    if not own:
        return
    name, cgroup, until = attempt.trial.driver, _limited(attempt), time.monotonic() + patience_seconds
    if cgroup is None:
        _refuse([f"{name} has made no cgroup of its own in the slice"])
        return
    of_slice = {key: cage["read_back"][key] for key in cage["expected"]}
    found = _read_when_set(attempt, cgroup, own, until)
    cage |= {**found, "expected": cage["expected"] | own, "driver_cgroup": str(cgroup)}
    cage["read_back"] |= of_slice
    wrong = limits_not_in_force(cage["expected"], cage["read_back"], cage["ancestors"])
    _refuse([f"{name} lost them: {'; '.join(wrong)}"] if wrong else [], "use --driver docker: limits on our own slice")


def _read_when_set(attempt: TrialRun, cgroup: Path, own: Mapping[str, str], until: float) -> dict[str, Any]:
    """What the driver's own cgroup says once all limits are there, at monotonic `until`, or last before it was over."""
    found = _read_back(attempt, cgroup)
    while not own.items() <= found["read_back"].items() and time.monotonic() < until and not _is_over(attempt):
        time.sleep(_LOOK_SECONDS)
        later = _read_back(attempt, cgroup)
        found = later if later["read_back"] else found
    return found


def _limited(attempt: TrialRun) -> Path | None:
    """The driver's own cgroup; a program that waits at no gate may be there a moment after its start."""
    deadline, place = time.monotonic() + _START_SECONDS, place_of(attempt)
    while (cgroup := attempt.driver.limited(place)) is None and time.monotonic() < deadline:
        if _is_over(attempt):
            return None
        time.sleep(_LOOK_SECONDS)
    return cgroup


def _is_over(attempt: TrialRun) -> bool:
    return attempt.conversation is None or attempt.conversation.process.poll() is not None
