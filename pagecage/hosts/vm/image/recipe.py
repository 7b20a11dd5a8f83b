"""The inputs of the guest's image, and a key over them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from pagecage.digests import text_sha256
from pagecage.hosts.architecture import architecture

IMAGE_VERSION = 1
"""Increased when the build makes a different image from the same inputs."""
ROOT_DISK_BYTES = 4 * 1024**3


@dataclass(frozen=True)
class ImageRecipe:
    """A Debian suite, an architecture, packages, and the script for the new root file system.

    `extra_packages` are those of experiments, and `install_extra` is the script that installs them.
    """

    suite: str
    arch: str
    packages: tuple[str, ...]
    customize: str
    extra_packages: tuple[str, ...] = ()
    install_extra: str = ""

    @property
    def base_key(self) -> str:
        """The key of the recipe without the packages of experiments."""
        return replace(self, extra_packages=(), install_extra="").key

    @property
    def key(self) -> str:
        """Sixteen hexadecimal digits over all inputs except the ssh keys, which are random."""
        parts = (
            str(IMAGE_VERSION),
            str(ROOT_DISK_BYTES),
            self.suite,
            self.arch,
            *self.packages,
            self.customize,
            *((self.install_extra, *self.extra_packages) if self.extra_packages else ()),
        )
        return text_sha256("\0".join(parts))[:16]


def read_recipe(
    project_dir: Path, suite: str | None = None, packages: Iterable[str] = ()
) -> ImageRecipe:
    """Return the recipe of the checkout, with the packages of an experiment.

    A Debian `suite` replaces that of containers/versions.env.

    Raises HostError on an architecture without a guest.
    """
    arch = architecture().debian
    guest = project_dir / "containers" / "guest"
    suite = suite or read_versions(project_dir)["GUEST_SUITE"]
    base = parse_packages((guest / "packages.txt").read_text(), arch, suite)
    return ImageRecipe(
        suite=suite,
        arch=arch,
        packages=base,
        customize=(guest / "customize.sh").read_text(),
        extra_packages=tuple(sorted(set(packages) - set(base))),
        install_extra=(guest / "install-extra.sh").read_text(),
    )


def parse_packages(text: str, arch: str, suite: str) -> tuple[str, ...]:
    """Return the package names of a list with one per line.

    `#` begins a comment. `[!SUITE]` marks a package that SUITE does not have.
    """
    lines = (line.split("#", 1)[0].split() for line in text.splitlines())
    return tuple(
        words[0].replace("${ARCH}", arch) for words in lines if words and f"[!{suite}]" not in words
    )


def read_versions(project_dir: Path) -> dict[str, str]:
    """Return the settings of containers/versions.env."""
    lines = (project_dir / "containers" / "versions.env").read_text().splitlines()
    pairs = (
        line.split("=", 1) for line in lines if "=" in line and not line.lstrip().startswith("#")
    )
    return {name.strip(): value.strip() for name, value in pairs}
