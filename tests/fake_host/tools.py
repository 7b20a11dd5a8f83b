"""Fake iostat and sar: they start, record, end on SIGINT, and write to the log."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

SAMPLE = {"disk": [{"disk_device": "fakedisk", "r/s": 1.0, "rkB/s": 128.0}]}


def asked(name: str, word: str) -> bool:
    """Return whether the test requested this misbehaviour."""
    return word in os.environ.get(f"FAKE_{name}", "").split()


def note(line: str) -> None:
    """Append one complete line to the log."""
    descriptor = os.open(os.environ["FAKE_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(descriptor, line.encode() + b"\n")
    os.close(descriptor)


def until_interrupted(name: str) -> None:
    note(f"{name} begins")
    if asked("SIGNALS", name):
        os.kill(
            int(os.environ["FAKE_AGENT"]),
            getattr(signal, f"SIG{os.environ.get('FAKE_SIGNAL', 'TERM')}"),
        )
    if asked("DIES", name):
        sys.exit(1)
    signal.sigwait({signal.SIGINT})
    note(f"{name} ends")
    if asked("STALLS", name):
        time.sleep(60)


def iostat(arguments: list[str]) -> None:
    print('{"sysstat": {"hosts": [{"statistics": [', flush=True)
    until_interrupted("iostat")
    print("" if asked("CUTS", "iostat") else json.dumps(SAMPLE) + "]}]}}", flush=True)


def sar(arguments: list[str]) -> None:
    Path(arguments[arguments.index("-o") + 1]).write_bytes(b"\x96\xd5sar of the fake machine")
    until_interrupted("sar")


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    {"iostat": iostat, "sar": sar}[sys.argv[1]](sys.argv[2:])
