"""Makes the guest's image: a root file system from packages, a disk image from that, the kernel and initrd beside it.

Nothing is mounted and no loop device is used, so an ordinary user can make it too. For root the roles are applied to
the root file system before it boots, which would take an emulated guest a minute.
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
from pagecage.hosts.vm.cache import GuestCache, keep_newest
from pagecage.hosts.vm.image_recipe import ROOT_DISK_BYTES, ImageRecipe
from pagecage.hosts.vm.prerequisites import require_room, require_tools
from pagecage.process import TimeoutExpired, run, search_path, spawn
from pagecage.units import GIB

KEPT_IMAGES = 2
HOST_KEY_ALIAS = "pagecage-guest"
"""The name under which the guest's host key is known, whatever port it answers on."""
_BUILD_SECONDS = 1800
BUILD_BYTES = 3 * GIB
"""The tree, its tar and the disk image together, while they exist side by side."""
UNPACKED_BYTES = 3 * GIB // 2


@dataclass(frozen=True)
class GuestImage:
    """A finished image: a directory that exists only when everything in it is whole."""

    directory: Path

    @property
    def key(self) -> str:
        """The key of the recipe that it was made from."""
        return self.directory.name

    @property
    def disk(self) -> Path:
        """The raw ext4 disk; never written to after it was made."""
        return self.directory / "root.img"

    @property
    def kernel(self) -> Path:
        """The kernel that QEMU loads."""
        return self.directory / "vmlinuz"

    @property
    def initrd(self) -> Path:
        """The initial RAM disk that goes with the kernel."""
        return self.directory / "initrd.img"

    @property
    def identity(self) -> Path:
        """The private ssh key that opens the guest."""
        return self.directory / "id_ed25519"

    @property
    def known_hosts(self) -> Path:
        """The guest's own public key, for StrictHostKeyChecking."""
        return self.directory / "known_hosts"

    @property
    def tree(self) -> Path:
        """The root file system while the image is made."""
        return self.directory / "root"

    @property
    def fitted(self) -> Path:
        """Holds the key of the roles that were applied before the first boot, where they were."""
        return self.directory / "fitted"

    @property
    def beside(self) -> tuple[Path, ...]:
        """What a start needs beside the disk."""
        return self.kernel, self.initrd, self.known_hosts, self.identity


Fit = Callable[[GuestImage], None]


def ensure_image(cache: GuestCache, recipe: ImageRecipe, progress: Progress, fit: Fit | None = None) -> GuestImage:
    """The image of this recipe, unpacked or made now if it is not there.

    It is made aside and renamed at the end, so a killed build leaves nothing that looks whole. Where root makes it,
    `fit` is given it with its root file system still a folder. Raises PagecageError when a tool is missing or fails.
    """
    image = GuestImage(cache.images / recipe.key)
    if not image.directory.exists():
        part = image.directory.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        packed = packed_directory(recipe.key)
        if packed.exists():
            _unpack(packed, part, progress)
        else:
            _make(part, recipe, progress, fit)
        part.rename(image.directory)
    os.utime(image.directory)
    keep_newest(cache.images, KEPT_IMAGES)
    return image


def _unpack(packed: Path, part: Path, progress: Progress) -> None:
    require_tools("qemu-img")
    require_room(part.parent, UNPACKED_BYTES, "unpacking the guest's image")
    progress("unpacking the guest's image (once)")
    part.mkdir(mode=0o700)
    image = GuestImage(part)
    unpack(packed, image.disk, image.beside)
    image.identity.chmod(0o600)  # ssh refuses a key that others may read


def _make(part: Path, recipe: ImageRecipe, progress: Progress, fit: Fit | None) -> None:
    require_tools("mmdebstrap", "fakeroot", "mke2fs", "ssh-keygen", "tar", "setpriv")
    require_room(part.parent, BUILD_BYTES, "building the guest's image")
    progress("building the guest's image from Debian packages (about 60 s, once)")
    part.mkdir(mode=0o700)
    image = GuestImage(part)
    _make_keys(image)
    if os.geteuid() == 0:
        _build_as_root(image, recipe, fit)
    else:
        _build_as_user(image, recipe)


