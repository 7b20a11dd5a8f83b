"""The controller's end of the port at which the guest's caretaker (inside.py) waits."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagecage.errors import HostDied, HostError

SEED_BYTES = 64
WAKE_SECONDS = 30.0
RELEASE_SECONDS = 60.0
SCRIPT = Path(__file__).with_name("guest_daemon.py")
UNIT = "pagecage-caretaker.service"


@dataclass(frozen=True)
class WakeReply:
    """What the guest said: by how much its clock may lag, and which disk the data are on."""

    clock_error_seconds: float
    data_device: str


def start_argv() -> list[str]:
    """The command, run in the guest before its state is saved, that starts the caretaker there."""
    run = ["systemd-run", "--quiet", "--collect", f"--unit={UNIT}", "--property=Restart=always"]
    return [*run, "/usr/bin/python3", "-I", "-S", "-c", SCRIPT.read_text()]


def wake(port: Path, user: str, directories: Sequence[str]) -> WakeReply:
    """Set clock and entropy of a restored guest, mount its data disk, make directories for `user`.

    Raises HostError with the guest's reason when it cannot, or when it does not answer.
    """
    order = {"do": "wake", "seed": os.urandom(SEED_BYTES).hex(), "user": user, "directories": [*directories]}
    told = _ask(port, {**order, "unix_seconds": time.time()}, WAKE_SECONDS)
    return WakeReply(set_clock(port), told["device"])


def set_clock(port: Path) -> float:
    """Set the guest's clock; returns by how many seconds it may lag: no more than the whole way there and back."""
    sent = time.time()
    _ask(port, {"do": "clock", "unix_seconds": sent}, WAKE_SECONDS)
    return time.time() - sent


def release(port: Path) -> bool:
    """Unmount the data disk; False when the guest could not (something is open on it) or no longer answers."""
    with contextlib.suppress(HostError):
        return bool(_ask(port, {"do": "release"}, RELEASE_SECONDS)["unmounted"])
    return False


def _ask(port: Path, order: dict[str, Any], limit_seconds: float) -> dict[str, Any]:
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(limit_seconds)
            line.connect(str(port))
            line.sendall(json.dumps(order).encode() + b"\n")
            told: dict[str, Any] = json.loads(line.makefile("rb").readline() or b'{"error": "it hung up"}')
    except (OSError, ValueError) as error:
        raise HostDied(f"the guest's caretaker does not answer: {error}", "pagecage host rebuild vm") from None
    if "error" in told:
        raise HostError(f"the restored guest did not wake: {told['error']}", "pagecage host rebuild vm")
    return told
