"""The state of the guest and of the machine around it, in which a forgotten part shows.

It has processes, cgroups, mounts, sockets, settings and files. An unharmed run leaves a certain
state; what a resumed run leaves beyond it was forgotten.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from pagecage.hosts.ssh import SshTarget, ssh_argv
from pagecage.hosts.vm.cache import GuestCache, is_held
from pagecage.hosts.vm.qemu import sockets_dir
from pagecage.process import run
from reliability.guest_kills import guest_state

_CHANGING = ("qemu.log", "console.log", "provision.log")
State = Counter[str]


def state_in_guest(target: SshTarget) -> State:
    """Return the state of the guest. Raises PagecageError if it does not answer."""
    program = Path(guest_state.__file__).read_text()
    done = run(ssh_argv(target, ["python3", "-c", program]), timeout_seconds=90)
    return Counter(json.loads(done.stdout))


def state_outside(cache: GuestCache, folder: Path) -> State:
    """Return what the controller's machine has for the guest and for the run in `folder`."""
    return Counter((*_files(cache), *_processes(folder), *_parts(folder)))


def _files(cache: GuestCache) -> Iterator[str]:
    if is_held(cache.lock_file):
        yield "lock of the guest"
    sockets = sockets_dir(cache)
    for path in (cache.guest_file, *sockets.glob("*"), *cache.scratch.glob("*")):
        if path.exists() and path.name not in _CHANGING:
            yield f"file {path.name}"
    yield from (f"file {path.name}" for path in cache.root.rglob("*.part"))


def _parts(folder: Path) -> Iterator[str]:
    yield from (f"file {path.name}" for path in folder.rglob("*.part*"))
    yield from (f"file {path.name}" for path in (folder / "runs").glob(".*"))


def _processes(folder: Path) -> Iterator[str]:
    mark = f"PAGECAGE_RUNS={folder}".encode()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "environ").read_bytes().split(b"\0")
            name = (path / "comm").read_text().strip()
        except OSError:
            continue
        if any(word.startswith(mark) for word in words) and int(path.name) != os.getpid():
            yield f"process {name}"
