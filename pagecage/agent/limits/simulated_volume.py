"""Limits and latencies of a simulated volume: set, measured and proven."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pagecage.agent.drivers.driver import ExternalLimits, io_properties
from pagecage.agent.limits.calibration import (
    Calibration,
    driven_seconds,
    fio_argv,
    fio_method,
    judge_driven,
)
from pagecage.agent.limits.fidelity import Fidelity
from pagecage.errors import HostError
from pagecage.model.cage import IO_MAX_KEY, Cage
from pagecage.model.json_codec import Json, JsonView
from pagecage.model.volume_model import volume_model
from pagecage.process import find_tool, run

ENFORCER = "volume"
QEMU = "qemu"
"""The path to the volume of a guest: QEMU is the client."""
Command = Callable[[JsonView], Json]
"""Sends a command to the server of the volume. Raises HostError if it is refused."""
_NO_LIMIT = volume_model(Cage("", {}), 0)


class SimulatedVolume:
    """The volume of one trial, reached by `path`. Every method raises HostError if it is silent."""

    def __init__(self, command: Command, path: JsonView | None = None) -> None:
        self._command, self.path = command, path or {"kind": QEMU}

    def free(self) -> None:
        """Remove all limits and latencies, so that preparations take no longer than needed."""
        self.configure(_NO_LIMIT)

    def configure(self, model: JsonView) -> Json:
        """Replace the model, with fresh credits and an empty account; return it as in force."""
        answer = self._command({"configure": model})
        return dict(answer["in_force"])

    def account(self) -> Json:
        """Return the account since the last `configure`."""
        return self._command({"account": True})

    def enforce(self, cage: Cage, seed: int) -> ExternalLimits:
        model = volume_model(cage, seed)
        if path_us := self.path.get("latency_us"):
            model["path_us"] = path_us
        in_force = self.configure(model)
        wrong = [key for key, value in model.items() if in_force.get(key) != value]
        if wrong:
            found = ", ".join(f"{key} = {in_force.get(key)}" for key in wrong)
            raise HostError(f"the simulated volume holds another model: {found}")
        return ExternalLimits(ENFORCER, io_properties(cage), in_force, self.path)


def fidelity(cage: Cage, path: JsonView) -> list[Fidelity]:
    accounting, found = cage.accounting, []
    if accounting and accounting.io_size_bytes:
        reason = (
            f"the volume counts an I/O of more than {accounting.io_size_bytes // 1024} KiB as"
            " several, as the provider does"
        )
        found.append(_exact("io_size", reason))
    if accounting and accounting.merged:
        found.append(_exact("merged", "the volume merges adjacent I/Os before it counts them"))
    if accounting and accounting.combined:
        found.append(_exact("combined", "reads and writes share the volume's limits"))
    if latency := _latency(volume_model(cage, 0), path.get("latency_us", 0.0)):
        found.append(latency)
    return found


def _latency(model: JsonView, path_us: float) -> Fidelity | None:
    sizes = [*model["read_latency"], *model["write_latency"]]
    if not sizes:
        return None
    least_us = min(us for size in sizes for _, us in size["quantiles"])
    if path_us > least_us:
        reason = (
            f"the path to the volume alone takes {path_us:g} us, and the cage's lowest latency is"
            f" {least_us:g} us"
        )
        return Fidelity("latency", "stricter", reason)
    return _exact("latency", "each I/O takes a latency from the cage's distribution")


def _exact(aspect: str, reason: str) -> Fidelity:
    return Fidelity(aspect, "exact", reason)


def sound_account(volume: SimulatedVolume) -> Json:
    """Return a volume's account. Raises HostError if its file failed, as on a full disk."""
    account = volume.account()
    if error := account["pcvolume"].get("last_error"):
        raise HostError(
            f"the file below the simulated volume failed: {error}",
            "free space on its disk, and run it again",
        )
    return account


_GRACE = 1.02
"""The account is read after fio has ended, and the run time in it is that of fio's threads."""
_IOS_AROUND, _BYTES_AROUND = 4, 64 * 1024
"""I/O of the file system before and after the driven time, which the account counts too."""


@dataclass
class VolumeCalibrator:
    """Calibrates volumes and remembers the results for a machine state."""

    _known: dict[str, Json] = field(default_factory=dict)

    def calibrate(
        self, volume: SimulatedVolume, cage: Cage, read_from: Path | None, scratch: Path
    ) -> Mapping[str, JsonView]:
        """Return a Calibration as JSON by property; `scratch` is a file that may be written."""
        model: Json = volume_model(cage, 0)  # the limits alone, with empty buckets
        model |= {"read_latency": [], "write_latency": [], "restore": None, "events": []}
        model["limits"] = [
            {**limit, "credits": limit["credits"] and {**limit["credits"], "start": 0.0}}
            for limit in model["limits"]
        ]
        key = json.dumps([model, sorted(cage.properties)], sort_keys=True)
        if key not in self._known:
            targets = {n: read_from if "Read" in n else scratch for n in cage.properties}
            self._known[key] = {
                name: vars(_drive(volume, model, name, cage.properties[name], target))
                for name, target in targets.items()
                if target and name in IO_MAX_KEY
            }
        return self._known[key]


def _drive(
    volume: SimulatedVolume, model: JsonView, name: str, cap: int, target: Path
) -> Calibration:
    method = fio_method(name)
    if not find_tool("fio"):
        return Calibration(method, None, cap, None, None, "fio is not installed")
    argv = fio_argv(name, target)
    if "Write" in name:
        run([*argv, "--create_only=1"], timeout_seconds=120)
    volume.configure(model)
    try:
        done = run(argv, check=False, timeout_seconds=120)
        account = volume.account()
    finally:
        volume.free()
    try:
        seconds = driven_seconds(done)
    except HostError as error:
        return Calibration(method, None, cap, None, None, error.message)
    used = [limit["used"] for limit in account["pcvolume"]["limits"] if _covers(limit, name)]
    if not used or seconds <= 0:
        return Calibration(method, seconds, cap, None, None, "the volume counted no I/O")
    around = _IOS_AROUND if "IOPS" in name else _BYTES_AROUND
    allowed = cap * _GRACE + around / seconds
    return judge_driven(method, seconds, cap, allowed, max(used) / seconds, ("volume", "limit"))


def _covers(limit: JsonView, name: str) -> bool:
    unit = "operations" if "IOPS" in name else "bytes"
    return limit["unit"] == unit and limit["scope"] in (
        "both",
        "read" if "Read" in name else "write",
    )
