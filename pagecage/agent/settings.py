"""Settings of a machine that are put back, and memory that is reserved for one trial."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from pagecage.errors import HostError
from pagecage.linux.block_device import Disk, read_queue_settings, write_queue_setting
from pagecage.linux.procfs import meminfo_bytes, read_text
from pagecage.model.json_codec import Json, JsonView
from pagecage.units import MIB, format_bytes
from pagecage.whole_files import write_whole


class RestoreJournal:
    """Previous values of settings, kept in a file of the spool until they are restored."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def remember(self, read: Callable[[], Mapping[str, int]]) -> None:
        """Save the present values, unless earlier ones are saved: those are the ones to restore."""
        if not self._path.exists():
            write_whole(self._path, json.dumps(read()))

    def put_back(self, what: str, write: Callable[[JsonView], None]) -> list[str]:
        """Pass the saved values to `write`; on failure return a sentence and keep the journal."""
        text = read_text(self._path)
        if text is None:
            return []
        try:
            write(json.loads(text))
        except (HostError, ValueError, LookupError, TypeError) as error:
            return [f"{what} could not be put back: {error}"]
        self._path.unlink(missing_ok=True)
        return []


def _write_number(path: Path, value: int, name: str = "") -> None:
    try:
        path.write_text(str(value))
    except OSError as error:
        reason = f"{name or path} cannot be set to {value}: {error.strerror}"
        raise HostError(reason, "use HOST=vm") from None


_PAIRS = (("dirty_bytes", "dirty_ratio"), ("dirty_background_bytes", "dirty_background_ratio"))
_TOLD = (*_PAIRS[0], *_PAIRS[1], "dirty_expire_centisecs", "dirty_writeback_centisecs")


class DirtyLimits:
    """vm.dirty_bytes and related limits on a machine's dirty memory, set for one trial."""

    def __init__(self, spool: Path, proc: Path = Path("/proc")) -> None:
        self._journal = RestoreJournal(spool / "dirty-limits.json")
        self._vm = proc / "sys/vm"

    def read(self) -> dict[str, int]:
        """Return the limits in force by file name, without those that the kernel lacks."""
        texts = {name: read_text(self._vm / name) for name in _TOLD}
        return {name: int(text) for name, text in texts.items() if text}

    def set(self, wanted: Mapping[str, int]) -> Json:
        """Set limits in bytes by file name; return them as read back. Raises HostError."""
        self._journal.remember(self.read)
        for name, value in wanted.items():
            self._write(name, value)
        got = self.read()
        wrong = [name for name, value in wanted.items() if got.get(name) != value]
        if wrong:
            found = (f"vm.{name} is {got.get(name)}, not {wanted[name]}" for name in wrong)
            raise HostError("; ".join(found), "use HOST=vm")
        return got

    def restore(self) -> list[str]:
        def write(saved: Mapping[str, int]) -> None:
            for in_bytes, in_percent in _PAIRS:
                name = in_bytes if saved[in_bytes] else in_percent
                self._write(name, saved[name])

        return self._journal.put_back("vm.dirty_bytes and its like", write)

    def _write(self, name: str, value: int) -> None:
        _write_number(self._vm / name, value, f"vm.{name}")


def chosen(text: str | None) -> str | None:
    """Return the chosen value of a list ("none" of "[none] mq-deadline"), else the text."""
    return text[text.index("[") + 1 : text.index("]")] if text and "[" in text else text


class QueueSettingsJournal:
    """Saved queue settings by disk, kept in a file of the spool until they are restored."""

    def __init__(self, spool: Path) -> None:
        self._path = spool / "queue-settings.json"

    def set(self, disk: Disk, setting: str, value: str) -> None:
        """Save the present value unless one is saved; set the new one. Raises HostError."""
        present = chosen(read_queue_settings(disk).get(setting))
        if present == value:
            return
        before = self._saved()
        if present is not None:
            saved = {name: dict(settings) for name, settings in before.items()}
            saved.setdefault(disk.name, {}).setdefault(setting, present)
            write_whole(self._path, json.dumps(saved))
        try:
            write_queue_setting(disk, setting, value)
        except HostError:
            # Refused: there is nothing to restore.
            if chosen(read_queue_settings(disk).get(setting)) == present:
                write_whole(self._path, json.dumps(before))
            raise

    def restore(self) -> list[str]:
        """Restore the saved settings; return one sentence per failure.

        What failed is kept for the next start, except for a disk that is gone.
        """
        failures, kept = [], dict[str, dict[str, str]]()
        for name, settings in self._saved().items():
            disk = Disk(name, "", f"/dev/{name}", "", "")
            for setting, value in settings.items():
                try:
                    write_queue_setting(disk, setting, value)
                except HostError as error:
                    failures.append(
                        f"{name}'s {setting} could not be put back to {value}: {error.message}"
                    )
                    if setting in read_queue_settings(disk):
                        kept.setdefault(name, {})[setting] = value
        if not kept:
            self._path.unlink(missing_ok=True)
        elif kept != self._saved():
            write_whole(self._path, json.dumps(kept))
        return failures

    def _saved(self) -> dict[str, dict[str, str]]:
        try:
            saved: dict[str, dict[str, str]] = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return {}
        return saved


OF_OURS = Path("/dev/virtio-ports/pagecage")
"""The guest daemon's port, only in a guest that pagecage made."""
_RESERVATION_TRIES = 8
_TOLERANCE_BYTES = 8 * MIB


class MemoryReservation:
    """The reserved memory, journalled in the spool until it is released."""

    def __init__(self, spool: Path, proc: Path = Path("/proc")) -> None:
        self._journal = RestoreJournal(spool / "machine-memory.json")
        self._proc = proc
        self._pool = proc / "sys/vm/nr_hugepages"

    def leave(self, wanted_bytes: int) -> Json:
        drop_caches, huge_bytes = self._proc / "sys/vm/drop_caches", self._meminfo("Hugepagesize")
        self._journal.remember(lambda: {"nr_hugepages": self._pool_pages()})
        for _ in range(_RESERVATION_TRIES):
            self._write(drop_caches, 3)
            surplus = (self._meminfo("MemAvailable") - wanted_bytes) // huge_bytes
            if surplus == 0:
                break
            self._write(self._pool, max(0, self._pool_pages() + surplus))
        available = self._meminfo("MemAvailable")
        if abs(available - wanted_bytes) > _TOLERANCE_BYTES + huge_bytes:
            left, wanted = format_bytes(available), format_bytes(wanted_bytes)
            raise HostError(f"{left} of memory are available, not {wanted}", "choose a larger SIZE")
        return {
            "requested_bytes": wanted_bytes,
            "available_bytes": available,
            "hugepages": self._pool_pages(),
            "hugepage_bytes": huge_bytes,
        }

    def restore(self) -> list[str]:
        return self._journal.put_back(
            "vm.nr_hugepages", lambda saved: self._write(self._pool, int(saved["nr_hugepages"]))
        )

    def _pool_pages(self) -> int:
        return int(read_text(self._pool) or 0)

    def _write(self, path: Path, value: int) -> None:
        _write_number(path, value)

    def _meminfo(self, key: str) -> int:
        size_bytes = meminfo_bytes(key, self._proc)
        if size_bytes is None:
            reason = f"/proc/meminfo has no {key}, so that no memory can be taken away"
            raise HostError(reason, "use HOST=vm")
        return size_bytes
