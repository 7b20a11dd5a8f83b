"""Control of the guest by `pagecage host`: up, down, shell, status, rebuild, pack."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from pagecage.checkout import TOP
from pagecage.errors import HostError
from pagecage.hosts.host import Progress, ResourceNeeds
from pagecage.hosts.ssh import SharedConnection, SshTarget, ssh_argv
from pagecage.hosts.vm.cache import (
    CacheLock,
    GuestCache,
    allocated_bytes,
    in_use,
    is_held,
    read_holder,
)
from pagecage.hosts.vm.disks import drop_if_broken
from pagecage.hosts.vm.guest_client import read_guest, release, remove_leftovers
from pagecage.hosts.vm.image import PACKED_DISK, GuestImage, pack, read_recipe, require_xz
from pagecage.hosts.vm.image_build import ensure_image, provision_image
from pagecage.hosts.vm.qemu import SSH_SOCKET, Qemu, known_acceleration, sockets_dir
from pagecage.hosts.vm.saved_state import root_target
from pagecage.hosts.vm.vm_host import GuestOptions, VmHost, find_persistent_guest
from pagecage.process import spawn

_NO_NEEDS = ResourceNeeds(0, 0)


@dataclass(frozen=True)
class GuestStatus:
    """The state of the guest and of its files; sizes are allocated bytes, not file lengths."""

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
    cache = cache or GuestCache.of_user()
    guest = read_guest(cache)
    known = known_acceleration(cache)
    return GuestStatus(
        running=guest is not None,
        kept=guest is not None and guest.kept,
        used_by_pid=read_holder(cache.lock_file)[0] if is_held(cache.lock_file) else None,
        qemu_pid=guest.pid if guest else None,
        ssh_port=guest.port if guest else None,
        since_unix_seconds=guest.since_unix_seconds if guest else None,
        state_id=guest.state_id if guest else None,
        restore_seq=guest.restore_seq if guest else None,
        accel=known.accel if known else None,
        images=_names(cache.images),
        states=_names(cache.states),
        data_disk_bytes=sum(map(_disk_use_bytes, cache.disks())),
        cache_bytes=_disk_use_bytes(cache.root),
        cache_directory=str(cache.root),
    )


def up(
    progress: Progress, cache: GuestCache | None = None, options: GuestOptions | None = None
) -> None:
    """Restore the guest and leave it running. Raises PagecageError if a run uses it."""
    cache = cache or GuestCache.of_user()
    if running := find_persistent_guest(cache):
        progress(f"the guest is running already, on port {running.port}")
        return
    host = VmHost(cache=cache, is_persistent=True, options=options or GuestOptions())
    try:
        host.prepare(_NO_NEEDS, progress)
        progress("restoring the guest")
        host.start()
    except BaseException:
        host.stop()
        raise
    host.leave_running()


def down(progress: Progress, cache: GuestCache | None = None) -> None:
    """End the guest that `up` left running. Raises PagecageError while a run uses it."""
    cache = cache or GuestCache.of_user()
    if not cache.root.exists():
        progress("there is no guest")
        return
    with CacheLock(cache.lock_file):
        if guest := find_persistent_guest(cache):
            progress("ending the guest")
            qemu = Qemu(guest.process_id, sockets_dir(cache), cache.scratch / "qemu.log")
            release(qemu.guest_daemon)
            qemu.connect()
            qemu.quit()
            cache.guest_file.unlink(missing_ok=True)
        else:
            progress("no guest is running")
        remove_leftovers(cache)


def shell(progress: Progress, cache: GuestCache | None = None, user: str = "root") -> int:
    """Start the guest if needed, open a shell in it, and return the exit status."""
    cache = cache or GuestCache.of_user()
    if not (was_running := read_guest(cache) is not None):
        up(progress, cache)
    target = running_target(cache)
    assert target is not None  # up() has just written the guest's description
    account = replace(target, user=user, control_path=None)
    try:
        return spawn(ssh_argv(account, []), stdin=None, stdout=None, stderr=None).wait()
    finally:
        if not was_running:
            down(progress, cache)


def running_target(cache: GuestCache | None = None) -> SshTarget | None:
    """Return the root account of the running guest, over connected()'s socket, or None."""
    cache = cache or GuestCache.of_user()
    if (guest := read_guest(cache)) is None:
        return None
    target = root_target(GuestImage(Path(guest.image)), guest.port)
    return replace(target, control_path=sockets_dir(cache) / SSH_SOCKET)


@contextmanager
def connected(cache: GuestCache | None = None) -> Iterator[SshTarget]:
    """Keep a connection to the guest that `up` left running open for all. Raises HostError."""
    cache = cache or GuestCache.of_user()
    target = running_target(cache)
    if target is None:
        raise HostError("the guest is not running", "pagecage host up vm")
    with SharedConnection(target, sockets_dir(cache), lambda: None):
        yield target


def rebuild(progress: Progress, cache: GuestCache | None = None) -> None:
    """Make images and states again; datasets stay. Raises PagecageError if the guest is in use."""
    cache = cache or GuestCache.of_user()
    cache.make()
    with CacheLock(cache.lock_file):
        if guest := find_persistent_guest(cache):
            raise in_use(guest.pid, guest.since_unix_seconds, is_persistent=True)
        for directory in (cache.images, cache.states):
            shutil.rmtree(directory)
        cache.acceleration_file.unlink(missing_ok=True)
        for disk in cache.disks():
            drop_if_broken(disk, progress)
    prepare(progress, cache)


def prepare(progress: Progress, cache: GuestCache | None = None) -> None:
    """Make image, state and data disk where missing. Raises PagecageError if it is in use."""
    host = VmHost(cache=cache)
    try:
        host.prepare(_NO_NEEDS, progress)
    finally:
        host.stop()


def pack_image(out: Path, progress: Progress, packages: Sequence[str] = ()) -> Path:
    """Build an image with its own keys and pack it below `out`; return its path.

    An existing packed image is reused, and those of other recipes are removed. Root also provisions
    it. Raises PagecageError if the image cannot be built.
    """
    require_xz()
    recipe = read_recipe(TOP, packages=packages)
    packed = out / recipe.key
    if packed.exists():
        return packed
    for other in list(out.glob(f"*/{PACKED_DISK}")):
        shutil.rmtree(other.parent)
    out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=out, prefix="making-") as folder:
        cache = GuestCache(Path(folder) / "vm")
        cache.make()
        provision = partial(provision_image, TOP, cache.scratch, progress)
        image = ensure_image(cache, recipe, progress, provision)
        progress("packing the image (minutes)")
        pack(image, packed)
    return packed


def _names(directory: Path) -> tuple[str, ...]:
    return tuple(sorted(path.name for path in directory.iterdir())) if directory.exists() else ()


def _disk_use_bytes(path: Path) -> int:
    files = (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
    return sum(map(allocated_bytes, files if path.is_dir() else [path]))
