"""The package archives that guests are made from, and the keyrings that verify them."""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from pagecage.errors import HostError, PagecageError
from pagecage.process import run, search_path

KEYRINGS = Path("/usr/share/keyrings")
_KEYRING_SUITE = "trixie"
"""The Debian release with the keyrings of other archives. Debian 12 does not have Ubuntu's."""
_KEYRING_SECONDS = 300


@dataclass(frozen=True)
class PackageArchive:
    """A distribution's archive: its keyring's package, and the architectures of its mirror.

    `sources` are lines of sources.list(5) for a suite; without any, mmdebstrap has its own.
    """

    distribution: str
    keyring_package: str
    sources: tuple[str, ...] = ()
    architectures: frozenset[str] = frozenset({"amd64", "arm64"})

    def sources_of(self, suite: str) -> tuple[str, ...]:
        """Return the lines of sources.list(5) for a suite."""
        return tuple(line.format(suite=suite) for line in self.sources)


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
    """Return the archive's keyring on this machine, or None."""
    paths = (KEYRINGS / f"{archive.keyring_package}{suffix}" for suffix in (".gpg", ".pgp"))
    return next((path for path in paths if path.is_file()), None)


def debian_keyring() -> Path:
    """Return the keyring of Debian's archive.

    mmdebstrap finds it by itself only with gpg, which Ubuntu does not install. Raises HostError if
    there is none.
    """
    if keyring := installed_keyring(DEBIAN):
        return keyring
    raise HostError(f"the keyring of Debian's archive is not in {KEYRINGS}", "make setup")


@contextmanager
def usable_keyring(archive: PackageArchive, folder: Path) -> Iterator[Path]:
    """Yield an archive's keyring: the installed one, or that of Debian's package, in `folder`.

    Debian's keyring verifies the package. `folder` must be readable for apt's own user and for root
    of a user namespace. Raises HostError if there is no keyring and the package cannot be had.
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
        run(_extraction_argv(archive, packed), timeout_seconds=_KEYRING_SECONDS, env=env)
        _extract(packed, keyring)
    except (PagecageError, OSError, KeyError, tarfile.TarError) as error:
        raise HostError(
            f"the keyring of {archive.distribution}'s archive is not in {KEYRINGS}, and Debian's"
            f" package of it could not be had: {getattr(error, 'message', error)}",
            f"sudo apt-get install {archive.keyring_package}",
        ) from None
    return keyring


def _extraction_argv(archive: PackageArchive, packed: Path) -> list[str]:
    return [
        "mmdebstrap",
        "--quiet",
        "--mode=root" if os.geteuid() == 0 else "--mode=unshare",
        "--variant=extract",
        "--format=tar",
        f"--include={archive.keyring_package}",
        f"--keyring={debian_keyring()}",
        _KEYRING_SUITE,
        str(packed),
    ]


def _extract(packed: Path, keyring: Path) -> None:
    with tarfile.open(packed) as tar:
        member = tar.extractfile(f"./usr/share/keyrings/{keyring.name}")
        if member is None:
            raise KeyError(f"{keyring.name} is not a file")
        with keyring.open("wb") as out:
            shutil.copyfileobj(member, out)
    keyring.chmod(0o644)
