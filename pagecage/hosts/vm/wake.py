"""The first command in a restored guest: sets its clock, gives it fresh random numbers, mounts the data disk."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from pagecage.errors import HostError
from pagecage.hosts.ssh import SshTarget, ssh_argv
from pagecage.process import PIPE, spawn

SEED_BYTES = 64
_SCRIPT = Path(__file__).with_name("wake.sh")


@dataclass(frozen=True)
class Woken:
    """What the guest said: how far its clock may be off, how often it noticed a new vmgenid, where the data are."""

    clock_error_seconds: float
    vm_fork_notices: int
    data_device: str


def wake(root: SshTarget, user: str, data_dir: str, spool_dir: str) -> Woken:
    """Wake a restored guest as root, with directories that `user` measures in. Raises HostError with its reason."""
    argv = ssh_argv(root, ["sh", "-c", _SCRIPT.read_text(), "wake", user, data_dir, spool_dir])
    process = spawn(argv, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    assert process.stdout is not None and process.stdin is not None  # both were asked for
    greeting = process.stdout.readline()
    told_unix_seconds = time.time()
    if greeting == b"awake\n":
        process.stdin.write(f"{told_unix_seconds:.6f} {os.urandom(SEED_BYTES).hex()}\n".encode())
    output, errors = process.communicate()
    lines = output.decode().splitlines()
    if process.returncode != 0 or len(lines) != 3:
        reason = errors.decode(errors="replace").strip().splitlines()[-1:] or ["it gave no reason"]
        raise HostError(f"the restored guest did not wake: {reason[0]}", "pagecage host rebuild vm")
    return Woken(abs(float(lines[0]) - told_unix_seconds), int(lines[1]), lines[2])
