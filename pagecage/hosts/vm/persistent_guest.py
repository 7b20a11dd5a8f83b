"""The guest that `pagecage host up` or provisioning left running, as a host of trials.

It is used in its present state and left running.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pagecage.checkout import TOP
from pagecage.errors import HostDied, HostError
from pagecage.hosts.connection import SharedConnection
from pagecage.hosts.host import MachineState, Progress, ResourceNeeds
from pagecage.hosts.vm.acceleration import find_acceleration
from pagecage.hosts.vm.cache import GuestCache
from pagecage.hosts.vm.guest_host import GuestHost
from pagecage.hosts.vm.image.contents import read_contents
from pagecage.hosts.vm.image.guest_image import GuestImage
from pagecage.hosts.vm.image.recipe import read_recipe
from pagecage.hosts.vm.machine import Acceleration
from pagecage.hosts.vm.qemu import Qemu, sockets_dir
from pagecage.hosts.vm.running_guest import RunningGuest, read_guest
from pagecage.hosts.vm.saved_state import root_target
from pagecage.units import format_bytes

_STOP_HINT = "pagecage host down vm, then run it again: a guest that fits is started"


def find_persistent_guest(cache: GuestCache | None = None) -> RunningGuest | None:
    """Return the guest that runs until `pagecage host down vm`, or None."""
    guest = read_guest(cache or GuestCache.of_user())
    return guest if guest is not None and guest.kept else None


class PersistentGuest(GuestHost):
    """A guest that an earlier command started. Its machine state is not a saved state."""

    def __init__(
        self, guest: RunningGuest, user: str = "root", cache: GuestCache | None = None
    ) -> None:
        super().__init__(user, cache)
        self._guest = guest
        self._acceleration: Acceleration | None = None

    def is_emulated(self, progress: Progress) -> bool:
        """Return whether the guest's instructions are translated."""
        if self._acceleration is None:
            self._acceleration = find_acceleration(
                self._cache, GuestImage(Path(self._guest.image)), progress
            )
        return self._acceleration.emulated

    def prepare(self, need: ResourceNeeds, progress: Progress) -> None:
        """Take the lock, connect to QEMU, and check that the guest is large enough.

        Raises PagecageError if another process uses the guest, or if its memory or its data disk is
        too small.
        """
        self._lock.acquire()
        if read_guest(self._cache) != self._guest:
            raise HostDied("the running guest has ended", "run it again")
        self.is_emulated(progress)
        self._qemu = Qemu(
            self._guest.process_id, sockets_dir(self._cache), self._cache.scratch / "qemu.log"
        )
        self._qemu.connect()
        if need.has_volume:
            raise HostError("the running guest's data disk is not a simulated volume", _STOP_HINT)
        if need.disks:
            raise HostError(f"the running guest has no disk {need.disks[0]!r}", _STOP_HINT)
        self._require_packages([package.debian for package in need.distribution_packages])
        self._require("memory", self._memory_bytes(), need.memory_bytes)
        self._require("data disk", self._cache.data_disk.stat().st_size, need.data_bytes)

    def _require_packages(self, names: Sequence[str]) -> None:
        """Raise HostError naming the packages of an experiment that the guest's image lacks."""
        extra = read_recipe(TOP, packages=names).extra_packages
        lacking = read_contents(GuestImage(Path(self._guest.image))).lacks(extra)
        if lacking:
            raise HostError(f"the running guest lacks {', '.join(lacking)}", _STOP_HINT)

    def _memory_bytes(self) -> int:
        return int(self._running().monitor.execute("query-memory-size-summary")["base-memory"])

    @staticmethod
    def _require(what: str, has_bytes: int, needs_bytes: int) -> None:
        if has_bytes < needs_bytes:
            has, needs = format_bytes(has_bytes), format_bytes(needs_bytes)
            raise HostError(
                f"the running guest has a {what} of {has}, but the plan needs {needs}", _STOP_HINT
            )

    def start(self) -> MachineState:
        """Connect by ssh to the running guest. Raises HostDied if it has ended."""
        if self._connection is None:
            self.check()
            target = root_target(GuestImage(Path(self._guest.image)), self._guest.port)
            self._connection = SharedConnection(
                replace(target, user=self._user), sockets_dir(self._cache), self.check
            )
            self._connection.wait()
        return MachineState(None, None, self.is_emulated(lambda _: None), self._details())

    def restart(self) -> MachineState:
        """Return the machine state of the same guest; there is no saved state to restore.

        Raises HostDied if it has ended.
        """
        self.check()
        return self.start()

    def stop(self) -> None:
        """Disconnect and release the lock; the guest stays running. Safe at any time."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._qemu is not None:
            self._qemu.monitor.close()
            self._qemu = None
        self._lock.release()

    def _details(self) -> dict[str, Any]:
        assert self._acceleration is not None, "prepare() sets it"
        return {
            "image": Path(self._guest.image).name,
            "accel": self._acceleration.accel,
            "cpu": self._acceleration.cpu,
            "qemu_version": self._acceleration.qemu_version,
            "memory_bytes": self._memory_bytes(),
            "kept_since_unix_seconds": self._guest.since_unix_seconds,
            "started_from": self._guest.state_id,
            "up_seconds": round(time.time() - self._guest.since_unix_seconds, 3),
            "data_cache": "none",
        }
