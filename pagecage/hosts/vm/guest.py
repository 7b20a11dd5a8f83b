"""The guest by hand: up, down, shell, status, rebuild, pack. What `pagecage host` calls."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from pagecage.checkout import TOP
from pagecage.errors import HostError
from pagecage.hosts.connection import SharedConnection
from pagecage.hosts.host import Progress, ResourceNeeds
from pagecage.hosts.ssh import SshTarget, ssh_argv
from pagecage.hosts.vm.acceleration import known_acceleration
from pagecage.hosts.vm.cache import CacheLock, GuestCache, in_use, is_held, read_holder
from pagecage.hosts.vm.data_disk import drop_if_broken
from pagecage.hosts.vm.guest_client import release
from pagecage.hosts.vm.image import PACKED_DISK, GuestImage, ensure_image, pack
from pagecage.hosts.vm.image_recipe import read_recipe
from pagecage.hosts.vm.machine import SSH_SOCKET
from pagecage.hosts.vm.qemu import Qemu, sockets_dir
from pagecage.hosts.vm.running_guest import RunningGuest, read_guest, sweep
from pagecage.hosts.vm.saved_state import root_target
from pagecage.hosts.vm.vm_host import GuestOptions, VmHost
from pagecage.process import spawn

_ANY_NEED = ResourceNeeds(0, 0)


@dataclass(frozen=True)
class GuestStatus:
    """Whether a guest runs and for whom, and what is stored to start the next one from.

    `used_by_pid` is the process that measures in it now, `kept` tells that it stays until `down`. Sizes are what the
    files take on the disk, not their length.
    """

    running: bool
    kept: bool
    used_by_pid: int | None
    qemu_pid: int | None
    ssh_port: int | None
    since_unix_seconds: float | None
    state_id: str | None
    restore_seq: int | None
    accel: str | None
    images: tuple[str, ...]
    states: tuple[str, ...]
    data_disk_bytes: int
    cache_bytes: int
    cache_directory: str


def status(cache: GuestCache | None = None) -> GuestStatus:
    """The guest as it is now; changes nothing."""
    cache = cache or GuestCache.of_user()
    guest = read_guest(cache)
    known = known_acceleration(cache)
    return GuestStatus(
        running=guest is not None, kept=guest is not None and guest.kept,
        used_by_pid=read_holder(cache.lock_file)[0] if is_held(cache.lock_file) else None,
        qemu_pid=guest.pid if guest else None, ssh_port=guest.port if guest else None,
        since_unix_seconds=guest.since_unix_seconds if guest else None,
        state_id=guest.state_id if guest else None, restore_seq=guest.restore_seq if guest else None,
        accel=known.accel if known else None, images=_names(cache.images), states=_names(cache.states),
        data_disk_bytes=_disk_use_bytes(cache.data_disk), cache_bytes=_disk_use_bytes(cache.root),
        cache_directory=str(cache.root),
    )  # fmt: skip


def up(progress: Progress, cache: GuestCache | None = None, making: GuestOptions | None = None) -> None:
    """Restore the guest and leave it running. Raises PagecageError when a run uses it."""
    cache = cache or GuestCache.of_user()
    running = read_guest(cache)
    if running is not None and running.kept:
        progress(f"the guest is up already, on port {running.port}")
        return
    host = VmHost(cache=cache, kept=True, making=making or GuestOptions())
    try:
        host.prepare(_ANY_NEED, progress)
        progress("restoring the guest")
        host.start()
    except BaseException:
        host.stop()
        raise
    host.leave_running()


def down(progress: Progress, cache: GuestCache | None = None) -> None:
    """End a guest that `up` left running. Raises PagecageError while a run uses it: that is for the run to end."""
    cache = cache or GuestCache.of_user()
    if not cache.root.exists():
        progress("there is no guest")
        return
    lock = CacheLock(cache.lock_file)
    lock.acquire()
    try:
        guest = read_guest(cache)
        if guest is None or not guest.kept:
            progress("no guest is running")
        else:
            progress("ending the guest")
            _end(cache, guest)
        sweep(cache)
    finally:
        lock.release()


def _end(cache: GuestCache, guest: RunningGuest) -> None:
    qemu = Qemu(guest.process_id, sockets_dir(cache), cache.scratch / "qemu.log")
    release(qemu.caretaker)
    qemu.connect()
    qemu.quit()
    cache.guest_file.unlink(missing_ok=True)


def shell(progress: Progress, cache: GuestCache | None = None, user: str = "root") -> int:
    """A shell in the guest, brought up for it and ended after it where none runs; returns the exit status."""
    cache = cache or GuestCache.of_user()
    guest = read_guest(cache)
    ours = guest is None
    if guest is None:
        up(progress, cache)
        guest = read_guest(cache)
    assert guest is not None  # up() has just written the record
    target = replace(root_target(GuestImage(Path(guest.image)), guest.port), user=user)
    try:
        return spawn(ssh_argv(target, []), stdin=None, stdout=None, stderr=None).wait()
    finally:
        if ours:
            down(progress, cache)


def running_target(cache: GuestCache | None = None) -> SshTarget | None:
    """The root account of the guest that runs now, None where none does.

    Its control path is that of connected(); without one ssh connects by itself.
    """
    cache = cache or GuestCache.of_user()
    guest = read_guest(cache)
    if guest is None:
        return None
    return replace(root_target(GuestImage(Path(guest.image)), guest.port), control_path=sockets_dir(cache) / SSH_SOCKET)


@contextmanager
def connected(cache: GuestCache | None = None) -> Iterator[SshTarget]:
    """Keep one connection to the guest that `up` left running, which everybody who knows its target shares.

    Raises HostError when none runs, or when it does not answer.
    """
    cache = cache or GuestCache.of_user()
    target = running_target(cache)
    if target is None:
        raise HostError("the guest is not running", "pagecage host up vm")
    connection = SharedConnection(target, sockets_dir(cache), lambda: None)
    try:
        connection.wait()
        yield target
    finally:
        connection.close()


def rebuild(progress: Progress, cache: GuestCache | None = None) -> None:
    """Throw images and saved states away and make them again; datasets stay, unless their file system is broken.

    Raises PagecageError while somebody uses the guest.
    """
    cache = cache or GuestCache.of_user()
    cache.make()
    lock = CacheLock(cache.lock_file)
    lock.acquire()
    try:
        guest = read_guest(cache)
        if guest is not None and guest.kept:
            raise in_use(guest.pid, guest.since_unix_seconds, kept=True)
        for directory in (cache.images, cache.states):
            shutil.rmtree(directory)
        cache.acceleration_file.unlink(missing_ok=True)
        drop_if_broken(cache.data_disk, progress)
    finally:
        lock.release()
    prepare(progress, cache)


def prepare(progress: Progress, cache: GuestCache | None = None) -> None:
    """Make image, saved state and data disk where they are missing. Raises PagecageError while the guest is used."""
    host = VmHost(cache=cache)
    try:
        host.prepare(_ANY_NEED, progress)
    finally:
        host.stop()


def pack_image(out: Path, progress: Progress) -> Path:
    """Make an image with keys of its own and pack it below `out`, if it is not there; returns where it lies.

    Packs of other recipes are removed. What opens this user's own guest stays here. Raises PagecageError when it cannot
    be made.
    """
    recipe = read_recipe(TOP)
    packed = out / recipe.key
    if packed.exists():
        return packed
    for other in list(out.glob(f"*/{PACKED_DISK}")):
        shutil.rmtree(other.parent)
    out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=out, prefix="making-") as folder:
        cache = GuestCache(Path(folder) / "vm")
        cache.make()
        image = ensure_image(cache, recipe, progress)
        progress("packing it")
        pack(image.disk, image.beside, packed)
    return packed


def _names(directory: Path) -> tuple[str, ...]:
    return tuple(sorted(path.name for path in directory.iterdir())) if directory.exists() else ()


def _disk_use_bytes(path: Path) -> int:
    """What a file or everything below a directory takes on the disk (st_blocks counts 512 bytes; inode(7))."""
    files = (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
    return sum(map(_held_bytes, files if path.is_dir() else [path]))


def _held_bytes(file: Path) -> int:
    """What a file takes of the disk; nothing where it went while we looked, as parts of an image in the making do."""
    try:
        return file.lstat().st_blocks * 512
    except OSError:
        return 0
