"""Client of the daemon in the guest (guest_daemon.py), connected through a virtio serial port."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagecage.errors import HostDied, HostError

SEED_BYTES = 64
WAKE_SECONDS = 30.0
RELEASE_SECONDS = 60.0
SCRIPT = Path(__file__).with_name("guest_daemon.py")
UNIT = "pagecage-guest-daemon.service"


@dataclass(frozen=True)
class WakeReply:
    """The guest's answer: the most by which its clock lags, and its disks' devices by serial."""

    clock_error_seconds: float
    devices: Mapping[str, str]


def start_argv() -> list[str]:
    """Return the command that starts the daemon in the guest, before its state is saved."""
    run = ["systemd-run", "--quiet", "--collect", f"--unit={UNIT}", "--property=Restart=always"]
    return [*run, "/usr/bin/python3", "-I", "-S", "-c", SCRIPT.read_text()]


def wake(port: Path, user: str, mounts: Mapping[str, str], directories: Sequence[str]) -> WakeReply:
    """Set the clock and entropy of a restored guest, mount its disks, and make directories.

    `mounts` has the mount point of each disk by its serial number. The directories belong to
    `user`. Raises HostError with the guest's reason, or if the guest does not answer.
    """
    request = {
        "do": "wake",
        "seed": os.urandom(SEED_BYTES).hex(),
        "user": user,
        "mounts": dict(mounts),
        "directories": [*directories],
    }
    answer = _request(port, {**request, "unix_seconds": time.time()}, WAKE_SECONDS)
    return WakeReply(set_clock(port), answer["devices"])


def set_clock(port: Path) -> float:
    """Set the guest's clock; return the most by which it lags, the round-trip time, in seconds."""
    sent = time.time()
    _request(port, {"do": "clock", "unix_seconds": sent}, WAKE_SECONDS)
    return time.time() - sent


def release(port: Path) -> bool:
    """Unmount the data disks.

    Returns False if a file is open on it, or if the guest does not answer.
    """
    with contextlib.suppress(HostError):
        return bool(_request(port, {"do": "release"}, RELEASE_SECONDS)["unmounted"])
    return False


def _request(port: Path, request: dict[str, Any], limit_seconds: float) -> dict[str, Any]:
    """Send a request to the guest and return its answer."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(limit_seconds)
            connection.connect(str(port))
            connection.sendall(json.dumps(request).encode() + b"\n")
            line = connection.makefile("rb").readline() or b'{"error": "it closed the connection"}'
            answer: dict[str, Any] = json.loads(line)
    except (OSError, ValueError) as error:
        raise HostDied(
            f"the daemon in the guest does not answer: {error}", "pagecage host rebuild vm"
        ) from None
    if "error" in answer:
        raise HostError(
            f"the restored guest failed to {request['do']}: {answer['error']}",
            "pagecage host rebuild vm",
        )
    return answer
