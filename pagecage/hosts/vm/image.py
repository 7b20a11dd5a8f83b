"""The guest's image: what it is made of, and where it is kept."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from pagecage.checkout import BUILD
from pagecage.errors import HostError, PagecageError
from pagecage.hosts.agent_package import architecture, target_machine
from pagecage.hosts.vm.cache import FileBelow, allocated_bytes
from pagecage.model.json_codec import from_json, to_json
from pagecage.process import find_tool, run, search_path
from pagecage.whole_files import text_sha256, whole_folder

KEYRINGS = Path("/usr/share/keyrings")
_KEYRING_SUITE = "trixie"
"""The Debian release with the keyrings of other archives. Debian 12 does not have Ubuntu's."""
_KEYRING_SECONDS = 300


@dataclass(frozen=True)
class PackageArchive:
    """A distribution's archive, with its lines of sources.list(5) unless mmdebstrap has them."""

    distribution: str
    keyring_package: str
    sources: tuple[str, ...] = ()
    architectures: frozenset[str] = frozenset({"amd64", "arm64"})


DEBIAN = PackageArchive("Debian", "debian-archive-keyring")
UBUNTU = PackageArchive(
    "Ubuntu",
    "ubuntu-archive-keyring",
    tuple(
        f"deb http://archive.ubuntu.com/ubuntu {{suite}}{pocket} main universe"
        for pocket in ("", "-updates", "-security")
    ),
    frozenset({"amd64"}),
)
UBUNTU_SUITES = frozenset({"noble"})


def archive_of(suite: str) -> PackageArchive:
    """Return the archive that has a suite: Ubuntu's for its known suites, else Debian's."""
    return UBUNTU if suite in UBUNTU_SUITES else DEBIAN


def require_architecture(suite: str, arch: str) -> None:
    """Raise HostError if the archive of a suite has no packages for the guest's architecture."""
    archive = archive_of(suite)
    if arch not in archive.architectures:
        raise HostError(
            f"a guest with {archive.distribution} is made for"
            f" {', '.join(sorted(archive.architectures))} only, and this one is for {arch}",
            "choose a Debian release, e.g. --suite trixie",
        )


def installed_keyring(archive: PackageArchive) -> Path | None:
    paths = (KEYRINGS / f"{archive.keyring_package}{suffix}" for suffix in (".gpg", ".pgp"))
    return next((path for path in paths if path.is_file()), None)


def debian_keyring() -> Path:
    """Return the keyring of Debian's archive, which mmdebstrap finds only with gpg."""
    if keyring := installed_keyring(DEBIAN):
        return keyring
    raise HostError(f"the keyring of Debian's archive is not in {KEYRINGS}", "make setup")


@contextmanager
def usable_keyring(archive: PackageArchive, folder: Path) -> Iterator[Path]:
    """Yield an archive's keyring: the installed one, or that of Debian's package, in `folder`.

    `folder` must be readable for apt's own user and for root of a user namespace. Raises HostError.
    """
    if keyring := debian_keyring() if archive == DEBIAN else installed_keyring(archive):
        yield keyring
        return
    with TemporaryDirectory(dir=folder, prefix="pagecage-keyring-") as private:
        place = Path(private)
        place.chmod(0o755)
        yield _extracted_keyring(archive, place)


def _extracted_keyring(archive: PackageArchive, folder: Path) -> Path:
    packed, keyring = folder / "keyring.tar", folder / f"{archive.keyring_package}.gpg"
    try:
        env = {"TMPDIR": str(folder), "PATH": search_path()}
        mode = "root" if os.geteuid() == 0 else "unshare"
        settings = f"--quiet --mode={mode} --variant=extract --format=tar".split()
        keys = [f"--include={archive.keyring_package}", f"--keyring={debian_keyring()}"]
        argv = ["mmdebstrap", *settings, *keys, _KEYRING_SUITE, str(packed)]
        run(argv, timeout_seconds=_KEYRING_SECONDS, env=env)
        with tarfile.open(packed) as tar:
            member = tar.extractfile(f"./usr/share/keyrings/{keyring.name}")
            if member is None:
                raise KeyError(f"{keyring.name} is not a file")
            with keyring.open("wb") as out:
                shutil.copyfileobj(member, out)
        keyring.chmod(0o644)
    except (PagecageError, OSError, KeyError, tarfile.TarError) as error:
        raise HostError(
            f"the keyring of {archive.distribution}'s archive is not in {KEYRINGS}, and Debian's"
            f" package of it could not be had: {getattr(error, 'message', error)}",
            f"sudo apt-get install {archive.keyring_package}",
        ) from None
    return keyring


