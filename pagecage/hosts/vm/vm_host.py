"""The guest of a run, and one that runs between commands."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pagecage.checkout import TOP
from pagecage.errors import HostDied, HostError
from pagecage.hosts.agent_package import AgentPackage
from pagecage.hosts.controller import require_tools
from pagecage.hosts.host import MachineState, Progress, ResourceNeeds
from pagecage.hosts.ssh import SharedConnection
from pagecage.hosts.vm.cache import GuestCache, in_use
from pagecage.hosts.vm.disks import (
    NBD,
    OUTER_CACHE,
    DataDiskError,
    end_servers,
    ensure_disks,
    mount_point,
    plug_disks,
    serial,
    serve_disks,
)
from pagecage.hosts.vm.guest_client import (
    RunningGuest,
    WakeReply,
    read_guest,
    release,
    remove_leftovers,
    wake,
    write_guest,
)
from pagecage.hosts.vm.guest_host import GuestHost
from pagecage.hosts.vm.image import GuestImage, read_contents, read_recipe
from pagecage.hosts.vm.image_build import (
    ensure_image,
    is_provisioned,
    provision_guest,
    provision_image,
    provisioning_key,
)
from pagecage.hosts.vm.qemu import (
    CPUS,
    Acceleration,
    Qemu,
    find_acceleration,
    known_acceleration,
    machine_for,
    sockets_dir,
)
from pagecage.hosts.vm.saved_state import (
    SavedState,
    attach_argv,
    ensure_standby_state,
    ensure_state,
    restore,
    root_target,
)
from pagecage.model.cage import DATA_DISK
from pagecage.model.record_sections import Row
from pagecage.units import format_bytes


@dataclass(frozen=True)
class GuestOptions:
    """Options of a guest; without a `suite` it is that of containers/versions.env."""

    suite: str | None = None
    cpus: int = CPUS


class VmHost(GuestHost):
    """A host that restores a guest from a saved state, which is made if it is missing."""

    def __init__(
        self,
        user: str = "root",
        cache: GuestCache | None = None,
        *,
        is_persistent: bool = False,
        options: GuestOptions = GuestOptions(),
    ) -> None:
        super().__init__(user, cache)
        self._is_persistent = is_persistent
        self._options = options
        self._progress: Progress = lambda _: None
        self._state: SavedState | None = None
        self._installed: AgentPackage | None = None
        self._plugin: Path | None = None

    def is_emulated(self, progress: Progress) -> bool:
        """Return whether instructions are translated. The first call after a boot tests KVM."""
        known = known_acceleration(self._cache)
        if known is None:
            known = self._image_and_acceleration(progress)[1]
            self._lock.release()
        return known.emulated

    def prepare(self, need: ResourceNeeds, progress: Progress) -> None:
        """Take the lock, and make image, saved state and data disk. Raises PagecageError."""
        require_tools("setpriv", "ssh", "qemu-img", "mke2fs", *(["nbdkit"] * need.has_volume))
        self._plugin = need.package.volume_plugin if need.package and need.has_volume else None
        packages = [package.debian for package in need.distribution_packages]
        image, acceleration = self._image_and_acceleration(progress, packages)
        machine = machine_for(need, acceleration, self._options.cpus)
        cache = self._cache
        self._disk_names = ensure_disks(cache, need, progress)
        is_done, key = is_provisioned(TOP, image), provisioning_key(TOP)
        provision = (lambda *_: None) if is_done else partial(provision_guest, TOP, cache.scratch)

        def make_state() -> SavedState:
            """With an agent in standby, unless the user's own systemd has to run it."""
            self._base = ensure_state(cache, image, machine, key, provision, progress)
            self._installed = None
            if need.package is None or self.user:
                return self._base
            state = ensure_standby_state(cache, self._base, need.package, need.tracers, progress)
            self._installed = need.package
            return state

        self._make_state = make_state
        self._state = make_state()

    def install(self, package: AgentPackage) -> None:
        """Copy the agent and the workloads to the guest, unless the saved state has them."""
        if package != self._installed:
            super().install(package)

    def agent_command(self) -> list[str]:
        """Return the ssh command that attaches to the agent in standby, or starts one."""
        if not self._installed:
            return super().agent_command()
        return self.command(attach_argv(self.spool_dir))

    def _image_and_acceleration(
        self, progress: Progress, packages: Sequence[str] = ()
    ) -> tuple[GuestImage, Acceleration]:
        self._progress = progress
        self._cache.make()

        self._lock.acquire()
        running = read_guest(self._cache)
        if running is not None and running.kept:
            self._lock.release()
            raise in_use(running.pid, running.since_unix_seconds, is_persistent=True)
        for name in remove_leftovers(self._cache):
            self._progress(f"removed {name} of an earlier run")
        provision = partial(provision_image, TOP, self._cache.scratch, progress)
        recipe = read_recipe(TOP, self._options.suite, packages)
        image = ensure_image(self._cache, recipe, progress, provision)
        return image, find_acceleration(self._cache, image, progress)

    def start(self) -> MachineState:
        """Restore the state, wake the guest, mount its disks. A bad state is made again once."""
        try:
            return self._start()
        except DataDiskError:
            raise
        except HostError as error:
            self._end()
            self._progress(f"the saved state did not start ({error.message}); making it again")
            shutil.rmtree(self._base.directory, ignore_errors=True)
            self._state = self._make_state()
            return self._start()

    def _start(self) -> MachineState:
        if self._state is None:
            raise HostError("the vm was not prepared", "call prepare() before start()")
        began, state = time.monotonic(), self._state
        restore_seq = state.count_restore()
        self._qemu = qemu = restore(self._cache, state, dies_with_parent=not self._is_persistent)
        target = root_target(state.image, qemu.monitor.forwarded_port())
        process = self._running().process_id
        guest = RunningGuest(
            pid=process.pid,
            start_ticks=process.start_ticks,
            port=target.port,
            image=str(state.image.directory),
            state_id=state.state_id,
            restore_seq=restore_seq,
            kept=self._is_persistent,
            since_unix_seconds=time.time(),
        )
        write_guest(self._cache, guest)
        self._volumes = serve_disks(self._cache, self._disk_names, self._plugin, qemu.sockets)
        aio = plug_disks(qemu.monitor, self._cache, self._disk_names, self._volumes)
        account = replace(target, user=self._user)
        self._connection = SharedConnection(account, qemu.sockets, qemu.check)
        mounts = {serial(name): mount_point(name) for name in self._disk_names}
        folders = (self.data_dir, self.spool_dir, *self.disks.values())
        reply = wake(qemu.guest_daemon, self._user, mounts, folders)
        self._connection.wait()
        details = _details(state, reply, aio, time.monotonic() - began)
        is_emulated = state.machine.acceleration.emulated
        return MachineState(state.state_id, restore_seq, is_emulated, details)

    def restart(self) -> MachineState:
        """End this guest and restore the saved state again; the data disk is unmounted first."""
        self._end()
        return self.start()

    def leave_running(self) -> None:
        """Disconnect from a persistent guest, which stays and can be found by its description."""
        if self._connection is not None:
            self._connection.close()
        self._running().monitor.close()
        self._lock.release()

    def stop(self) -> None:
        """Unmount the data disk, end the guest, release the lock. Safe at any time."""
        self._end()
        self._lock.release()

    def _end(self) -> None:
        if self._qemu is not None and self._qemu.alive():
            release(self._qemu.guest_daemon)
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._qemu is not None:
            self._qemu.quit()
            self._qemu = None
            self._cache.guest_file.unlink(missing_ok=True)
        end_servers(self._volumes)  # after QEMU has written out the disks
        self._volumes = {}


