"""The inputs of the guest's image, and a key over them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from pagecage.digests import text_sha256
from pagecage.hosts.architecture import architecture
from pagecage.hosts.vm.image.archive import archive_of, require_architecture

IMAGE_VERSION = 1
"""Increased when the build makes a different image from the same inputs."""
ROOT_DISK_BYTES = 4 * 1024**3
_INTERPRETER = "#!/bin/sh\n"
KERNEL = "${KERNEL}"
"""Stands for the release of the installed kernel (`uname -r`) in names of packages."""


@dataclass(frozen=True)
class ImageRecipe:
    """A suite, an architecture, packages, and the script for the new root file system.

    `suite` is a release of Debian or Ubuntu. `extra_packages` are those of experiments, and
    `install_extra` is the script that installs them.
    """

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

    A `suite` of Debian or Ubuntu replaces that of containers/versions.env.

    Raises HostError on an architecture without a guest of this suite.
    """
    arch = architecture().debian
    guest = project_dir / "containers" / "guest"
    suite = suite or read_versions(project_dir)["GUEST_SUITE"]
    require_architecture(suite, arch)
    base = parse_packages((guest / "packages.txt").read_text(), arch, suite)
    return ImageRecipe(
        suite=suite,
        arch=arch,
        packages=base,
        customize=_customization(guest, suite),
        extra_packages=tuple(sorted(set(packages) - set(base))),
        install_extra=(guest / "install-extra.sh").read_text(),
    )


def _customization(guest: Path, suite: str) -> str:
    """Return the script for a new root file system, with the part for its distribution alone."""
    own = guest / f"customize-{archive_of(suite).distribution.lower()}.sh"
    parts = (guest / "customize.sh", *([own] if own.exists() else []))
    return _INTERPRETER + "".join(part.read_text().removeprefix(_INTERPRETER) for part in parts)


def parse_packages(text: str, arch: str, suite: str) -> tuple[str, ...]:
    """Return the package names of a list with one per line.

    `#` begins a comment. `[!SUITE]` marks a package that SUITE does not have, `[SUITE]` one that
    only SUITE needs.
    """
    lines = (line.split("#", 1)[0].split() for line in text.splitlines())
    return tuple(
        words[0].replace("${ARCH}", arch)
        for words in lines
        if words and _is_for(suite, [word.strip("[]") for word in words[1:]])
    )


def _is_for(suite: str, marks: list[str]) -> bool:
    """Return whether a package with these marks is for a suite."""
    named = [mark for mark in marks if not mark.startswith("!")]
    return f"!{suite}" not in marks and (not named or suite in named)


def read_versions(project_dir: Path) -> dict[str, str]:
    """Return the settings of containers/versions.env."""
    lines = (project_dir / "containers" / "versions.env").read_text().splitlines()
    pairs = (
        line.split("=", 1) for line in lines if "=" in line and not line.lstrip().startswith("#")
    )
    return {name.strip(): value.strip() for name, value in pairs}
