"""The workload's side of the handshake, for workloads that follow it and others."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any


def note(line: str) -> None:
    """Append to the log of the fake machine, if there is one."""
    if "FAKE_LOG" in os.environ:
        with Path(os.environ["FAKE_LOG"]).open("a") as log:
            log.write(f"workload {line}\n")


def say(kind: str, **fields: Any) -> None:
    print(json.dumps({"type": kind, **fields}), flush=True)


def wait_for_go(**reported: Any) -> None:
    say("ready", **reported)
    note("ready")
    if sys.stdin.readline() != "go\n":
        sys.exit(1)
    note("go")
    if "go" in os.environ.get("FAKE_SIGNALS", "").split():
        os.kill(int(os.environ["FAKE_AGENT"]), signal.SIGTERM)
    if "go" in os.environ.get("FAKE_READS", "").split():
        Path(os.environ["FAKE_FILE"]).read_bytes()
    if "go" in os.environ.get("FAKE_DROPS", "").split():
        drop(os.environ["FAKE_FILE"])


def drop(path: str) -> None:
    """Drop the pages of a file from the page cache."""
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def charged(file_bytes: int) -> None:
    """Set the page cache that is charged to the slice."""
    if "FAKE_SLICE" in os.environ:
        (Path(os.environ["FAKE_SLICE"]) / "memory.stat").write_text(
            f"anon 0\nfile {file_bytes}\npgsteal 0\n"
        )


def read_from_the_disk(read_bytes: int = 1048576, reads: int = 8) -> None:
    """Set the reads that the kernel would count in the slice."""
    if "FAKE_SLICE" in os.environ:
        line = f"{os.environ['FAKE_MAJ_MIN']} rbytes={read_bytes} wbytes=0 rios={reads} wios=0\n"
        (Path(os.environ["FAKE_SLICE"]) / "io.stat").write_text(line)


def end(**changes: Any) -> None:
    say(
        "end",
        **{
            "seconds": 0.5,
            "bytes": 1048576,
            "distinct_bytes": 524288,
            "covered_fraction": 0.5,
            "checksum": 7,
            "checksum_ok": True,
            "threads": [{"major_faults": 3}, {"major_faults": 5}],
            **changes,
        },
    )
    note("end")


def wait_for_the_end_of_input() -> None:
    while sys.stdin.readline():
        pass
    note("exits")