def _build_as_root(image: GuestImage, recipe: ImageRecipe, fit: Fit | None) -> None:
    """The root file system is a folder of root's own, which becomes the disk as it is."""
    _bootstrap(image, recipe, image.tree)
    if fit is not None:
        fit(image)
    for name, target in (("vmlinuz-*", image.kernel), ("initrd.img-*", image.initrd)):
        shutil.copyfile(next((image.tree / "boot").glob(name)), target)
    run(["sh", "-c", _MAKE_DISK, "sh", image.directory, str(ROOT_DISK_BYTES)], env={"PATH": search_path()})
    shutil.rmtree(image.tree)


def _build_as_user(image: GuestImage, recipe: ImageRecipe) -> None:
    """The root file system is a tar, whose owners live on under fakeroot."""
    tar = image.directory / "root.tar"
    _bootstrap(image, recipe, tar)
    _extract_boot_files(image, tar)
    unpack_and_make = f'mkdir "$1/root" && tar -xpf "$3" -C "$1/root" && {_MAKE_DISK}'
    argv: list[str | Path] = ["fakeroot", "sh", "-c", unpack_and_make, "sh", image.directory, str(ROOT_DISK_BYTES), tar]
    run(argv, env={"PATH": search_path()})
    shutil.rmtree(image.tree)
    tar.unlink()


_MAKE_DISK = 'truncate -s "$2" "$1/root.img" && mke2fs -q -t ext4 -L root -F -d "$1/root" "$1/root.img"'


def _make_keys(image: GuestImage) -> None:
    """Two key pairs, made for this guest alone: one to come in by, one to know it by."""
    for name in ("id_ed25519", "host_key"):
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"pagecage {name}", "-f", image.directory / name])
    public = (image.directory / "host_key.pub").read_text()
    image.known_hosts.write_text(f"{HOST_KEY_ALIAS} {public}")


def bootstrap_argv(directory: Path, recipe: ImageRecipe, as_root: bool) -> list[str]:
    """The mmdebstrap command that makes the root file system (mmdebstrap(1)): as a folder for root, else as a tar.

    What is left out is left out by dpkg's own settings: told of it, mmdebstrap would pass each of the first packages
    through a filter in Python, which takes longer than unpacking them. Java's package wants to link a manual page and
    fails where the directory is missing. `upload` hooks read our files outside the user namespace, where a private
    directory is still ours to read.
    """
    uploads = {"id_ed25519.pub": "authorized_keys", "host_key": "host_key", "host_key.pub": "host_key.pub",
               "customize.sh": "customize.sh"}  # fmt: skip
    hooks = ['mkdir -m 0700 "$1/pagecage-build"']
    hooks += [f"upload {directory / ours} /pagecage-build/{theirs}" for ours, theirs in uploads.items()]
    hooks += ['chroot "$1" sh /pagecage-build/customize.sh', _REMOVE_EXCLUDED]
    return [
        "mmdebstrap", *(["--mode=root", "--format=directory"] if as_root else ["--mode=unshare", "--format=tar"]),
        "--variant=minbase", f"--architectures={recipe.arch}", "--include=" + ",".join(recipe.packages),
        '--aptopt=Apt::Install-Recommends "false"', f"--setup-hook={_EXCLUDE}",
        '--essential-hook=mkdir -p "$1/usr/share/man/man1"',
        *(f"--customize-hook={hook}" for hook in hooks), recipe.suite, str(directory / "root") if as_root else "-",
    ]  # fmt: skip


_EXCLUDED = ("man", "locale", "doc")
_EXCLUDE = (
    'mkdir -p "$1/etc/dpkg/dpkg.cfg.d" && '
    + f"printf 'path-exclude=/usr/share/%s/*\\n' {' '.join(_EXCLUDED)} > "
    + '"$1/etc/dpkg/dpkg.cfg.d/90-pagecage"'
)
_REMOVE_EXCLUDED = " && ".join(f'find "$1/usr/share/{name}" -mindepth 1 -delete' for name in _EXCLUDED)


