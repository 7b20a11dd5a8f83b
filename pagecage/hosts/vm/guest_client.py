"""The client of a guest's daemon, and the guest that runs between commands."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pagecage.agent.volume_server import ask_socket
from pagecage.errors import HostDied, HostError
from pagecage.hosts.vm.cache import GuestCache
from pagecage.model.json_codec import Json
from pagecage.process import ProcessId, end, is_alive
from pagecage.whole_files import write_whole

SEED_BYTES = 64
WAKE_SECONDS = 30.0
RELEASE_SECONDS = 60.0
SCRIPT = Path(__file__).with_name("guest_daemon.py")
UNIT = "pagecage-guest-daemon.service"


def start_argv() -> list[str]:
    """Return the command that starts the daemon in the guest, before its state is saved."""
    run = ["systemd-run", "--quiet", "--collect", f"--unit={UNIT}", "--property=Restart=always"]
    return [*run, "/usr/bin/python3", "-I", "-S", "-c", SCRIPT.read_text()]


def wake(
    port: Path, user: str, mounts: Mapping[str, str], directories: Sequence[str]
) -> tuple[float, Mapping[str, str]]:
    """Set clock and entropy of a restored guest, mount its disks, and make directories.

    `mounts` has mount points by serial number. Returns the most by which the clock lags, in
    seconds, and the disks' devices by serial number. Raises HostError with the guest's reason.
    """
    request = {
        "do": "wake",
        "seed": os.urandom(SEED_BYTES).hex(),
        "user": user,
        "mounts": dict(mounts),
        "directories": [*directories],
    }
    answer = _request(port, {**request, "unix_seconds": time.time()}, WAKE_SECONDS)
    return set_clock(port), answer["devices"]


def set_clock(port: Path) -> float:
    """Set the guest's clock; return the most by which it lags, the round-trip time, in seconds."""
    sent = time.time()
    _request(port, {"do": "clock", "unix_seconds": sent}, WAKE_SECONDS)
    return time.time() - sent


def release(port: Path) -> bool:
    """Unmount the data disks; return False if one is in use or the guest does not answer."""
    with contextlib.suppress(HostError):
        return bool(_request(port, {"do": "release"}, RELEASE_SECONDS)["unmounted"])
    return False


def _request(port: Path, request: Json, limit_seconds: float) -> Json:
    try:
        answer = ask_socket(port, request, limit_seconds)
    except (OSError, ValueError) as error:
        reason = f"the daemon in the guest does not answer: {error}"
        raise HostDied(reason, "pagecage host rebuild vm") from None
    if answer is None:
        answer = {"error": "it closed the connection"}
    if "error" in answer:
        message = f"the restored guest failed to {request['do']}: {answer['error']}"
        raise HostError(message, "pagecage host rebuild vm")
    return answer


@dataclass(frozen=True)
class RunningGuest:
    """A running guest; `kept` if it outlives its starter (`pagecage host up`)."""

    pid: int
    start_ticks: int
    port: int
    image: str
    state_id: str
    restore_seq: int
    kept: bool
    since_unix_seconds: float

    @property
    def process_id(self) -> ProcessId:
        return ProcessId(self.pid, self.start_ticks)


def write_guest(cache: GuestCache, guest: RunningGuest) -> None:
    write_whole(cache.guest_file, json.dumps(asdict(guest)))


def read_guest(cache: GuestCache) -> RunningGuest | None:
    """Return the running guest; None if it has ended or its description is unreadable."""
    try:
        guest = RunningGuest(**json.loads(cache.guest_file.read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return guest if is_alive(guest.process_id) else None


def remove_leftovers(cache: GuestCache) -> list[str]:
    """Remove what a killed process left, under the lock; return the names."""
    removed = []
    guest = read_guest(cache)
    if guest is not None and not guest.kept:
        end(guest.process_id)
        removed.append(f"QEMU {guest.pid}")
    if guest is None or not guest.kept:
        cache.guest_file.unlink(missing_ok=True)
        # Overlays of `-snapshot` guests (get_tmp_filename in QEMU: vl.XXXXXX in $TMPDIR).
        for path in sorted(cache.scratch.glob("vl.*")):
            removed.append(path.name)
            path.unlink(missing_ok=True)
    return removed
