"""The workload's side of pagecage's handshake, version 1 (docs/HANDSHAKE.md).

A workload prepares, waits for `go`, works, and reports. pagecage reads the kernel's counters around
the work, while the process exists. This file is the whole library and needs only the standard
library of Python 3.8; `pagecage init --template python` copies it into a project.

    def work(handshake):
        data = prepare()
        if not handshake.wait_for_go():
            return
        begun = time.monotonic()
        use(data)
        seconds = time.monotonic() - begun
        handshake.end(seconds=seconds, response={"speed": 1 / seconds})

    sys.exit(run("mine", work))
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from typing import IO, Any

PROTOCOL_VERSION = 1
"""The version of the protocol that this library speaks."""
DONE, FAILED, BAD_ARGUMENTS, CANNOT_HERE = 0, 1, 2, 77
"""Exit codes, which tell pagecage the kind of a failure."""
_LONGEST_WORD_BYTES = 64


class Failure(Exception):
    """The reason why a workload could not do its work: one sentence, and an exit code."""

    def __init__(self, sentence: str, exit_code: int = FAILED) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code


class Handshake:
    """The handshake over two streams, by default stdin and stdout.

    If `is_skipped`, work starts and ends at once, for use by hand. Samples and the end are printed.
    """

    def __init__(
        self,
        is_skipped: bool = False,
        read_from: IO[bytes] | None = None,
        write_to: IO[bytes] | None = None,
    ) -> None:
        self._is_skipped = is_skipped
        self._input = read_from or sys.stdin.buffer
        self._output = write_to or sys.stdout.buffer

    def wait_for_go(self, evicted_bytes: int = 0) -> bool:
        """Print `ready` and wait for `go`; return False if the input closes instead.

        The set-up dropped `evicted_bytes` of the workload's files from the page cache. Otherwise
        pagecage would take this for the work of another process.
        """
        if self._is_skipped:
            return True
        evicted = {"evicted_bytes": evicted_bytes} if evicted_bytes else {}
        self._print("ready", {"protocol": PROTOCOL_VERSION, "pid": os.getpid(), **evicted})
        word = self._input.readline(_LONGEST_WORD_BYTES)
        if word not in (b"go\n", b""):
            raise Failure(f'expected the line "go" on stdin, found {word!r}')
        return word == b"go\n"

    def sample(self, **content: Any) -> None:
        """Print one `sample`: what a part of the work did."""
        self._print("sample", content)

    def stopped(self) -> None:
        """Print `stopped`: the measured part ends here, and more work follows before `end`."""
        self._print("stopped", {})

    def end(self, *, seconds: float, **content: Any) -> None:
        """Print `end`, and wait until the input closes."""
        self._print("end", {"seconds": seconds, **content})
        while not self._is_skipped and self._input.read(1024):
            pass

    def _print(self, kind: str, content: dict[str, Any]) -> None:
        """Print one message and flush it, because the agent acts on it."""
        for name, number in _not_finite("", content):
            raise Failure(f"`{name}` is {number}, which is not a number in JSON")
        own = {key: value for key, value in content.items() if key != "type"}
        self._output.write(json.dumps({"type": kind, **own}).encode() + b"\n")
        self._output.flush()


def run(program: str, work: Callable[[Handshake], None], is_skipped: bool = False) -> int:
    """Do the work with a handshake, print a failure on stderr, and return the exit code."""
    try:
        work(Handshake(is_skipped))
    except Failure as failure:
        sys.stderr.write(f"{program}: {failure}\n")
        return failure.exit_code
    except OSError as error:
        sys.stderr.write(f"{program}: {error}\n")
        return FAILED
    return DONE


def _not_finite(name: str, value: Any) -> Iterator[tuple[str, float]]:
    """Yield the numbers that JSON cannot express, with their names."""
    if isinstance(value, float) and not math.isfinite(value):
        yield name, value
    pairs = value.items() if isinstance(value, dict) else ()
    items = value if isinstance(value, (list, tuple)) else ()
    for key, one in [*pairs, *((name, item) for item in items)]:
        yield from _not_finite(key, one)
