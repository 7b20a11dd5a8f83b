"""System calls that change something, by the machine's numbers, and the filter that reports them.

The kernel stops a process at each such call and asks a supervisor (seccomp_unotify(2)). It does so
for every program and library, so that no call is missed, however it was made.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Iterator, Mapping

WRITES = ("write", "pwrite64", "writev", "pwritev", "sendto", "sendmsg", "sendfile")
COPIES = ("copy_file_range",)
SYNCS = ("fsync", "fdatasync", "sync_file_range")
RENAMES = ("rename", "renameat", "renameat2")
REMOVALS = ("unlink", "unlinkat", "rmdir")
FOLDERS = ("mkdir", "mkdirat", "symlink", "symlinkat", "link", "linkat")
CHANGES = ("truncate", "ftruncate", "fallocate", "chmod", "fchmod", "fchmodat", "utimensat")
FORKS = ("fork", "vfork", "clone", "clone3")
EXECS = ("execve", "execveat")
MOUNTS = ("mount", "umount2", "move_mount")
LOCKS = ("flock",)
SOCKETS = ("connect", "bind")
SIGNALS = ("kill", "pidfd_send_signal")
OPENS = ("open", "openat")
_X86_64 = """
    write 1, pwrite64 18, writev 20, pwritev 296, sendto 44, sendmsg 46, sendfile 40,
    copy_file_range 326, fsync 74, fdatasync 75, sync_file_range 277, rename 82,
    renameat 264, renameat2 316, unlink 87, unlinkat 263, rmdir 84, mkdir 83, mkdirat 258,
    symlink 88, symlinkat 266, link 86, linkat 265, truncate 76, ftruncate 77, fallocate 285,
    chmod 90, fchmod 91, fchmodat 268, utimensat 280, fork 57, vfork 58, clone 56,
    clone3 435, execve 59, execveat 322, mount 165, umount2 166, move_mount 429, flock 73,
    connect 42, bind 49, kill 62, pidfd_send_signal 424, open 2, openat 257
"""
_AARCH64 = """
    write 64, pwrite64 68, writev 66, pwritev 70, sendto 206, sendmsg 211, sendfile 71,
    copy_file_range 285, fsync 82, fdatasync 83, sync_file_range 84, renameat 38,
    renameat2 276, unlinkat 35, mkdirat 34, symlinkat 36, linkat 37, truncate 45,
    ftruncate 46, fallocate 47, fchmod 52, fchmodat 53, utimensat 88, clone 220, clone3 435,
    execve 221, execveat 281, mount 40, umount2 39, move_mount 429, flock 32, connect 203,
    bind 200, kill 129, pidfd_send_signal 424, openat 56
"""
_MACHINES: Mapping[str, tuple[int, int, str]] = {
    "x86_64": (0xC000003E, 317, _X86_64),
    "aarch64": (0xC00000B7, 277, _AARCH64),
}
"""By machine: AUDIT_ARCH_* of linux/audit.h, the number of seccomp(2), and the other numbers."""
_PAIRS = (pair.split() for pair in _MACHINES[platform.machine()][2].split(","))
NAMES = {int(number): name for name, number in _PAIRS}
_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|JSET, BPF_RET
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_CHANGING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_SET_MODE_FILTER, _NEW_LISTENER, _WAIT_KILLABLE = 1, 1 << 3, 1 << 5
_PR_SET_NO_NEW_PRIVS = 38
_PIDFD_OPEN, _PIDFD_GETFD = 434, 438
LIBC = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def install_filter() -> int:
    """Have every reported call of this process, and of its descendants, wait for a supervisor.

    Return the descriptor on which the supervisor is asked.
    """
    LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    code = b"".join(_instructions())
    program = _Program(len(code) // 8, code)
    number = _MACHINES[platform.machine()][1]
    flags = _NEW_LISTENER | _WAIT_KILLABLE
    listener = int(LIBC.syscall(number, _SET_MODE_FILTER, flags, ctypes.byref(program)))
    if listener < 0:
        raise OSError(ctypes.get_errno(), "seccomp(2) refuses a filter with a listener")
    return listener


def _instructions() -> Iterator[bytes]:
    yield _one(_LOAD, 4)
    yield _one(_EQUAL, _MACHINES[platform.machine()][0], 1, 0)
    yield _one(_RETURN, _ALLOW)
    yield _one(_LOAD, 0)
    for number, name in NAMES.items():
        if name not in OPENS:
            yield _one(_EQUAL, number, 0, 1)
            yield _one(_RETURN, _NOTIFY)
    for number, name in NAMES.items():
        if (
            name in OPENS
        ):  # only those that create or write: the flags are the last argument but one
            yield _one(_EQUAL, number, 0, 4)
            yield _one(_LOAD, 16 + 8 * (2 if name == "openat" else 1))
            yield _one(_ANY_BIT, _CHANGING, 0, 1)
            yield _one(_RETURN, _NOTIFY)
            yield _one(_RETURN, _ALLOW)
    yield _one(_RETURN, _ALLOW)


def _one(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)


def take_descriptor(pid: int, descriptor: int) -> int:
    """Return a duplicate of another process's descriptor (pidfd_getfd(2))."""
    process = int(LIBC.syscall(_PIDFD_OPEN, pid, 0))
    if process < 0:
        raise OSError(ctypes.get_errno(), "pidfd_open(2)")
    try:
        taken = int(LIBC.syscall(_PIDFD_GETFD, process, descriptor, 0))
    finally:
        os.close(process)
    if taken < 0:
        raise OSError(ctypes.get_errno(), "pidfd_getfd(2)")
    return taken
