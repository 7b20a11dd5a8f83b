"""The description of the running guest in a file, which later commands read."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from pagecage.hosts.vm.cache import GuestCache
from pagecage.process import ProcessId, end, is_alive
from pagecage.whole_files import write_whole


@dataclass(frozen=True)
class RunningGuest:
    """A running guest.

    `kept` tells that it outlives the process that started it (`pagecage host up`).
    """

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
        """QEMU's pid and start time."""
        return ProcessId(self.pid, self.start_ticks)


def write_guest(cache: GuestCache, guest: RunningGuest) -> None:
    """Write the description atomically."""
    write_whole(cache.guest_file, json.dumps(asdict(guest)))


def read_guest(cache: GuestCache) -> RunningGuest | None:
    """Return the running guest.

    None if its description is missing or unreadable, or if its process has ended.
    """
    try:
        guest = RunningGuest(**json.loads(cache.guest_file.read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return guest if is_alive(guest.process_id) else None


def remove_leftovers(cache: GuestCache) -> list[str]:
    """Remove QEMU, overlays and description that a killed process left; return their names.

    The caller must hold the lock.
    """
    removed = []
    guest = read_guest(cache)
    if guest is not None and not guest.kept:
        end(guest.process_id)
        removed.append(f"QEMU {guest.pid}")
    if guest is None or not guest.kept:
        cache.guest_file.unlink(missing_ok=True)
        removed += [path.name for path in _overlays(cache)]
        for path in _overlays(cache):
            path.unlink(missing_ok=True)
    return removed


def _overlays(cache: GuestCache) -> list[Path]:
    """Return the overlays of `-snapshot` guests (get_tmp_filename: vl.XXXXXX in $TMPDIR)."""
    return sorted(cache.scratch.glob("vl.*")) if cache.scratch.exists() else []
