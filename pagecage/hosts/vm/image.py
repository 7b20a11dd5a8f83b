"""Build of the guest's image: a root file system from packages, a disk image, kernel and initrd.

Nothing is mounted and no loop device is used, so an ordinary user can build it too. For root, the
Ansible roles are applied to the root file system before the first boot, which saves an emulated
guest a minute.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from pagecage.checkout import TOP
from pagecage.errors import HostError, PagecageError
from pagecage.hosts.host import Progress
from pagecage.hosts.prerequisites import require_free_space, require_tools
from pagecage.hosts.vm.cache import GuestCache, keep_newest
from pagecage.hosts.vm.image_recipe import ROOT_DISK_BYTES, ImageRecipe
from pagecage.process import TimeoutExpired, run, search_path, spawn
from pagecage.units import GIB

MOST_IMAGES = 2
HOST_KEY_ALIAS = "pagecage-guest"
"""The name of the guest's host key in known_hosts, independent of its port."""
_BUILD_SECONDS = 1800
BUILD_BYTES = 3 * GIB
"""Space for the root file system, its tar archive and the disk image together."""
UNPACKED_BYTES = 3 * GIB // 2


@dataclass(frozen=True)
class GuestImage:
    """A finished image. Its directory exists only if it is complete."""

    directory: Path

    @property
    def key(self) -> str:
        """The key of its recipe."""
        return self.directory.name

    @property
    def disk(self) -> Path:
        """The raw ext4 disk, which is never written to after the build."""
        return self.directory / "root.img"

    @property
    def kernel(self) -> Path:
        """The kernel that QEMU loads."""
        return self.directory / "vmlinuz"

    @property
    def initrd(self) -> Path:
        """The kernel's initial RAM disk."""
        return self.directory / "initrd.img"

    @property
    def identity(self) -> Path:
        """The private ssh key for the guest's accounts."""
        return self.directory / "id_ed25519"

    @property
    def known_hosts(self) -> Path:
        """The guest's public host key, for StrictHostKeyChecking."""
        return self.directory / "known_hosts"

    @property
    def tree(self) -> Path:
        """The root file system during the build."""
        return self.directory / "root"

    @property
    def provisioned(self) -> Path:
        """A file with the key of the roles applied before the first boot, if any were."""
        return self.directory / "fitted"

    @property
    def boot_files(self) -> tuple[Path, ...]:
        """The files other than the disk that a start needs."""
        return self.kernel, self.initrd, self.known_hosts, self.identity


Provision = Callable[[GuestImage], None]


def ensure_image(
    cache: GuestCache, recipe: ImageRecipe, progress: Progress, provision: Provision | None = None
) -> GuestImage:
    """Return the image of this recipe, unpacked or built if it is missing.

    It is built in a temporary directory that is renamed at the end. Root calls `provision` with the
    image while its root file system is a directory. Raises PagecageError if a tool is missing or
    fails.
    """
    image = GuestImage(cache.images / recipe.key)
    if not image.directory.exists():
        part = image.directory.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        packed = packed_directory(recipe.key)
        if packed.exists():
            _unpack(packed, part, progress)
        else:
            _build(part, recipe, progress, provision)
        part.rename(image.directory)
    os.utime(image.directory)
    keep_newest(cache.images, MOST_IMAGES)
    return image


def _unpack(packed: Path, part: Path, progress: Progress) -> None:
    require_tools("qemu-img")
    require_free_space(part.parent, UNPACKED_BYTES, "unpacking the guest's image")
    progress("unpacking the guest's image (once)")
    part.mkdir(mode=0o700)
    image = GuestImage(part)
    unpack(packed, image.disk, image.boot_files)
    image.identity.chmod(0o600)  # ssh rejects a private key that other users can read


def _build(
    part: Path, recipe: ImageRecipe, progress: Progress, provision: Provision | None
) -> None:
    require_tools("mmdebstrap", "fakeroot", "mke2fs", "ssh-keygen", "tar", "setpriv")
    require_free_space(part.parent, BUILD_BYTES, "building the guest's image")
    progress("building the guest's image from Debian packages (about 60 s, once)")
    part.mkdir(mode=0o700)
    image = GuestImage(part)
    _make_keys(image)
    if os.geteuid() == 0:
        _build_as_root(image, recipe, provision)
    else:
        _build_as_user(image, recipe)


def _build_as_root(image: GuestImage, recipe: ImageRecipe, provision: Provision | None) -> None:
    """Build the root file system as a directory and make the disk from it."""
    _bootstrap(image, recipe, image.tree)
    if provision is not None:
        provision(image)
    for name, target in (("vmlinuz-*", image.kernel), ("initrd.img-*", image.initrd)):
        shutil.copyfile(next((image.tree / "boot").glob(name)), target)
    run(
        ["sh", "-c", _MAKE_DISK, "sh", image.directory, str(ROOT_DISK_BYTES)],
        env={"PATH": search_path()},
    )
    shutil.rmtree(image.tree)


def _build_as_user(image: GuestImage, recipe: ImageRecipe) -> None:
    """Build the root file system as a tar archive, and make the disk from it under fakeroot."""
    tar = image.directory / "root.tar"
    _bootstrap(image, recipe, tar)
    _extract_boot_files(image, tar)
    unpack_and_make = f'mkdir "$1/root" && tar -xpf "$3" -C "$1/root" && {_MAKE_DISK}'
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


