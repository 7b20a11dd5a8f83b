"""The files of a finished image of the guest."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

HOST_KEY_ALIAS = "pagecage-guest"
"""The name of the guest's host key in known_hosts, independent of its port."""


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
    def contents(self) -> Path:
        """A file with the key of the base image and the packages of experiments (contents.py)."""
        return self.directory / "contents.json"

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
