"""A newcomer's machine: a clean root file system, an ordinary user, and a new clone of the
committed state.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pagecage.process import Completed, run
from tests.ansible.hosts import MEMORY
from tests.tree import ROOT

ENTER = ROOT / "tests/newcomer/enter"
BASES = ROOT / "tests/newcomer/bases"
KEPT = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pagecage-tests"
"""Root file systems and downloads, for all cases and sessions."""
CAN_PIVOT = pytest.mark.skipif(
    os.geteuid() != 0
    or not re.search(r"(?m)^(\S+ ){4}/ ", Path("/proc/self/mountinfo").read_text()),
    reason="pivot_root(2) is root's, and the root of a chroot is no mount point",
)
USER, UID = "new", 1000
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games"
"""Debian's default PATH of an ordinary user."""
INSTALL = "apt-get -q update && apt-get -q install -y --no-install-recommends"
NOEXEC = 'mount -t tmpfs -o noexec,mode=1777 tmp "$root/tmp"'
NO_PROGRAM_IN_TMP = (
    "printf '#!/bin/sh\\n' >/tmp/program && chmod 755 /tmp/program && ! /tmp/program 2>/dev/null"
)
"""A command that succeeds only after NOEXEC."""
NETWORK = (
    *("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
    *("PIP_INDEX_URL", "PIP_TRUSTED_HOST", "UV_DEFAULT_INDEX", "UV_INDEX_URL"),
)
"""Variables by which this machine reaches its package sources."""


@dataclass(frozen=True)
class Machine:
    """A root file system that one case changes: `folder` receives the writes, `lower` is the
    initial state.
    """

    folder: Path
    lower: str
    user: str = USER
    home: str = f"/home/{USER}"
    checkout: str = f"/home/{USER}/pagecage"
    variables: Mapping[str, str] = field(default_factory=dict)

    def argv(self, command: str, user: str, **variables: str) -> list[str]:
        """Return the command that runs a shell command in the checkout."""
        network = {name: os.environ[name] for name in NETWORK if name in os.environ}
        who = {"HOME": self.home, "USER": user, "LOGNAME": user, "SHELL": "/bin/sh"}
        given = {**who, "PATH": PATH, "LANG": "C.UTF-8", **network, **self.variables, **variables}
        values = (f"{name}={value}" for name, value in given.items() if value)
        clean = ["/usr/bin/env", "-i", *values]
        inside = f"cd {shlex.quote(self.checkout)} && {command}"
        return [str(ENTER), str(self.folder), self.lower, user, *clean, "/bin/sh", "-c", inside]

    def settings(self, prepare: str = "") -> dict[str, str]:
        """Return the environment of `enter`: root's commands beforehand, and the shared folders."""
        shared = " ".join(f"{ours}={theirs}" for ours, theirs in downloads().items())
        return {"PREPARE": prepare, "SHARED": shared}

    def run(
        self,
        command: str,
        *,
        prepare: str = "",
        user: str = "",
        seconds: float = 900,
        **variables: str,
    ) -> Completed:
        """Run a command in the checkout to its end, whatever its status."""
        argv = self.argv(command, user or self.user, **variables)
        return run(argv, env=self.settings(prepare), check=False, timeout_seconds=seconds)

    def root(self, command: str) -> None:
        """Change the machine as its administrator. Raises PagecageError if that fails."""
        run(self.argv(f"cd / && {command}", "root"), env=self.settings(), timeout_seconds=900)


def downloads() -> dict[Path, str]:
    """Return the folders in which downloads are kept for the next case."""
    places = {name: KEPT / "downloads" / name for name in ("archives", "uv", "pip", "crates")}
    for name, path in places.items():
        path.mkdir(parents=True, exist_ok=True)
        if name != "archives":
            os.chown(path, UID, UID)
    return {
        places["archives"]: "/var/cache/apt/archives",
        places["uv"]: f"/home/{USER}/.cache/uv",
        places["pip"]: f"/home/{USER}/.cache/pip",
        places["crates"]: f"/home/{USER}/.cargo/registry",
    }


def base(name: str) -> str:
    """Return the layers of a root file system (tests/newcomer/bases), made if they are not
    cached.
    """
    return run([BASES, name, KEPT / "roots"], timeout_seconds=1800).stdout.strip()


@contextmanager
def machine(name: str, checkout: str = f"/home/{USER}/pagecage") -> Iterator[Machine]:
    """Yield a new machine with a clone of HEAD in the user's home; remove it at the end."""
    # Writes above this machine's own root are kept in memory: overlayfs refuses a layer that is
    # part of another.
    cases = MEMORY if name == "host" else KEPT / "cases"
    cases.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=cases, prefix="newcomer-"))
    try:
        new = Machine(folder, base(name), str(UID) if name == "host" else USER, checkout=checkout)
        home = folder / "upper" / new.home.lstrip("/")
        for name in (".cache/uv", ".cache/pip", ".cargo/registry"):
            (home / name).mkdir(parents=True)
        run(["chown", "-R", f"{UID}:{UID}", home])
        clone(folder / "upper", checkout)
        yield new
    finally:
        shutil.rmtree(folder)


def clone(upper: Path, checkout: str) -> None:
    """Clone the committed state; the clone belongs to the user."""
    place = upper / checkout.lstrip("/")
    run(["git", "clone", "--quiet", "--no-hardlinks", ROOT, place])
    run(["chown", "-R", f"{UID}:{UID}", place])


def printed(done: Completed) -> str:
    """Format all its output, for the message of an assertion."""
    return f"{done.stdout}\n{done.stderr}"[-6000:]


def words(*commands: Sequence[str]) -> str:
    """Return a shell command that runs these one after the other while they succeed."""
    return " && ".join(map(shlex.join, commands))
