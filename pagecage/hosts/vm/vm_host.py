"""The guest as a host: of a run, and one that runs between commands."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pagecage.agent.volume_server import VolumeServer
from pagecage.checkout import TOP
from pagecage.errors import HostDied, HostError
from pagecage.hosts.agent_package import AgentPackage, agent_argv, push_agent_package
from pagecage.hosts.controller import require_tools
from pagecage.hosts.host import MachineState, Progress, ResourceNeeds
from pagecage.hosts.ssh import SharedConnection, SshTarget, push, ssh_argv
from pagecage.hosts.vm import disks, guest_client, image_build, qemu, saved_state
from pagecage.hosts.vm.cache import CacheLock, GuestCache, in_use
from pagecage.hosts.vm.disks import serial
from pagecage.hosts.vm.guest_client import RunningGuest, read_guest
from pagecage.hosts.vm.image import GuestImage, read_contents, read_recipe
from pagecage.hosts.vm.image_build import ensure_image
from pagecage.hosts.vm.saved_state import SavedState, root_target
from pagecage.linux import procfs
from pagecage.model.cage import DATA_DISK
from pagecage.model.record_sections import Row
from pagecage.process import stat_fields
from pagecage.units import format_bytes, kernel_page_bytes

_TICKS = os.sysconf("SC_CLK_TCK")
_DISK = (*procfs.DISKSTATS_FIELDS[:9], "io_ms", "weighted_io_ms")


def outer_sample(qemu_pid: int, cache_dir: Path, root: Path = Path("/")) -> Row:
    """Read all counters once; the difference of two samples is the use between them.

    All are totals since boot: CPU seconds by kind (proc_stat(5)), pressure in microseconds by
    resource and kind (psi.rst), and the counters of the disk that has `cache_dir` (iostats.rst).
    None stands for what the kernel does not have, and for the CPU time of a QEMU that has ended.
    """
    proc = root / "proc"
    pressure: dict[str, dict[str, int]] = {}
    ticks = procfs.parse_cpu((proc / "stat").read_text()) or {}
    for name in ("cpu", "io", "memory"):
        # A kernel with PSI switched off answers with EOPNOTSUPP.
        stalls = procfs.parse_pressure(procfs.read_text(proc / "pressure" / name) or "")
        pressure[name] = {f"{kind}_us": int(stall["total"]) for kind, stall in stalls.items()}
    pages, used = procfs.read_vmstat(proc) or {}, stat_fields(qemu_pid, proc)
    swapped = {f"{way}_bytes": pages.get(f"pswp{way}", 0) for way in ("in", "out")}
    return {
        "unix_seconds": time.time(),
        "cpu_seconds": {k: n / _TICKS for k, n in ticks.items() if k != "ticks_per_second"},
        "pressure": pressure if any(pressure.values()) else None,
        "swap": {name: n * kernel_page_bytes() for name, n in swapped.items()}
        if "pswpin" in pages
        else None,
        "qemu_cpu_seconds": used and (int(used[11]) + int(used[12])) / _TICKS,
        "disk": _disk_counters(cache_dir.stat().st_dev, root),
    }


def _disk_counters(device: int, root: Path) -> Row | None:
    entry = root / f"sys/dev/block/{os.major(device)}:{os.minor(device)}"
    if not entry.exists():
        return None
    directory = entry.resolve()
    disk = directory.parent if (directory / "partition").exists() else directory
    values = map(int, (disk / "stat").read_text().split())
    return {"name": disk.name, **dict(zip(_DISK, values, strict=False))}


class GuestHost:
    """Base class of guests as hosts; `user` is the measuring account (root or `bench`)."""

    name = "vm"
    own_disk = None

    def __init__(self, user: str, cache: GuestCache | None) -> None:
        self.data_dir, self.spool_dir = disks.DIRECTORIES[user]
        self.user = user != "root"
        self._user = user
        self._cache = cache or GuestCache.of_user()
        self._lock = CacheLock(self._cache.lock_file)
        self._qemu: qemu.Qemu | None = None
        self._connection: SharedConnection | None = None
        self._volumes: dict[str, VolumeServer] = {}
        self._disk_names: tuple[str, ...] = (DATA_DISK,)

    @property
    def disks(self) -> Mapping[str, str]:
        return disks.disk_directories(self._disk_names, self._user)

    def install(self, package: AgentPackage) -> None:
        """Copy the agent and the workloads to the guest. Raises HostDied if it has ended."""
        push_agent_package(self, package)

    def agent_command(self) -> list[str]:
        return self.command(agent_argv(self.spool_dir))

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return the ssh command that runs `argv` in the guest as the measuring user."""
        return ssh_argv(self.target, argv)

    def interactive(self, argv: Sequence[str]) -> list[str]:
        return ssh_argv(self.target, argv, tty=True)

    def push(self, sources: Sequence[Path], directory: str) -> None:
        push(self.target, sources, directory)

    def check(self) -> None:
        self._running().check()

    def outer_sample(self) -> Row:
        return outer_sample(self._running().process_id.pid, self._cache.root)

    def throttle(self, limits: Mapping[str, int]) -> dict[str, int]:
        return disks.throttle(self._running().monitor, limits)

    def command_volume(self, command: Row, disk: str = DATA_DISK) -> Row:
        if disk not in self._volumes:
            raise HostError(f"the guest's disk {disk} is not a simulated volume", "use HOST=vm")
        return self._volumes[disk].command(command)

    @property
    def target(self) -> SshTarget:
        """The measuring account, over the shared connection. Raises HostDied if it is closed."""
        if self._connection is None:
            raise HostDied("the guest is not running", "pagecage host up vm")
        return self._connection.target

    def _running(self) -> qemu.Qemu:
        if self._qemu is None:
            raise HostDied("the guest is not running", "pagecage host up vm")
        return self._qemu

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


