"""Runs of pcappend for its tests."""

from __future__ import annotations

import json
import resource
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pagecage.model.json_codec import Json

METHODS = (
    *("pclog", "write", "writev", "fwrite", "batch", "handoff", "reserve-pwrite", "direct"),
    *("direct-misaligned", "aio", "uring", "mapped-atomic", "mapped-mutex", "mapped-semaphore"),
    *("mapped-futex", "seed-mmlog"),
)
LOSING = ("seed-mmlog", "direct-misaligned")  # the article's methods, which lose records
SOUND = tuple(method for method in METHODS if method not in LOSING)


@dataclass(frozen=True)
class RunResult:
    """The result of a run."""

    status: int
    lines: list[Json]
    stderr: str

    @property
    def end(self) -> Json:
        """The `end` line."""
        assert self.lines, self.stderr
        assert self.lines[-1]["type"] == "end"
        return self.lines[-1]

    @property
    def response(self) -> Json:
        """The figures in the `end` line."""
        response: Json = self.end["response"]
        return response


@dataclass(frozen=True)
class Program:
    """The binary, and an empty directory for its file."""

    binary: Path
    folder: Path

    def argv(self, method: str, *words: object) -> list[str]:
        """Return the command line with the directory and the method."""
        return [
            str(word) for word in (self.binary, "--dir", self.folder, "--method", method, *words)
        ]

    def run(
        self, method: str, *words: object, before: Callable[[], None] | None = None
    ) -> RunResult:
        """Run it to the end without the handshake."""
        argv = [*self.argv(method, *words), "--no-handshake"]
        done = subprocess.run(
            argv, capture_output=True, text=True, check=False, timeout=300, preexec_fn=before
        )
        return RunResult(
            done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr
        )

    def start(self, method: str, *words: object) -> subprocess.Popen[str]:
        """Start it with the handshake and wait for `ready`."""
        pipe = subprocess.PIPE
        started = subprocess.Popen(
            self.argv(method, *words), stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )
        assert started.stdout
        assert json.loads(started.stdout.readline())["type"] == "ready"
        return started


def go(started: subprocess.Popen[str]) -> None:
    """Send `go`."""
    assert started.stdin
    started.stdin.write("go\n")
    started.stdin.flush()


def children(pid: int) -> list[int]:
    """Return the child processes of a process."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def files_of(most_bytes: int) -> Callable[[], None]:
    """Return a function that limits the size of files that the process writes."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