def _bootstrap(image: GuestImage, recipe: ImageRecipe, made: Path) -> None:
    (image.directory / "customize.sh").write_text(recipe.customize)
    log = image.directory / "bootstrap.log"
    as_root = os.geteuid() == 0
    argv = bootstrap_argv(image.directory, recipe, as_root)
    with (Path(os.devnull) if as_root else made).open("wb") as out, log.open("wb") as err:
        building = spawn(["setpriv", "--pdeathsig", "TERM", *argv], stdout=out, stderr=err, env=_build_env(image))
    try:
        status = building.wait(_BUILD_SECONDS)
    except TimeoutExpired:
        raise HostError(f"the guest's root file system was not made within {_BUILD_SECONDS} s", f"read {log}") from None
    finally:
        building.terminate()
        building.wait()
    if status != 0:
        raise _bootstrap_failure(log.read_text(errors="replace"))


def _build_env(image: GuestImage) -> dict[str, str]:
    """As root the tree grows inside the .part directory, so that a killed build leaves nothing elsewhere.

    An ordinary user's private directory is out of reach for the user namespace's root; there mmdebstrap uses a folder
    that everybody shares, the first where programs may be started.
    """
    path = {"PATH": search_path()}
    return {**path, "TMPDIR": str(image.directory) if os.geteuid() == 0 else shared_folder()}


def shared_folder() -> str:
    """A folder for temporary files that everybody may enter and that is not mounted `noexec`."""
    named = os.environ.get("TMPDIR")
    for folder in (*([named] if named else []), "/tmp", "/var/tmp"):
        if Path(folder).is_dir() and not os.statvfs(folder).f_flag & os.ST_NOEXEC:
            return folder
    raise HostError("/tmp and /var/tmp are mounted noexec", "set TMPDIR to a folder in which programs may be started")


def _bootstrap_failure(log: str) -> PagecageError:
    """One sentence for a failed mmdebstrap: its first error, which the others follow from, and the usual fix."""
    errors = [line for line in log.splitlines() if line.startswith("E:")] or log.splitlines()[-1:] or ["no output"]
    if "newuidmap" in log or "subuid" in log:
        return HostError("this user has no range of subordinate user ids", "make setup, or: usermod --add-subuids "
                         "100000-165535 --add-subgids 100000-165535 $USER")  # fmt: skip
    return HostError(f"the guest's root file system could not be made: {errors[0]}", "make setup")


def _extract_boot_files(image: GuestImage, tar: Path) -> None:
    run(["tar", "-xf", tar, "-C", image.directory, "--strip-components=2", "--no-anchored", "--wildcards",
         "./boot/vmlinuz-*", "./boot/initrd.img-*"])  # fmt: skip
    for target in (image.kernel, image.initrd):
        next(image.directory.glob(f"{target.name}-*")).rename(target)


PACKED_DISK = "root.qcow2"


def packed_directory(key: str) -> Path:
    """Where the packed image of a recipe's key lies, if there is one."""
    return TOP / "build/guest" / key


def pack(disk: Path, beside: Iterable[Path], packed: Path) -> None:
    """Pack an image's disk and what lies beside it into a directory, which must not be there.

    Everybody may read it, the key to the guest too: whoever has the copy may start the guest.
    """
    part = packed.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    for file in beside:
        (part / file.name).write_bytes(file.read_bytes())
        (part / file.name).chmod(0o644)
    _convert(disk, "raw", part / PACKED_DISK, "qcow2", "-c", "-o", "compression_type=zstd")
    part.rename(packed)


def unpack(packed: Path, disk: Path, beside: Iterable[Path]) -> None:
    """Make the disk and what lies beside it from a packed image."""
    for file in beside:
        file.write_bytes((packed / file.name).read_bytes())
    _convert(packed / PACKED_DISK, "qcow2", disk, "raw")


def _convert(source: Path, source_format: str, target: Path, target_format: str, *how: str) -> None:
    run(["qemu-img", "convert", "-q", "-f", source_format, "-O", target_format, *how, source, target])
