"""Build of the guest's image: a root file system from packages, a disk image, kernel and initrd.

Nothing is mounted and no loop device is used, so an ordinary user can build it too. For root, the
Ansible roles are applied to the root file system before the first boot, which saves an emulated
guest a minute.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from pagecage.hosts.architecture import is_foreign_target
from pagecage.hosts.host import Progress
from pagecage.hosts.prerequisites import require_free_space, require_tools
from pagecage.hosts.vm.cache import GuestCache, keep_newest
from pagecage.hosts.vm.image.archive import archive_of
from pagecage.hosts.vm.image.bootstrap import bootstrap
from pagecage.hosts.vm.image.contents import find_image, write_contents
from pagecage.hosts.vm.image.guest_image import HOST_KEY_ALIAS, GuestImage
from pagecage.hosts.vm.image.packed import packed_directory, require_xz, unpack
from pagecage.hosts.vm.image.recipe import ROOT_DISK_BYTES, ImageRecipe
from pagecage.process import run, search_path
from pagecage.units import GIB
from pagecage.whole_files import sync_folder, sync_tree

MOST_IMAGES = 4
BUILD_BYTES = 3 * GIB
"""Space for the root file system, its tar archive and the disk image together."""
UNPACKED_BYTES = 3 * GIB // 2
Provision = Callable[[GuestImage], None]


def ensure_image(
    cache: GuestCache, recipe: ImageRecipe, progress: Progress, provision: Provision | None = None
) -> GuestImage:
    """Return an image with everything in this recipe, unpacked or built if it is missing.

    It is built in a temporary directory that is renamed at the end. Root calls `provision` with the
    image while its root file system is a directory. Raises PagecageError if a tool is missing or
    fails.
    """
    image = find_image(cache.images, recipe)
    if image is None:
        image = GuestImage(cache.images / recipe.key)
        part = image.directory.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        packed = packed_directory(recipe.key)
        if packed.exists():
            _unpack(packed, part, progress)
        else:
            _build(part, recipe, progress, provision)
        write_contents(GuestImage(part), recipe)
        sync_tree(part)
        part.rename(image.directory)
        sync_folder(cache.images)
    os.utime(image.directory)
    keep_newest(cache.images, MOST_IMAGES)
    return image


def _unpack(packed: Path, part: Path, progress: Progress) -> None:
    require_xz()
    require_free_space(part.parent, UNPACKED_BYTES, "unpacking the guest's image")
    progress("unpacking the guest's image (once)")
    part.mkdir(mode=0o700)
    image = GuestImage(part)
    unpack(packed, image)
    image.identity.chmod(0o600)  # ssh rejects a private key that other users can read


def _build(
    part: Path, recipe: ImageRecipe, progress: Progress, provision: Provision | None
) -> None:
    require_tools("mmdebstrap", "fakeroot", "mke2fs", "ssh-keygen", "tar", "setpriv")
    require_free_space(part.parent, BUILD_BYTES, "building the guest's image")
    progress(_announcement(recipe))
    part.mkdir(mode=0o700)
    image = GuestImage(part)
    _make_keys(image)
    if os.geteuid() == 0:
        _build_as_root(image, recipe, provision)
    else:
        _build_as_user(image, recipe)


def _announcement(recipe: ImageRecipe) -> str:
    packages = f"{archive_of(recipe.suite).distribution} packages"
    if is_foreign_target():
        return (
            f"building the guest's image from {packages} for {recipe.arch}, whose scripts are"
            " emulated (about 20 minutes, once)"
        )
    if not recipe.extra_packages:
        return f"building the guest's image from {packages} (about 60 s, once)"
    names = ", ".join(recipe.extra_packages)
    return f"building a guest's image with {names} from {packages} (1 to 3 minutes, once)"


def _build_as_root(image: GuestImage, recipe: ImageRecipe, provision: Provision | None) -> None:
    """Build the root file system as a directory and make the disk from it.

    Kernel and initrd are not on the disk: QEMU loads them.
    """
    bootstrap(image, recipe, image.tree)
    if provision is not None:
        provision(image)
    for name, target in (("vmlinuz-*", image.kernel), ("initrd.img-*", image.initrd)):
        shutil.move(next((image.tree / "boot").glob(name)), target)
    run(
        ["sh", "-c", _MAKE_DISK, "sh", image.directory, str(ROOT_DISK_BYTES)],
        env={"PATH": search_path()},
    )
    shutil.rmtree(image.tree)


def _build_as_user(image: GuestImage, recipe: ImageRecipe) -> None:
    """Build the root file system as a tar archive, and make the disk from it under fakeroot."""
    tar = image.directory / "root.tar"
    bootstrap(image, recipe, tar)
    _extract_boot_files(image, tar)
    left_out = "--exclude=./boot/vmlinuz-* --exclude=./boot/initrd.img-*"
    unpack_and_make = f'mkdir "$1/root" && tar -xpf "$3" -C "$1/root" {left_out} && {_MAKE_DISK}'
    argv: list[str | Path] = [
        "fakeroot",
        "sh",
        "-c",
        unpack_and_make,
        "sh",
        image.directory,
        str(ROOT_DISK_BYTES),
        tar,
    ]
    run(argv, env={"PATH": search_path()})
    shutil.rmtree(image.tree)
    tar.unlink()


_MAKE_DISK = (
    'truncate -s "$2" "$1/root.img" && mke2fs -q -t ext4 -L root -F -d "$1/root" "$1/root.img"'
)


def _make_keys(image: GuestImage) -> None:
    """Make the guest's two key pairs: one to log in, one to identify it."""
    for name in ("id_ed25519", "host_key"):
        run(
            [
                "ssh-keygen",
                "-q",
                "-t",
                "ed25519",
                "-N",
                "",
                "-C",
                f"pagecage {name}",
                "-f",
                image.directory / name,
            ]
        )
    public = (image.directory / "host_key.pub").read_text()
    image.known_hosts.write_text(f"{HOST_KEY_ALIAS} {public}")


def _extract_boot_files(image: GuestImage, tar: Path) -> None:
    run(
        [
            "tar",
            "-xf",
            tar,
            "-C",
            image.directory,
            "--strip-components=2",
            "--no-anchored",
            "--wildcards",
            "./boot/vmlinuz-*",
            "./boot/initrd.img-*",
        ]
    )
    for target in (image.kernel, image.initrd):
        next(image.directory.glob(f"{target.name}-*")).rename(target)
