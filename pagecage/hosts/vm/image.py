"""Makes the guest's image: a root file system from packages, a disk image from that, the kernel and initrd beside it.

Nothing is mounted and no loop device is used, so an ordinary user can do it as well as root.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from pagecage.errors import HostError, PagecageError
from pagecage.hosts.host import Progress
from pagecage.hosts.vm.cache import Cache
from pagecage.hosts.vm.keep import keep_newest
from pagecage.hosts.vm.packed import packed_directory, unpack
from pagecage.hosts.vm.recipe import ROOT_DISK_BYTES, Recipe
from pagecage.hosts.vm.room import require_room, require_tools
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
class Image:
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
    def beside(self) -> tuple[Path, ...]:
        """What a start needs beside the disk."""
        return self.kernel, self.initrd, self.known_hosts, self.identity


def ensure_image(cache: Cache, recipe: Recipe, progress: Progress) -> Image:
    """The image of this recipe, unpacked or made now if it is not there.

    It is made aside and renamed at the end, so a killed build leaves nothing that looks whole. Raises PagecageError
    when a tool is missing or fails.
    """
    image = Image(cache.images / recipe.key)
    if not image.directory.exists():
        part = image.directory.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        packed = packed_directory(recipe.key)
        if packed.exists():
            _unpack(packed, part, progress)
        else:
            _make(part, recipe, progress)
        part.rename(image.directory)
    os.utime(image.directory)
    keep_newest(cache.images, KEPT_IMAGES)
    return image


def _unpack(packed: Path, part: Path, progress: Progress) -> None:
    require_tools("qemu-img")
    require_room(part.parent, UNPACKED_BYTES, "unpacking the guest's image")
    progress("unpacking the guest's image (once)")
    part.mkdir(mode=0o700)
    image = Image(part)
    unpack(packed, image.disk, image.beside)
    image.identity.chmod(0o600)  # ssh refuses a key that others may read


def _make(part: Path, recipe: Recipe, progress: Progress) -> None:
    require_tools("mmdebstrap", "fakeroot", "mke2fs", "ssh-keygen", "tar", "setpriv")
    require_room(part.parent, BUILD_BYTES, "building the guest's image")
    progress("building the guest's image from Debian packages (about 60 s, once)")
    part.mkdir(mode=0o700)
    _build(Image(part), recipe)


def _build(image: Image, recipe: Recipe) -> None:
    _make_keys(image)
    tar = image.directory / "root.tar"
    _bootstrap(image, recipe, tar)
    _extract_boot_files(image, tar)
    _make_disk(image, tar)
    tar.unlink()


def _make_keys(image: Image) -> None:
    """Two key pairs, made for this guest alone: one to come in by, one to know it by."""
    for name in ("id_ed25519", "host_key"):
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"pagecage {name}", "-f", image.directory / name])
    public = (image.directory / "host_key.pub").read_text()
    image.known_hosts.write_text(f"{HOST_KEY_ALIAS} {public}")


def bootstrap_argv(directory: Path, recipe: Recipe, as_root: bool) -> list[str]:
    """The mmdebstrap command that writes the root file system as a tar to its standard output (mmdebstrap(1)).

    Java's package wants to link a manual page and fails where the directory, left out with all manuals, is missing.
    `upload` hooks read our files outside the user namespace, where a private directory is still ours to read.
    """
    uploads = {"id_ed25519.pub": "authorized_keys", "host_key": "host_key", "host_key.pub": "host_key.pub",
               "customize.sh": "customize.sh"}  # fmt: skip
    hooks = ['mkdir -m 0700 "$1/pagecage-build"']
    hooks += [f"upload {directory / ours} /pagecage-build/{theirs}" for ours, theirs in uploads.items()]
    hooks += ['chroot "$1" sh /pagecage-build/customize.sh']
    return [
        "mmdebstrap", "--mode=root" if as_root else "--mode=unshare", "--variant=minbase",
        f"--architectures={recipe.arch}", "--include=" + ",".join(recipe.packages),
        '--dpkgopt=path-exclude=/usr/share/man/*', '--dpkgopt=path-exclude=/usr/share/locale/*',
        '--dpkgopt=path-exclude=/usr/share/doc/*', '--aptopt=Apt::Install-Recommends "false"',
        '--essential-hook=mkdir -p "$1/usr/share/man/man1"',
        *(f"--customize-hook={hook}" for hook in hooks), recipe.suite, "-",
    ]  # fmt: skip


def _bootstrap(image: Image, recipe: Recipe, tar: Path) -> None:
    (image.directory / "customize.sh").write_text(recipe.customize)
    log = image.directory / "bootstrap.log"
    argv = bootstrap_argv(image.directory, recipe, as_root=os.geteuid() == 0)
    with tar.open("wb") as out, log.open("wb") as err:
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


def _build_env(image: Image) -> dict[str, str]:
    """As root the tree grows inside the .part directory, so that a killed build leaves nothing elsewhere.

    An ordinary user's private directory is out of reach for the user namespace's root; there mmdebstrap uses /tmp.
    """
    path = {"PATH": search_path()}
    return {**path, "TMPDIR": str(image.directory)} if os.geteuid() == 0 else path


def _bootstrap_failure(log: str) -> PagecageError:
    """One sentence for a failed mmdebstrap: its first error, which the others follow from, and the usual mend."""
    errors = [line for line in log.splitlines() if line.startswith("E:")] or log.splitlines()[-1:] or ["no output"]
    if "newuidmap" in log or "subuid" in log:
        return HostError("this user has no range of subordinate user ids", "make setup, or: usermod --add-subuids "
                         "100000-165535 --add-subgids 100000-165535 $USER")  # fmt: skip
    return HostError(f"the guest's root file system could not be made: {errors[0]}", "make setup")


def _extract_boot_files(image: Image, tar: Path) -> None:
    run(["tar", "-xf", tar, "-C", image.directory, "--strip-components=2", "--no-anchored", "--wildcards",
         "./boot/vmlinuz-*", "./boot/initrd.img-*"])  # fmt: skip
    for target in (image.kernel, image.initrd):
        next(image.directory.glob(f"{target.name}-*")).rename(target)


def _make_disk(image: Image, tar: Path) -> None:
    """One fakeroot for both steps, so that owners and device nodes live on from the tar into the file system."""
    script = (
        'mkdir "$1/root" && tar -xpf "$2" -C "$1/root" && truncate -s "$3" "$1/root.img" '
        '&& mke2fs -q -t ext4 -L root -F -d "$1/root" "$1/root.img"'
    )
    argv: list[str | Path] = ["fakeroot", "sh", "-c", script, "sh", image.directory, tar, str(ROOT_DISK_BYTES)]
    run(argv, env={"PATH": search_path()})
    shutil.rmtree(image.directory / "root")
