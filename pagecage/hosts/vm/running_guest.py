"""The file that says which guest runs: for status, shell and down, and for sweeping up after a killed owner."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from pagecage.hosts.vm.cache import GuestCache
from pagecage.process import ProcessId, end, is_alive


@dataclass(frozen=True)
class RunningGuest:
    """A running guest. `kept` tells that it stays when the process that started it ends (`pagecage host up vm`)."""

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


def write_guest(cache: GuestCache, record: RunningGuest) -> None:
    """Write the record whole or not at all."""
    part = cache.guest_file.with_suffix(".part")
    part.write_text(json.dumps(asdict(record)))
    part.rename(cache.guest_file)


def read_guest(cache: GuestCache) -> RunningGuest | None:
    """The guest that runs now; None when the file is missing, unreadable, or its process is gone."""
    try:
        record = RunningGuest(**json.loads(cache.guest_file.read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return record if is_alive(record.process_id) else None


def sweep(cache: GuestCache) -> list[str]:
    """Remove what a killed owner left: its QEMU (checked by start time), overlays, the record. For the lock's holder.

    Returns what was swept, for saying so.
    """
    swept = []
    record = read_guest(cache)
    if record is not None and not record.kept:
        end(record.process_id)
        swept.append(f"QEMU {record.pid}")
    if record is None or not record.kept:
        cache.guest_file.unlink(missing_ok=True)
        swept += [path.name for path in _overlays(cache)]
        for path in _overlays(cache):
            path.unlink(missing_ok=True)
    return swept


def _overlays(cache: GuestCache) -> list[Path]:
    """The files in which QEMU keeps what a `-snapshot` guest wrote (get_tmp_filename: vl.XXXXXX in $TMPDIR)."""
    return sorted(cache.scratch.glob("vl.*")) if cache.scratch.exists() else []
