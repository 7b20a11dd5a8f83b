"""One call that waits for the supervisor: its process, its target, and a name that is the same in
every execution.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from reliability.faults import system_calls as calls
from tests.tree import ROOT

NOTIFICATION = struct.Struct("<QIIiIQ6Q")
"""struct seccomp_notif: id, pid, flags; and seccomp_data: nr, arch, instruction, arguments."""
_PATH_ARGUMENTS: Mapping[str, tuple[int | None, int]] = (
    dict.fromkeys(("rename", "unlink", "rmdir", "mkdir", "truncate", "chmod", "open"), (None, 0))
    | dict.fromkeys(("unlinkat", "mkdirat", "fchmodat", "utimensat", "openat"), (0, 1))
    | dict.fromkeys(("renameat", "renameat2", "linkat", "move_mount"), (2, 3))
    | {"link": (None, 1), "symlink": (None, 1), "symlinkat": (1, 2), "execve": (None, 0)}
    | {"rename": (None, 1), "execveat": (0, 1), "mount": (None, 1), "umount2": (None, 0)}
)
"""The arguments with the folder's descriptor and with the path; of two paths the second."""
_CHANGING = (
    (re.compile(r"\d{8}T\d{6}Z"), "TIME"),
    (re.compile(r"(?<=^/tmp/)[a-z0-9_]{8}(?=/|$)"), "RANDOM"),
    (re.compile(r"(?<=[a-z]-)(?=[a-z0-9_]*[0-9_])[a-z0-9_]{8}(?=/|$)"), "RANDOM"),
    (re.compile(r"(?<=/tmp)[a-z0-9_]{8}(?=/|$)"), "RANDOM"),
    (re.compile(r"\d{3,}"), "N"),
    (re.compile(r"[0-9a-f]{16,}"), "HASH"),
)


@dataclass(frozen=True)
class Call:
    """A stopped call. `pid` is the thread, `target` the path or the kind of descriptor."""

    cookie: int
    pid: int
    name: str
    arguments: tuple[int, ...]
    target: str

    @property
    def is_stream(self) -> bool:
        return self.target in ("pipe", "socket")


def read_call(raw: bytes, root: Path) -> Call:
    """Return the call of a notification; paths below `root` are relative to it."""
    cookie, pid, _, number, _, _, *arguments = NOTIFICATION.unpack(raw)
    name = calls.NAMES[number]
    target = normalise(_target(pid, name, arguments), root)
    return Call(cookie, pid, name, tuple(arguments), target)


def normalise(text: str, root: Path) -> str:
    """Return a path without what differs between executions."""
    text = text.replace(str(root), "").replace(str(ROOT), "/TREE")
    if text.startswith(("pipe:", "socket:", "anon_inode")):
        return text.partition(":")[0]
    for pattern, name in _CHANGING:
        text = pattern.sub(name, text)
    return text


def _target(pid: int, name: str, arguments: list[int]) -> str:
    if place := _PATH_ARGUMENTS.get(name):
        folder, path = place
        text = read_string(pid, arguments[path])
        if text.startswith("/") or name in calls.EXECS:
            return text
        descriptor = arguments[folder] & 0xFFFFFFFF if folder is not None else 0xFFFFFF9C
        where = "cwd" if descriptor == 0xFFFFFF9C else f"fd/{descriptor}"  # AT_FDCWD
        return f"{_link(pid, where)}/{text}"
    if name in calls.FORKS:
        flags = arguments[0] if name == "clone" else 0
        if name == "clone3":
            flags = int.from_bytes(_memory(pid, arguments[0], 8), "little")
        return "thread" if flags & 0x10000 else "process"
    if name in calls.SIGNALS:
        return f"signal {arguments[1]}"
    return _link(pid, f"fd/{arguments[0] & 0xFFFFFFFF}")


def _link(pid: int, name: str) -> str:
    try:
        return str(Path(f"/proc/{pid}/{name}").readlink())
    except OSError:
        return "gone"


def _memory(pid: int, address: int, size: int) -> bytes:
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        memory.seek(address)
        return memory.read(size)


def read_string(pid: int, address: int) -> str:
    """Return the string at an address of another process; empty if it cannot be read."""
    found = b""
    while b"\0" not in found and len(found) < 8192:
        size = 256 - (address + len(found)) % 256
        try:
            found += _memory(pid, address + len(found), size)
        except OSError:
            break
    return found.partition(b"\0")[0].decode(errors="replace")


def written_bytes(call: Call) -> bytes:
    """Return the bytes that a write would write; only the first part of a vector."""
    if call.name in ("write", "pwrite64", "sendto"):
        return _memory(call.pid, call.arguments[1], call.arguments[2])
    if call.name in ("writev", "pwritev"):
        base, length = struct.unpack("<QQ", _memory(call.pid, call.arguments[1], 16))
        return _memory(call.pid, base, length)
    return b""


def thread_group(pid: int) -> int:
    """Return the process of a thread; the thread itself if it has ended."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return pid
    return int(text.partition("\nTgid:")[2].split()[0])


def command_line(pid: int) -> str:
    """Return the command line of a process, or an empty text."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return words.replace(b"\0", b" ").decode("utf-8", "replace")
