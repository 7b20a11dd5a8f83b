"""Prints the state of a guest as a list of texts. It runs there, by itself."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

_SPOOL = Path("/dev/shm/pagecage")
_SESSIONS = re.compile(r"session-|user@|user-\d|user-runtime-dir@|run-user")
_OF_THE_SYSTEM = ("sshd", "(sd-pam)", "systemd", "/lib/systemd", "/usr/lib/systemd", "-bash")
_RUN = re.compile(r"\d{8}T\d{6}Z-[a-z-]+")
"""A run's name. The spool keeps a copy of the records of each run."""
_SETTINGS = (
    *("sys/block/*/queue/read_ahead_kb", "sys/block/*/queue/scheduler"),
    *("sys/block/*/queue/nr_requests", "sys/block/*/queue/wbt_lat_usec", "proc/sys/vm/dirty*"),
    *("proc/sys/vm/nr_hugepages", "proc/sys/vm/swappiness"),
)
_DROP_INS = ("run/systemd/system.control", "run/systemd/transient", "etc/systemd/system.control")


def processes() -> Iterator[str]:
    """Yield command lines, without this process's, its parents', sshd's and systemd's own."""
    own, pid = set(), os.getpid()
    while pid > 1:
        own.add(pid)
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    for path in Path("/proc").glob("[0-9]*"):
        try:
            line = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
        except OSError:
            continue
        if line and int(path.name) not in own and not line.startswith(_OF_THE_SYSTEM):
            yield f"process {line[:100]}"


def cgroups() -> Iterator[str]:
    """Yield the cgroups, without those of login sessions."""
    top = Path("/sys/fs/cgroup")
    found = (path.relative_to(top).as_posix() for path in top.rglob("*") if path.is_dir())
    yield from (f"cgroup {name}" for name in found if not _SESSIONS.search(name))


def mounts() -> Iterator[str]:
    """Yield mount points with their file systems, and loop devices that have a file."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        source, place, kind = line.split()[:3]
        if not _SESSIONS.search(place) and not place.startswith("/run/user"):
            yield f"mount {source} {place} {kind}"
    yield from (
        f"loop {path.read_text().strip()}" for path in _glob("sys/block/loop*/loop/backing_file")
    )


def sockets() -> Iterator[str]:
    """Yield unix sockets with a name below the spool or /tmp, and listening TCP ports."""
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        name = line.split()[7:]
        if name and name[0].startswith(("/dev/shm", "/tmp")):
            yield f"socket {name[0]}"
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[3] == "0A":
            yield f"port {int(words[1].split(':')[1], 16)}"


def settings() -> Iterator[str]:
    """Yield the disks' and the kernel's settings that a trial may change."""
    for pattern in _SETTINGS:
        yield from (f"setting {path} {path.read_text().strip()}" for path in _glob(pattern))


def units_and_files() -> Iterator[str]:
    """Yield systemd's units and drop-ins of pagecage, the files of the spool, and a lock on it."""
    argv = ["systemctl", "list-units", "--all", "--plain", "--no-legend", "pagecage*"]
    listed = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    yield from (f"unit {line.split()[0]}" for line in listed.splitlines())
    for folder in _DROP_INS:
        names = (path.name for path in _glob(f"{folder}/*"))
        yield from (f"drop-in {name}" for name in names if not _SESSIONS.search(name))
    for top in (_SPOOL, Path("/tmp"), Path("/data")):
        files = {_RUN.sub("RUN", str(path)) for path in top.rglob("*")}
        yield from (f"file {name}" for name in sorted(files) if "systemd" not in name)
    lock = _SPOOL / "lock"
    if lock.exists() and subprocess.run(["flock", "-n", lock, "true"], check=False).returncode:
        yield "lock of the spool"


def _glob(pattern: str) -> Iterator[Path]:
    return Path("/").glob(pattern)


if __name__ == "__main__":
    parts = (processes(), cgroups(), mounts(), sockets(), settings(), units_and_files())
    print(json.dumps([text for part in parts for text in part]))
