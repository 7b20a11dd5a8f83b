"""The process that listens on a TCP port of this host."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pagecage.agent.system.kernel_text import read_text
from pagecage.agent.system.procfs import PROC, parse_listening


def listener(port: int, proc: Path = PROC) -> str:
    """Return the process that listens on a port, as "postgres (process 123)".

    It is "another process" if its files cannot be read, which only its owner and root may do.
    """
    texts = [read_text(proc / "self/net" / name) or "" for name in ("tcp", "tcp6")]
    sockets = {f"socket:[{inode}]" for text in texts for inode in _inodes(text, port)}
    for entry in proc.iterdir():
        if entry.name.isdigit() and any(link in sockets for link in _open_files(entry)):
            return f"{(read_text(entry / 'comm') or '?').strip()} (process {entry.name})"
    return "another process"


def _inodes(text: str, port: int) -> Iterator[str]:
    """Yield the inodes of the sockets that listen on a port (proc_pid_net(5))."""
    header, *lines = text.splitlines() or [""]
    for line in lines:
        if port in parse_listening(f"{header}\n{line}"):
            yield line.split()[9]


def _open_files(process: Path) -> Iterator[str]:
    with suppress(OSError):  # not permitted, or the process has ended
        for file in (process / "fd").iterdir():
            with suppress(OSError):
                yield str(file.readlink())