def _details(state: SavedState, reply: WakeReply, aio: str, start_seconds: float) -> Row:
    machine = state.machine
    return {
        "image": state.image.key,
        "machine_type": machine.machine_type,
        "memory_bytes": machine.memory_bytes,
        "cpus": machine.cpus,
        "accel": machine.acceleration.accel,
        "cpu": machine.acceleration.cpu,
        "qemu_version": machine.acceleration.qemu_version,
        "data_disk": reply.devices[serial(DATA_DISK)],
        "data_aio": aio,
        "data_cache": OUTER_CACHE if aio == NBD else "none",
        "clock_error_seconds": round(reply.clock_error_seconds, 3),
        "start_seconds": round(start_seconds, 3),
    }


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
            image = GuestImage(Path(self._guest.image))
            self._acceleration = find_acceleration(self._cache, image, progress)
        return self._acceleration.emulated

    def prepare(self, need: ResourceNeeds, progress: Progress) -> None:
        """Take the lock, connect to QEMU, and check the guest's size. Raises PagecageError."""
        self._lock.acquire()
        if read_guest(self._cache) != self._guest:
            raise HostDied("the running guest has ended", "run it again")
        self.is_emulated(progress)
        log = self._cache.scratch / "qemu.log"
        self._qemu = Qemu(self._guest.process_id, sockets_dir(self._cache), log)
        self._qemu.connect()
        if need.has_volume:
            raise HostError("the running guest's data disk is not a simulated volume", _STOP_HINT)
        if need.disks:
            raise HostError(f"the running guest has no disk {need.disks[0]!r}", _STOP_HINT)
        packages = [package.debian for package in need.distribution_packages]
        extra = read_recipe(TOP, packages=packages).extra_packages
        if lacking := read_contents(GuestImage(Path(self._guest.image))).lacks(extra):
            raise HostError(f"the running guest lacks {', '.join(lacking)}", _STOP_HINT)
        disk_bytes = self._cache.data_disk.stat().st_size
        for what, has_bytes, needs_bytes in (
            ("memory", self._memory_bytes(), need.memory_bytes),
            ("data disk", disk_bytes, need.data_bytes),
        ):
            if has_bytes < needs_bytes:
                reason = f"the running guest has a {what} of {format_bytes(has_bytes)}, but the"
                raise HostError(f"{reason} plan needs {format_bytes(needs_bytes)}", _STOP_HINT)

    def _memory_bytes(self) -> int:
        return int(self._running().monitor.execute("query-memory-size-summary")["base-memory"])

    def start(self) -> MachineState:
        """Connect by ssh to the running guest. Raises HostDied if it has ended."""
        if self._connection is None:
            self.check()
            target = root_target(GuestImage(Path(self._guest.image)), self._guest.port)
            account = replace(target, user=self._user)
            self._connection = SharedConnection(account, sockets_dir(self._cache), self.check)
            self._connection.wait()
        return MachineState(None, None, self.is_emulated(lambda _: None), self._details())

    def restart(self) -> MachineState:
        """Return the machine state of the same guest. Raises HostDied if it has ended."""
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

    def _details(self) -> Row:
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