IMAGE_VERSION = 1
"""Increased when the build makes a different image from the same inputs."""
ROOT_DISK_BYTES = 4 * 1024**3
_INTERPRETER = "#!/bin/sh\n"
KERNEL = "${KERNEL}"
"""Stands for the release of the installed kernel (`uname -r`) in names of packages."""


@dataclass(frozen=True)
class ImageRecipe:
    """The inputs of an image. `extra_packages` are those of experiments."""

    suite: str
    arch: str
    packages: tuple[str, ...]
    customize: str
    extra_packages: tuple[str, ...] = ()
    install_extra: str = ""

    @property
    def first_packages(self) -> tuple[str, ...]:
        """The packages of the root file system whose names are known before a kernel is there."""
        return tuple(name for name in self.packages if KERNEL not in name)

    @property
    def kernel_packages(self) -> tuple[str, ...]:
        """The packages with the release of the installed kernel in their names, as ${KERNEL}."""
        return tuple(name for name in self.packages if KERNEL in name)

    @property
    def base_key(self) -> str:
        return replace(self, extra_packages=(), install_extra="").key

    @property
    def key(self) -> str:
        extra = (self.install_extra, *self.extra_packages) if self.extra_packages else ()
        parts = (
            *(str(IMAGE_VERSION), str(ROOT_DISK_BYTES), self.suite, self.arch),
            *(*self.packages, self.customize, *extra),
        )
        return text_sha256("\0".join(parts))[:16]


def read_recipe(
    project_dir: Path, suite: str | None = None, packages: Iterable[str] = ()
) -> ImageRecipe:
    """Return the recipe of the checkout with more packages. Raises HostError."""
    arch = architecture().debian
    guest = project_dir / "containers" / "guest"
    suite = suite or read_versions(project_dir)["GUEST_SUITE"]
    require_architecture(suite, arch)
    base = parse_packages((guest / "packages.txt").read_text(), arch, suite)
    own = guest / f"customize-{archive_of(suite).distribution.lower()}.sh"
    parts = (guest / "customize.sh", *([own] if own.exists() else []))
    texts = (part.read_text().removeprefix(_INTERPRETER) for part in parts)
    extra, installer = tuple(sorted(set(packages) - set(base))), guest / "install-extra.sh"
    customize = _INTERPRETER + "".join(texts)
    return ImageRecipe(suite, arch, base, customize, extra, installer.read_text())


def parse_packages(text: str, arch: str, suite: str) -> tuple[str, ...]:
    """Return the package names of a list with one per line, and `#` before comments.

    `[!SUITE]` marks a package that SUITE does not have, `[SUITE]` one that only SUITE needs.
    """
    names = []
    for line in text.splitlines():
        name, *marks = [word.strip("[]") for word in line.split("#", 1)[0].split()] or [""]
        needing = [mark for mark in marks if not mark.startswith("!")]
        if name and f"!{suite}" not in marks and (not needing or suite in needing):
            names.append(name.replace("${ARCH}", arch))
    return tuple(names)


def read_versions(project_dir: Path) -> dict[str, str]:
    lines = (project_dir / "containers" / "versions.env").read_text().splitlines()
    pairs = (
        line.split("=", 1) for line in lines if "=" in line and not line.lstrip().startswith("#")
    )
    return {name.strip(): value.strip() for name, value in pairs}


HOST_KEY_ALIAS = "pagecage-guest"
"""The name of the guest's host key in known_hosts, independent of its port."""


