"""Programs of this machine that make and run the guest, record trials and serve volumes.

The Ansible role `controller` installs them. Only the standard library is imported, because
tools/prepare-controller runs it before pagecage's own packages are installed.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from pagecage.ansible import Playbook, TaskEvent, run_to_end
from pagecage.checkout import BUILD, TOP
from pagecage.errors import HostError
from pagecage.linux.processes import tree
from pagecage.linux.procfs import name_of
from pagecage.process import find_tool
from pagecage.units import format_bytes


def require_tools(*names: str) -> None:
    missing = [name for name in names if find_tool(name) is None]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise HostError(f"{', '.join(missing)} {verb} not installed; the vm needs it", "make setup")


def require_free_space(directory: Path, needed_bytes: int, purpose: str) -> None:
    """Raise HostError if the disk of `directory` has less free space than needed."""
    free_bytes = shutil.disk_usage(directory).free
    if free_bytes < needed_bytes:
        raise HostError(
            f"{directory} has {format_bytes(free_bytes)} free; {purpose} needs"
            f" {format_bytes(needed_bytes)}",
            "free some space, or set XDG_CACHE_HOME to a directory on a larger disk",
        )


_PR_SET_CHILD_SUBREAPER = 36  # prctl(2)
_PACKAGE_MANAGERS = {"apt-get", "dnf", "dnf5", "pacman", "zypper", "apk"}


def install_programs(purposes: Sequence[str], listener: Callable[[TaskEvent], None]) -> None:
    """Install what is missing for the purposes of the role.

    Raises HostError with the command to run as root if this user may not install packages. On
    Ctrl-C it interrupts the package manager, and waits for it: Ansible's workers have sessions of
    their own, which Ctrl-C does not reach.
    """
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    words = ("-e", json.dumps({"controller_purposes": list(purposes)}))
    inventory = TOP / "ansible/inventory/localhost.yml"
    playbook = Playbook(TOP, "controller.yml", inventory, BUILD / "ansible", words)
    try:
        error = run_to_end(playbook, listener)["localhost"].error(playbook.log)
    except KeyboardInterrupt:
        # One that runs as another user, by sudo, continues.
        for pid in tree(os.getpid()):
            if name_of(pid) in _PACKAGE_MANAGERS:
                with suppress(PermissionError, ProcessLookupError):
                    os.kill(pid, signal.SIGINT)
        with suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)
        raise
    if error is not None:
        raise HostError(error.message.removeprefix("localhost: "), error.hint)
