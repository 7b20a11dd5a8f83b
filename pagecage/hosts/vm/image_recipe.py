"""What the guest's image is made from, and the key that changes when any of it does."""

from __future__ import annotations

import hashlib
import platform
from dataclasses import dataclass
from pathlib import Path

from pagecage.errors import HostError

IMAGE_VERSION = 1
"""Raised when image.py makes something else out of the same files."""
ROOT_DISK_BYTES = 4 * 1024**3
_DEBIAN_ARCH = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class ImageRecipe:
    """A Debian suite, an architecture, the packages and the script that runs in the new root file system."""

    suite: str
    arch: str
    packages: tuple[str, ...]
    customize: str

    @property
    def key(self) -> str:
        """Sixteen hexadecimal digits over all that goes into the image (the ssh keys, which are random, apart)."""
        parts = (str(IMAGE_VERSION), str(ROOT_DISK_BYTES), self.suite, self.arch, *self.packages, self.customize)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def read_recipe(project_dir: Path, suite: str | None = None) -> ImageRecipe:
    """The recipe as the checkout has it, of another Debian `suite` if one is named.

    Raises HostError on an architecture for which there is no guest.
    """
    arch = _DEBIAN_ARCH.get(platform.machine())
    if arch is None:
        raise HostError(f"there is no guest for {platform.machine()}", "run on x86-64 or arm64, or HOST=local")
    guest = project_dir / "containers" / "guest"
    suite = suite or read_versions(project_dir)["GUEST_SUITE"]
    return ImageRecipe(
        suite=suite,
        arch=arch,
        packages=parse_packages((guest / "packages.txt").read_text(), arch, suite),
        customize=(guest / "customize.sh").read_text(),
    )


def parse_packages(text: str, arch: str, suite: str) -> tuple[str, ...]:
    """The package names of a list with one a line; `#` begins a comment, `[!SUITE]` ends one that SUITE lacks."""
    lines = (line.split("#", 1)[0].split() for line in text.splitlines())
    return tuple(words[0].replace("${ARCH}", arch) for words in lines if words and f"[!{suite}]" not in words)


def read_versions(project_dir: Path) -> dict[str, str]:
    """The settings of containers/versions.env."""
    lines = (project_dir / "containers" / "versions.env").read_text().splitlines()
    pairs = (line.split("=", 1) for line in lines if "=" in line and not line.lstrip().startswith("#"))
    return {name.strip(): value.strip() for name, value in pairs}
