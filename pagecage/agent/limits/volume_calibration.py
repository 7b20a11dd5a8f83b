"""Calibration of a simulated volume: proof that each limit holds under a load that exceeds it.

The volume is driven with its rate limits alone, without latencies and with empty credit buckets, so
that each base rate is reached. Its own account counts what it let through.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pagecage.agent.limits.calibrate import (
    DRIVEN_SHARE,
    Calibration,
    driven_seconds,
    fio_argv,
    fio_method,
)
from pagecage.agent.limits.simulated_volume import SimulatedVolume
from pagecage.errors import HostError
from pagecage.model.cage import IO_MAX_KEY, Cage
from pagecage.model.volume_model import volume_model
from pagecage.process import find_tool, run

_GRACE = 1.02
"""The account is read after fio has ended, and the run time in it is that of fio's threads."""
_IOS_AROUND, _BYTES_AROUND = 4, 64 * 1024
"""I/O of the file system before and after the driven time, which the account counts too."""


@dataclass
class VolumeCalibrator:
    """Calibrates volumes and remembers the results for a machine state."""

    _known: dict[str, dict[str, Any]] = field(default_factory=dict)

    def calibrate(
        self, volume: SimulatedVolume, cage: Cage, read_from: Path | None, scratch: Path
    ) -> Mapping[str, Mapping[str, Any]]:
        """Return a Calibration as JSON by property.

        `read_from` is larger than a few seconds of the limit, and `scratch` a file that may be
        written.
        """
        model = driven_model(cage)
        key = json.dumps([model, sorted(cage.properties)], sort_keys=True)
        if key not in self._known:
            properties = [name for name in cage.properties if name in IO_MAX_KEY]
            targets = {name: read_from if "Read" in name else scratch for name in properties}
            self._known[key] = {
                name: vars(_drive(volume, model, name, cage.properties[name], target))
                for name, target in targets.items()
                if target
            }
        return self._known[key]


def driven_model(cage: Cage) -> dict[str, Any]:
    """Return the model with its limits alone, and with empty buckets."""
    model = volume_model(cage, 0)
    limits = [
        {**limit, "credits": limit["credits"] and {**limit["credits"], "start": 0.0}}
        for limit in model["limits"]
    ]
    nothing: dict[str, Any] = {"read_latency": [], "write_latency": [], "restore": None}
    return {**model, **nothing, "events": [], "limits": limits}


def _drive(
    volume: SimulatedVolume, model: Mapping[str, Any], name: str, cap: int, target: Path
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
    return judge_account(method, cap, account, name, seconds)


def judge_account(
    method: str, cap: int, account: Mapping[str, Any], name: str, seconds: float
) -> Calibration:
    """Return the result for one property, from the account of a driven volume."""
    used = [limit["used"] for limit in account["pcvolume"]["limits"] if _covers(limit, name)]
    if not used or seconds <= 0:
        return Calibration(method, seconds, cap, None, None, "the volume counted no I/O")
    around = _IOS_AROUND if "IOPS" in name else _BYTES_AROUND
    observed, allowed = max(used) / seconds, cap * _GRACE + around / seconds
    if observed < DRIVEN_SHARE * cap:
        reason = f"the volume reached only {observed / cap:.0%} of the limit"
        return Calibration(method, seconds, allowed, observed, None, reason)
    return Calibration(method, seconds, allowed, observed, observed <= allowed)


def _covers(limit: Mapping[str, Any], name: str) -> bool:
    """Return whether a limit of the account counts the I/O that a property limits."""
    unit = "operations" if "IOPS" in name else "bytes"
    return limit["unit"] == unit and limit["scope"] in (
        "both",
        "read" if "Read" in name else "write",
    )