def bootstrap_argv(directory: Path, recipe: ImageRecipe, as_root: bool) -> list[str]:
    """Return the mmdebstrap(1) command that makes the root file system.

    For root it makes a directory, else a tar archive. Files are left out by dpkg's own settings:
    with mmdebstrap's option, each of the first packages would pass through a filter in Python,
    which takes longer than unpacking. The Java package links a manual page and needs its directory.
    `upload` hooks read files outside the user namespace, where a private directory is readable.
    """
    uploads = {
        "id_ed25519.pub": "authorized_keys",
        "host_key": "host_key",
        "host_key.pub": "host_key.pub",
        "customize.sh": "customize.sh",
    }
    hooks = ['mkdir -m 0700 "$1/pagecage-build"']
    hooks += [
        f"upload {directory / source} /pagecage-build/{target}"
        for source, target in uploads.items()
    ]
    hooks += ['chroot "$1" sh /pagecage-build/customize.sh', _REMOVE_EXCLUDED]
    return [
        "mmdebstrap",
        *(["--mode=root", "--format=directory"] if as_root else ["--mode=unshare", "--format=tar"]),
        "--variant=minbase",
        f"--architectures={recipe.arch}",
        "--include=" + ",".join(recipe.packages),
        '--aptopt=Apt::Install-Recommends "false"',
        f"--setup-hook={_EXCLUDE}",
        '--essential-hook=mkdir -p "$1/usr/share/man/man1"',
        *(f"--customize-hook={hook}" for hook in hooks),
        recipe.suite,
        str(directory / "root") if as_root else "-",
    ]


_EXCLUDED = ("man", "locale", "doc")
_EXCLUDE = (
    'mkdir -p "$1/etc/dpkg/dpkg.cfg.d" && '
    + f"printf 'path-exclude=/usr/share/%s/*\\n' {' '.join(_EXCLUDED)} > "
    + '"$1/etc/dpkg/dpkg.cfg.d/90-pagecage"'
)
_REMOVE_EXCLUDED = " && ".join(
    f'find "$1/usr/share/{name}" -mindepth 1 -delete' for name in _EXCLUDED
)


def _bootstrap(image: GuestImage, recipe: ImageRecipe, target: Path) -> None:
    """Run mmdebstrap, which writes `target`."""
    (image.directory / "customize.sh").write_text(recipe.customize)
    log = image.directory / "bootstrap.log"
    as_root = os.geteuid() == 0
    argv = bootstrap_argv(image.directory, recipe, as_root)
    with (Path(os.devnull) if as_root else target).open("wb") as out, log.open("wb") as err:
        process = spawn(
            ["setpriv", "--pdeathsig", "TERM", *argv], stdout=out, stderr=err, env=_build_env(image)
        )
    try:
        status = process.wait(_BUILD_SECONDS)
    except TimeoutExpired:
        raise HostError(
            f"the guest's root file system was not made within {_BUILD_SECONDS} s", f"read {log}"
        ) from None
    finally:
        process.terminate()
        process.wait()
    if status != 0:
        raise _bootstrap_failure(log.read_text(errors="replace"))


def _build_env(image: GuestImage) -> dict[str, str]:
    """Return mmdebstrap's environment.

    As root the tree is inside the .part directory, so that a killed build leaves nothing elsewhere.
    Root of a user namespace cannot access a user's private directory; there mmdebstrap uses a
    shared directory that allows execution.
    """
    path = {"PATH": search_path()}
    return {**path, "TMPDIR": str(image.directory) if os.geteuid() == 0 else shared_folder()}


def shared_folder() -> str:
    """Return a directory for temporary files that is open to all users and not mounted `noexec`."""
    named = os.environ.get("TMPDIR")
    for folder in (*([named] if named else []), "/tmp", "/var/tmp"):
        if Path(folder).is_dir() and not os.statvfs(folder).f_flag & os.ST_NOEXEC:
            return folder
    raise HostError(
        "/tmp and /var/tmp are mounted noexec", "set TMPDIR to a directory that allows execution"
    )


def _bootstrap_failure(log: str) -> PagecageError:
    """Return the error of a failed mmdebstrap, from the first error in its log."""
    errors = (
        [line for line in log.splitlines() if line.startswith("E:")]
        or log.splitlines()[-1:]
        or ["no output"]
    )
    if "newuidmap" in log or "subuid" in log:
        return HostError(
            "this user has no subordinate user ids (subuid(5))",
            "make setup, or: usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $USER",
        )
    return HostError(f"the guest's root file system could not be made: {errors[0]}", "make setup")


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


PACKED_DISK = "root.qcow2"


def packed_directory(key: str) -> Path:
    """Return the path of the packed image of a recipe's key; it may be missing."""
    return TOP / "build/guest" / key


def pack(disk: Path, boot_files: Iterable[Path], packed: Path) -> None:
    """Pack an image's disk and its boot files into a new directory.

    All users may read it, the guest's private key included.
    """
    part = packed.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    for file in boot_files:
        (part / file.name).write_bytes(file.read_bytes())
        (part / file.name).chmod(0o644)
    _convert(disk, "raw", part / PACKED_DISK, "qcow2", "-c", "-o", "compression_type=zstd")
    part.rename(packed)


def unpack(packed: Path, disk: Path, boot_files: Iterable[Path]) -> None:
    """Make the disk and the boot files from a packed image."""
    for file in boot_files:
        file.write_bytes((packed / file.name).read_bytes())
    _convert(packed / PACKED_DISK, "qcow2", disk, "raw")


def _convert(
    source: Path, source_format: str, target: Path, target_format: str, *options: str
) -> None:
    run(
        [
            "qemu-img",
            "convert",
            "-q",
            "-f",
            source_format,
            "-O",
            target_format,
            *options,
            source,
            target,
        ]
    )