@dataclass(frozen=True)
class GuestOptions:
    """Options of a guest; without a `suite` it is that of containers/versions.env."""

    suite: str | None = None
    cpus: int = qemu.CPUS


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
        self._is_persistent, self._options = is_persistent, options
        self._progress: Progress = lambda _: None
        self._state: SavedState | None = None
        self._installed: AgentPackage | None = None
        self._plugin: Path | None = None

    def is_emulated(self, progress: Progress) -> bool:
        """Return whether instructions are translated. The first call after a boot tests KVM."""
        known = qemu.known_acceleration(self._cache)
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
        machine = qemu.machine_for(need, acceleration, self._options.cpus)
        cache = self._cache
        self._disk_names = disks.ensure_disks(cache, need, progress)
        is_done, key = image_build.is_provisioned(TOP, image), image_build.provisioning_key(TOP)
        provision = partial(image_build.provision_guest, TOP, cache.scratch)

        def make_state() -> SavedState:
            """With an agent in standby, unless the user's own systemd has to run it."""
            self._base = saved_state.ensure_state(
                cache, image, machine, key, (lambda *_: None) if is_done else provision, progress
            )
            self._installed = None if self.user else need.package
            if self._installed is None:
                return self._base
            return saved_state.ensure_standby_state(
                cache, self._base, self._installed, need.tracers, progress
            )

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
        return self.command(saved_state.attach_argv(self.spool_dir))

    def _image_and_acceleration(
        self, progress: Progress, packages: Sequence[str] = ()
    ) -> tuple[GuestImage, qemu.Acceleration]:
        self._progress = progress
        self._cache.make()
        self._lock.acquire()
        if running := find_persistent_guest(self._cache):
            self._lock.release()
            raise in_use(running.pid, running.since_unix_seconds, is_persistent=True)
        for name in guest_client.remove_leftovers(self._cache):
            self._progress(f"removed {name} of an earlier run")
        provision = partial(image_build.provision_image, TOP, self._cache.scratch, progress)
        recipe = read_recipe(TOP, self._options.suite, packages)
        image = ensure_image(self._cache, recipe, progress, provision)
        return image, qemu.find_acceleration(self._cache, image, progress)

    def start(self) -> MachineState:
        """Restore the state, wake the guest, mount its disks. A bad state is made again once."""
        try:
            return self._start()
        except disks.DataDiskError:
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
        began, state, cache = time.monotonic(), self._state, self._cache
        restore_seq = state.count_restore()
        self._qemu = running = saved_state.restore(
            cache, state, dies_with_parent=not self._is_persistent
        )
        target = root_target(state.image, running.monitor.forwarded_port())
        guest = RunningGuest(
            *(running.process_id.pid, running.process_id.start_ticks, target.port),
            *(str(state.image.directory), state.state_id, restore_seq),
            kept=self._is_persistent,
            since_unix_seconds=time.time(),
        )
        guest_client.write_guest(cache, guest)
        names = self._disk_names
        self._volumes = disks.serve_disks(cache, names, self._plugin, running.sockets)
        aio = disks.plug_disks(running.monitor, cache, names, self._volumes)
        account = replace(target, user=self._user)
        self._connection = SharedConnection(account, running.sockets, running.check)
        mounts = {serial(name): disks.mount_point(name) for name in names}
        folders = (self.data_dir, self.spool_dir, *self.disks.values())
        lag_seconds, devices = guest_client.wake(running.guest_daemon, self._user, mounts, folders)
        self._connection.wait()
        is_emulated = state.machine.acceleration.emulated
        details = {
            "image": state.image.key,
            "machine_type": state.machine.machine_type,
            "memory_bytes": state.machine.memory_bytes,
            "cpus": state.machine.cpus,
            **vars(state.machine.acceleration),
            "data_disk": devices[serial(DATA_DISK)],
            "data_aio": aio,
            "data_cache": disks.OUTER_CACHE if aio == disks.NBD else "none",
            "clock_error_seconds": round(lag_seconds, 3),
            "start_seconds": round(time.monotonic() - began, 3),
        }
        return MachineState(state.state_id, restore_seq, is_emulated, details)

    def restart(self) -> MachineState:
        """End this guest and restore the saved state again; the data disk is unmounted first."""
        self._end()
        return self.start()

    def leave_running(self) -> None:
        """Disconnect from a persistent guest, which stays and can be found by its description."""
        self._disconnect()
        self._running().monitor.close()
        self._lock.release()

    def stop(self) -> None:
        """Unmount the data disk, end the guest, release the lock. Safe at any time."""
        self._end()
        self._lock.release()

    def _end(self) -> None:
        if self._qemu is not None and self._qemu.alive():
            guest_client.release(self._qemu.guest_daemon)
        self._disconnect()
        if self._qemu is not None:
            self._qemu.quit()
            self._qemu = None
            self._cache.guest_file.unlink(missing_ok=True)
        disks.end_servers(self._volumes)  # after QEMU has written out the disks
        self._volumes = {}


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
        self._guest, self._image = guest, GuestImage(Path(guest.image))
        self._acceleration: qemu.Acceleration | None = None

    def is_emulated(self, progress: Progress) -> bool:
        if self._acceleration is None:
            self._acceleration = qemu.find_acceleration(self._cache, self._image, progress)
        return self._acceleration.emulated

    def prepare(self, need: ResourceNeeds, progress: Progress) -> None:
        """Take the lock, connect to QEMU, and check the guest's size. Raises PagecageError."""
        self._lock.acquire()
        if read_guest(self._cache) != self._guest:
            raise HostDied("the running guest has ended", "run it again")
        self.is_emulated(progress)
        log = self._cache.scratch / "qemu.log"
        self._qemu = qemu.Qemu(self._guest.process_id, qemu.sockets_dir(self._cache), log)
        self._qemu.connect()
        if need.has_volume:
            raise HostError("the running guest's data disk is not a simulated volume", _STOP_HINT)
        if need.disks:
            raise HostError(f"the running guest has no disk {need.disks[0]!r}", _STOP_HINT)
        packages = [package.debian for package in need.distribution_packages]
        extra = read_recipe(TOP, packages=packages).extra_packages
        if lacking := read_contents(self._image).lacks(extra):
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
        self.check()
        guest, is_emulated = self._guest, self.is_emulated(lambda _: None)
        if self._connection is None:
            account = replace(root_target(self._image, guest.port), user=self._user)
            self._connection = SharedConnection(account, qemu.sockets_dir(self._cache), self.check)
            self._connection.wait()
        details = {
            "image": self._image.key,
            **vars(self._acceleration),
            "memory_bytes": self._memory_bytes(),
            "kept_since_unix_seconds": guest.since_unix_seconds,
            "started_from": guest.state_id,
            "up_seconds": round(time.time() - guest.since_unix_seconds, 3),
            "data_cache": "none",
        }
        return MachineState(None, None, is_emulated, details)

    restart = start

    def stop(self) -> None:
        """Disconnect and release the lock; the guest stays running. Safe at any time."""
        self._disconnect()
        if self._qemu is not None:
            self._qemu.monitor.close()
            self._qemu = None
        self._lock.release()