@dataclass(frozen=True)
class GuestImage:
    """A finished image. Its directory exists only if it is complete."""

    directory: Path

    @property
    def key(self) -> str:
        return self.directory.name

    disk = FileBelow("root.img")  # raw ext4, never written to after the build
    kernel = FileBelow("vmlinuz")
    initrd = FileBelow("initrd.img")
    identity = FileBelow("id_ed25519")  # the private ssh key for the guest's accounts
    known_hosts = FileBelow("known_hosts")
    contents = FileBelow("contents.json")  # see ImageContents
    tree = FileBelow("root")  # the root file system during the build
    provisioned = FileBelow("fitted")  # the key of the roles applied before the first boot

    @property
    def small_files(self) -> tuple[Path, ...]:
        """The files next to the disk that a packed image has too."""
        return self.kernel, self.initrd, self.known_hosts, self.identity, self.provisioned


@dataclass(frozen=True)
class ImageContents:
    """The key of an image's base, its packages of experiments, and their script's hash."""

    base_key: str
    extra_packages: tuple[str, ...]
    installer: str | None

    def lacks(self, packages: Sequence[str]) -> list[str]:
        return [name for name in packages if name not in self.extra_packages]


def contents_of(recipe: ImageRecipe) -> ImageContents:
    packages = recipe.extra_packages
    installer = text_sha256(recipe.install_extra)[:16] if packages else None
    return ImageContents(recipe.base_key, packages, installer)


def read_contents(image: GuestImage) -> ImageContents:
    """Return the contents of an image. One without a description is its own base."""
    try:
        return from_json(ImageContents, json.loads(image.contents.read_text()))
    except (FileNotFoundError, ValueError, PagecageError):
        return ImageContents(image.key, (), None)


def write_contents(image: GuestImage, recipe: ImageRecipe) -> None:
    image.contents.write_text(json.dumps(to_json(contents_of(recipe))))


def find_image(images: Path, recipe: ImageRecipe) -> GuestImage | None:
    """Return the smallest image with the base and all packages of a recipe, or None."""
    wanted, fitting = contents_of(recipe), []
    for image in (GuestImage(path) for path in images.iterdir() if path.suffix != ".part"):
        contents = read_contents(image)
        is_same = contents.installer == wanted.installer or not recipe.extra_packages
        if contents.base_key == wanted.base_key and is_same:
            fitting += [] if contents.lacks(recipe.extra_packages) else [image]
    return min(fitting, key=lambda image: (allocated_bytes(image.disk), image.key), default=None)


PACKED_DISK = "root.img.xz"
FOLDER_VARIABLE = "PAGECAGE_PACKED_GUESTS"
"""Names a folder of packed images outside the checkout."""
_PRESET = 6
_FILTERS = {"x86_64": ["--x86"]}
"""Filters that make machine code of the guest compress better, by a tenth (xz(1))."""


def packed_directory(key: str) -> Path:
    """Return the path of the packed image of a recipe's key; it may be missing."""
    return Path(os.environ.get(FOLDER_VARIABLE) or BUILD / "guest") / key


def pack(image: GuestImage, packed: Path) -> None:
    """Pack an image with its private key into a new directory that all users may read."""
    packed.parent.mkdir(parents=True, exist_ok=True)
    filters = [*_FILTERS.get(target_machine(), []), f"--lzma2=preset={_PRESET}"]
    with whole_folder(packed) as part:
        for file in image.small_files:
            if file.exists():
                shutil.copyfile(file, part / file.name)
        _compress(["--compress", "--threads=0", *filters], image.disk, part / PACKED_DISK)
        for path in part.iterdir():
            path.chmod(0o644)


def unpack(packed: Path, image: GuestImage) -> None:
    """Make the disk and the files beside it from a packed image."""
    for file in image.small_files:
        if (packed / file.name).exists():
            shutil.copyfile(packed / file.name, file)
    _compress(["--decompress", "--threads=0"], packed / PACKED_DISK, image.disk)


def require_xz() -> None:
    if find_tool("xz") is None:
        reason = "xz is not installed; it packs the guest's image"
        raise HostError(reason, "apt-get install xz-utils")


def _compress(words: list[str], source: Path, target: Path) -> None:
    """Run xz(1), which leaves out the holes of a file that it writes."""
    run(
        ["sh", "-c", 'exec xz --stdout "$@" < "$SOURCE" > "$TARGET"', "sh", *words],
        env={"SOURCE": str(source), "TARGET": str(target)},
    )
