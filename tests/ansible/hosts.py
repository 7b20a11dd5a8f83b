"""Real root file systems and blank disks for the roles, made and removed by the test."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pagecage.ansible import HostResult, Playbook, run_to_end
from pagecage.process import run
from tests.tree import ROOT

ROOTFS = ROOT / "tests/ansible/rootfs"
MEMORY = Path("/dev/shm")
HOST = "rootfs"
FOR_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="chroot, mount and loop devices are root's")


@contextmanager
def root_file_system(suite: str) -> Iterator[Path]:
    """Yield a fresh one of a distribution's release."""
    place = Path(tempfile.mkdtemp(prefix="pagecage-", dir=MEMORY))
    try:
        run([ROOTFS, "make", suite, place / "root"], timeout_seconds=900)
        yield place / "root"
    finally:
        run([ROOTFS, "end", place / "root"])
        place.rmdir()


@contextmanager
def disk(directory: Path, mebibytes: int = 160) -> Iterator[str]:
    """Yield the name of a blank disk: a sparse file behind a loop device."""
    image = directory / "disk"
    with image.open("wb") as file:
        file.truncate(mebibytes << 20)
    device = run(["losetup", "--find", "--show", "--partscan", image]).stdout.strip()
    try:
        yield device
    finally:
        run(["losetup", "--detach", device])
        image.unlink()


def by_chroot(root: Path, **settings: Any) -> dict[str, Any]:
    """Return the variables of a host that is a folder of this machine."""
    return {
        "ansible_connection": "pagecage_chroot",
        "ansible_host": str(root),
        "ansible_user": "root",
        "pagecage_data_dir": "/srv/pagecage",
        "inspection_running": False,
        **settings,
    }


def played(
    scratch: Path, variables: dict[str, Any], playbook: str = "site.yml", *words: str
) -> HostResult:
    """Run a playbook of the project; return how it ended on one host."""
    inventory = scratch / "hosts.json"
    inventory.write_text(json.dumps({"all": {"hosts": {HOST: variables}}}))
    return run_to_end(Playbook(ROOT, playbook, inventory, scratch, words))[HOST]


def refusal(scratch: Path, variables: dict[str, Any], *words: str) -> tuple[str, str]:
    """Return the sentence and the fix with which provisioning is refused."""
    end = played(scratch, variables, "site.yml", *words)
    assert end.changed == 0
    error = end.error(scratch / "site.log")
    assert error is not None, "it was not refused"
    assert "\n" not in error.message
    return error.message, error.hint
