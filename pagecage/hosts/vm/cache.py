"""Where the vm host keeps things: everything below one directory of the user's cache, nothing anywhere else."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

PROJECT_DIR = Path(__file__).resolve().parents[3]
"""The checkout: the guest is made from `containers/` and fitted by `ansible/` of the same version as this code."""


@dataclass(frozen=True)
class Cache:
    """The vm host's directory and the names in it."""

    root: Path

    @classmethod
    def of_user(cls) -> Cache:
        """The directory that the XDG Base Directory Specification gives us: $XDG_CACHE_HOME, or ~/.cache."""
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return cls(Path(base) / "pagecage" / "vm")

    @property
    def images(self) -> Path:
        """One directory an image, named by the key of what went into it."""
        return self.root / "images"

    @property
    def states(self) -> Path:
        """One directory a saved machine state, named by its key."""
        return self.root / "states"

    @property
    def data_disk(self) -> Path:
        """The raw file behind the guest's data disk; kept between runs, so that datasets are."""
        return self.root / "data.raw"

    @property
    def lock_file(self) -> Path:
        """Held with flock(2) by whoever uses the guest."""
        return self.root / "lock"

    @property
    def guest_file(self) -> Path:
        """Which guest runs now: its process, its port, its sockets."""
        return self.root / "guest.json"

    @property
    def acceleration_file(self) -> Path:
        """What the trial boot said about KVM on this host."""
        return self.root / "acceleration.json"

    @property
    def scratch(self) -> Path:
        """Logs and the overlays that QEMU throws away; on the same disk as the images, because they grow."""
        return self.root / "scratch"

    def make(self) -> None:
        """Create the directories. Others may not look in: the keys to the guest lie here."""
        for path in (self.root, self.images, self.states, self.scratch):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
