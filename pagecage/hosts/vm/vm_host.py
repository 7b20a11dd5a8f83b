"""The vm as a host of trials: every machine state is a restore of one saved state of a guest made here."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pagecage.checkout import TOP
from pagecage.errors import HostError
from pagecage.hosts.agent_package import AgentPackage
from pagecage.hosts.connection import SharedConnection
from pagecage.hosts.host import MachineState, Progress, ResourceNeeds
from pagecage.hosts.vm.acceleration import find_acceleration, known_acceleration
from pagecage.hosts.vm.cache import GuestCache, in_use
from pagecage.hosts.vm.data_disk import DataDiskError, ensure_data_disk, plug
from pagecage.hosts.vm.guest_client import WakeReply, release, wake
from pagecage.hosts.vm.guest_host import GuestHost
from pagecage.hosts.vm.image import GuestImage, ensure_image
from pagecage.hosts.vm.image_recipe import read_recipe
from pagecage.hosts.vm.machine import CPUS, Acceleration, machine_for
from pagecage.hosts.vm.prerequisites import require_tools
from pagecage.hosts.vm.provision import fit_guest, fit_image, fitting_key, is_fitted
from pagecage.hosts.vm.running_guest import RunningGuest, read_guest, sweep, write_guest
from pagecage.hosts.vm.saved_state import SavedState, ensure_state, restore, root_target
from pagecage.hosts.vm.standby_state import attach_argv, ensure_standby_state


@dataclass(frozen=True)
class GuestOptions:
    """What a guest is made with: a Debian suite (that of containers/versions.env where None) and how many CPUs."""

    suite: str | None = None
    cpus: int = CPUS


class VmHost(GuestHost):
    """A guest of our own for each machine state, restored from a saved state that is made where it is missing."""

    def __init__(
        self,
        user: str = "root",
        cache: GuestCache | None = None,
        *,
        kept: bool = False,
        making: GuestOptions = GuestOptions(),
    ) -> None:
        super().__init__(user, cache)
        self._kept = kept
        self._making = making
        self._progress: Progress = lambda _: None
        self._state: SavedState | None = None
        self._installed: AgentPackage | None = None

    def is_emulated(self, progress: Progress) -> bool:
        """Whether the guest's instructions are translated; a trial boot tells, the first time after the host's boot."""
        known = known_acceleration(self._cache)
        if known is None:
            known = self._image_and_acceleration(progress)[1]
            self._lock.release()
        return known.emulated

    def prepare(self, need: ResourceNeeds, progress: Progress) -> None:
        """Take the lock and make image, saved state and data disk where they are missing.

        Raises PagecageError when somebody else uses the guest, or when a tool or room is missing.
        """
        require_tools("setpriv", "ssh", "qemu-img", "mke2fs")
        image, acceleration = self._image_and_acceleration(progress)
        machine = machine_for(need, acceleration, self._making.cpus)
        ensure_data_disk(self._cache.data_disk, need.data_bytes, progress)
        fitted = is_fitted(TOP, image)
        fit = (lambda *_: None) if fitted else partial(fit_guest, TOP, self._cache.scratch)
        ensure_base = partial(ensure_state, self._cache, image, machine, fitting_key(TOP), fit, progress)
        self._remake = partial(self._ensure_state, ensure_base, need)
        self._state = self._remake()

    def _ensure_state(self, ensure_base: Callable[[], SavedState], need: ResourceNeeds) -> SavedState:
        """The state with an agent in standby; without one for an ordinary user, whose own systemd has to run it."""
        self._base, self._installed = ensure_base(), None
        if need.kit is None or self.user:
            return self._base
        state = ensure_standby_state(self._cache, self._base, need.kit, need.tracers, self._progress)
        self._installed = need.kit
        return state

    def install(self, kit: AgentPackage) -> None:
        """Copy agent and workloads into the guest, unless the saved state has them."""
        if kit != self._installed:
            super().install(kit)

    def agent_command(self) -> list[str]:
        """The ssh argv that hands over to the agent in standby, or starts one."""
        return self.command(attach_argv(self.spool_dir)) if self._installed else super().agent_command()

    def _image_and_acceleration(self, progress: Progress) -> tuple[GuestImage, Acceleration]:
        self._progress = progress
        self._cache.make()
        self._take()
        fit = partial(fit_image, TOP, self._cache.scratch, progress)
        image = ensure_image(self._cache, read_recipe(TOP, self._making.suite), progress, fit)
        return image, find_acceleration(self._cache, image, progress)

    def _take(self) -> None:
        self._lock.acquire()
        running = read_guest(self._cache)
        if running is not None and running.kept:
            self._lock.release()
            raise in_use(running.pid, running.since_unix_seconds, kept=True)
        for left in sweep(self._cache):
            self._progress(f"swept what an earlier run left: {left}")

    def start(self) -> MachineState:
        """Restore the saved state, wake the guest and mount its data disk. Raises HostError when that fails twice.

        A state that does not come up is thrown away and made again, once.
        """
        try:
            return self._start()
        except DataDiskError:
            raise
        except HostError as error:
            self._end()
            self._progress(f"the saved state did not come up ({error.message}); making it again")
            shutil.rmtree(self._base.directory, ignore_errors=True)
            self._state = self._remake()
            return self._start()

    def _start(self) -> MachineState:
        began, state = time.monotonic(), self._saved()
        restore_seq = state.count_restore()
        self._qemu = qemu = restore(self._cache, state, dies_with_us=not self._kept)
        target = root_target(state.image, qemu.monitor.forwarded_port())
        self._write_record(state, restore_seq, target.port)
        aio = plug(qemu.monitor, self._cache.data_disk)
        self._connection = SharedConnection(replace(target, user=self._user), qemu.sockets, qemu.check)
        woken = wake(qemu.caretaker, self._user, (self.data_dir, self.spool_dir))
        self._connection.wait()
        details = _details(state, woken, aio, time.monotonic() - began)
        return MachineState(state.state_id, restore_seq, state.machine.acceleration.emulated, details)

    def _write_record(self, state: SavedState, restore_seq: int, port: int) -> None:
        process = self._running().process_id
        image = str(state.image.directory)
        write_guest(
            self._cache,
            RunningGuest(
                process.pid, process.start_ticks, port, image, state.state_id, restore_seq, self._kept, time.time()
            ),
        )

    def restart(self) -> MachineState:
        """End this guest and restore the saved state anew; the data disk is unmounted first."""
        self._end()
        return self.start()

    def leave_running(self) -> None:
        """Let go of a `kept` guest: it stays, and whoever comes next finds it by its record."""
        if self._connection is not None:
            self._connection.close()
        self._running().monitor.close()
        self._lock.release()

    def stop(self) -> None:
        """Unmount the data disk, end the guest, let go of the lock. Safe at any time."""
        self._end()
        self._prepared = None
        self._lock.release()

    def _end(self) -> None:
        if self._qemu is not None and self._qemu.alive():
            release(self._qemu.caretaker)
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._qemu is not None:
            self._qemu.quit()
            self._qemu = None
            self._cache.guest_file.unlink(missing_ok=True)

    def _saved(self) -> SavedState:
        if self._state is None:
            raise HostError("the vm was not prepared", "call prepare() before start()")
        return self._state


def _details(state: SavedState, woken: WakeReply, aio: str, start_seconds: float) -> dict[str, Any]:
    machine = state.machine
    return {
        "image": state.image.key, "machine_type": machine.machine_type, "memory_bytes": machine.memory_bytes,
        "cpus": machine.cpus, "accel": machine.acceleration.accel, "cpu": machine.acceleration.cpu,
        "qemu_version": machine.acceleration.qemu_version, "data_disk": woken.data_device, "data_aio": aio,
        "data_cache": "none", "clock_error_seconds": round(woken.clock_error_seconds, 3),
        "start_seconds": round(start_seconds, 3),
    }  # fmt: skip
