"""Where the vm host keeps things: everything below one directory of the user's cache, nothing anywhere else."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from pagecage.errors import HostError, PagecageError

PROJECT_DIR = Path(__file__).resolve().parents[3]
"""The checkout: the guest is made from `containers/` and fitted by `ansible/` of the same version as this code."""


DEFAULT_NAME = "vm"
"""The guest that HOST=vm means."""
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,29}")


def _base() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pagecage"


def known_caches() -> list[Cache]:
    """The caches of all guests that were ever made by this user, by name."""
    found = [path for path in _base().glob(f"{DEFAULT_NAME}*") if (path / "images").is_dir()]
    return [Cache(path) for path in sorted(found)]


@dataclass(frozen=True)
class Cache:
    """The vm host's directory and the names in it."""

    root: Path

    @classmethod
    def of_user(cls, name: str = DEFAULT_NAME) -> Cache:
        """The directory that the XDG Base Directory Specification gives us: $XDG_CACHE_HOME, or ~/.cache.

        A guest of another name has everything to itself: image, saved states, data disk, lock. Raises PagecageError for
        a name that is no word.
        """
        if not _NAME.fullmatch(name):
            raise PagecageError(f"{name!r} is no name for a guest", "use letters, digits and dashes")
        return cls(_base() / (DEFAULT_NAME if name == DEFAULT_NAME else f"{DEFAULT_NAME}-{name}"))

    @property
    def name(self) -> str:
        """The guest's name."""
        return self.root.name.removeprefix(f"{DEFAULT_NAME}-")

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
        """Create the directories. Others may not look in: the keys to the guest lie here.

        Raises HostError where they cannot be made.
        """
        for path in (self.root, self.images, self.states, self.scratch):
            try:
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                mend = "set XDG_CACHE_HOME to a folder that can be written"
                raise HostError(f"{path} cannot be made: {error.strerror}", mend) from None
