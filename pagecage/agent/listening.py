"""Which TCP ports a process's network namespace listens on, as /proc/PID/net tells: nothing connects to the program."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pagecage.agent.kernelfs import read_text

_LISTEN = "0A"  # TCP_LISTEN of include/net/tcp_states.h, in the column `st` of /proc/net/tcp (proc_pid_net(5))


def parse_listening(text: str) -> set[int]:
    """Ports in state LISTEN in the text of /proc/PID/net/tcp or tcp6."""
    ports = set()
    for line in text.splitlines()[1:]:
        words = line.split()
        if len(words) > 3 and words[3] == _LISTEN:
            _, _, port = words[1].rpartition(":")
            try:
                ports.add(int(port, 16))
            except ValueError:
                continue
    return ports


def listens(port: int, pids: Iterable[int | str], proc: Path = Path("/proc")) -> bool:
    """Whether the port is listened on in the network namespace of any of these processes ("self" is one)."""
    texts = (read_text(proc / str(pid) / "net" / name) or "" for pid in pids for name in ("tcp", "tcp6"))
    return any(port in parse_listening(text) for text in texts)
