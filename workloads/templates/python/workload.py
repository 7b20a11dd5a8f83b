#!/usr/bin/env python3
"""A workload: reads a file once, block by block, and reports the slowest block.

workload.py FILE [--no-handshake]
"""

import sys
import time
from pathlib import Path

from pagecage_workload import BAD_ARGUMENTS, Failure, Handshake, run

BLOCK_BYTES = 64 * 1024


def work(handshake: Handshake, words: list) -> None:
    """Read the file between `go` and `end`."""
    if len(words) != 1:
        raise Failure("usage: workload.py FILE [--no-handshake]", BAD_ARGUMENTS)

    # The set-up is not measured: it ends with `ready`.
    path = Path(words[0])
    with path.open("rb", buffering=0) as file:
        if not handshake.wait_for_go():
            return  # the run was cancelled

        # The work is measured: from `go` to `end`.
        begun, seconds = time.monotonic(), []
        size_bytes, block_begun = 0, begun
        while block := file.read(BLOCK_BYTES):
            size_bytes += len(block)
            now = time.monotonic()
            seconds.append(now - block_begun)
            block_begun = now
        handshake.end(
            seconds=time.monotonic() - begun,
            bytes=size_bytes,
            blocks=len(seconds),
            distinct_bytes=size_bytes,
            covered_fraction=size_bytes / path.stat().st_size,
            response={"slowest_block_us": max(seconds) * 1e6},
        )


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--no-handshake"]
    is_by_hand = len(words) < len(sys.argv) - 1
    sys.exit(run("workload.py", lambda handshake: work(handshake, words), is_by_hand))
