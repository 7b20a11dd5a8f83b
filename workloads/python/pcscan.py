#!/usr/bin/env python3
"""pcscan-python: what an asyncio program suffers when it scans files beside other work.

One event loop, one task a file, scanned window by window with a turn for the others in between. asyncio has no files of
its own: `--io mmap` touches mapped memory in the loop, `--io read` hands each read to the loop's pool of threads, as
asyncio programs do. Bytes are added up by the interpreter's own loops in C, so that they do not drown the disk.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import mmap
import os
import resource
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

DONE, FAILED, BAD_ARGUMENTS = 0, 1, 2
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "p9999": 0.9999, "max": 1.0}


def complain(sentence: str) -> None:
    """One sentence on stderr."""
    sys.stderr.write(f"pcscan-python: {sentence}\n")


class Parser(argparse.ArgumentParser):
    """Says what is wrong with the arguments in one sentence."""

    def error(self, message: str) -> NoReturn:
        """Leaves with status 2."""
        complain(f"{message} (see `pcscan-python --help`)")
        sys.exit(BAD_ARGUMENTS)


def length(text: str) -> int:
    """A number of bytes above zero, with K, M or G for the powers of 1024."""
    shift = {"K": 10, "M": 20, "G": 30}.get(text[-1:], 0)
    number = int(text[:-1] if shift else text) << shift
    if number <= 0:
        raise ValueError(text)
    return number


def arguments(words: list[str]) -> argparse.Namespace:
    """Reads the command line; leaves with status 2 where it makes no sense."""
    parser = Parser(prog="pcscan-python", description="Scans several files on one asyncio loop")
    parser.add_argument("--files", nargs="+", type=Path, required=True, help="the files to scan")
    parser.add_argument(
        "--io", choices=["mmap", "read", "conventional"], default="mmap", help="mapped, or read in the pool of threads"
    )
    parser.add_argument("--expect-sidecars", action="store_true", help="the sum must be what FILE.json says")
    parser.add_argument("--stride", type=length, default=512, help="one byte in so many is looked at")
    parser.add_argument("--window", type=length, default=2 << 20, help="bytes between two turns for the others")
    parser.add_argument("--buf", type=length, default=64 << 10, help="length of one read")
    parser.add_argument("--heartbeat-us", type=int, default=0, help="beat so often; 0 for not at all")
    parser.add_argument("--max-seconds", type=float, help="stop after so long")
    parser.add_argument("--no-handshake", action="store_true", help="start at once and leave at once")
    plan = parser.parse_args(words)
    if plan.expect_sidecars and plan.stride != 512:
        parser.error("pcscan-python knows the sidecars' sum of --stride 512 only")
    if plan.window % plan.buf or plan.buf % plan.stride:
        parser.error("--window must be whole bufs, and --buf whole strides")
    return plan


class Heartbeat:
    """Beats at intended times: a beat heard late counts with all of its delay, and so does each one behind it."""

    def __init__(self, period_us: int) -> None:
        self._period = period_us / 1e6
        self.late_us: list[float] = []
        self._next = 0.0

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begins, one period from now."""
        if self._period > 0:
            self._next = loop.time() + self._period
            loop.call_at(self._next, self._beat, loop)

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        self.hear(loop)
        loop.call_at(self._next, self._beat, loop)

    def hear(self, loop: asyncio.AbstractEventLoop) -> None:
        """Counts all beats that are due."""
        now = loop.time()
        while self._period > 0 and self._next <= now:
            self.late_us.append((now - self._next) * 1e6)
            self._next += self._period

    def response(self) -> dict[str, float | None]:
        """Quantiles in microseconds, None where no beat was due."""
        if self._period <= 0:
            return {}
        late = sorted(self.late_us)
        at = {name: max(0, math.ceil(len(late) * share) - 1) for name, share in QUANTILES.items()}
        found = {f"heartbeat_{name}_us": late[place] if late else None for name, place in at.items()}
        return {**found, "gap_max_us": found["heartbeat_max_us"], "heartbeat_count": float(len(late))}


@dataclass
class Source:
    """One file and how far its scan has come."""

    path: Path
    file: int
    size_bytes: int
    view: memoryview | None
    expected: int
    bytes: int = 0
    pieces: int = 0
    sum: int = 0
    seconds: float = 0.0


def opened(plan: argparse.Namespace, path: Path) -> Source:
    """Opens the file, and maps it where it is scanned that way."""
    file = os.open(path, os.O_RDONLY)
    size_bytes = os.fstat(file).st_size
    if size_bytes == 0:
        raise OSError(f"{path} is empty")
    view = memoryview(mmap.mmap(file, size_bytes, prot=mmap.PROT_READ)) if plan.io == "mmap" else None
    sidecar = json.loads(Path(f"{path}.json").read_text()) if plan.expect_sidecars else {"stride512_sum": "0"}
    return Source(path, file, size_bytes, view, int(sidecar["stride512_sum"]))


async def window(source: Source, plan: argparse.Namespace, end: int) -> None:
    """Scans up to that byte."""
    while source.bytes < end:
        size = min(plan.buf, end - source.bytes)
        if source.view is not None:
            piece: memoryview | bytes = source.view[source.bytes : source.bytes + size]
        else:
            piece = await asyncio.to_thread(os.pread, source.file, size, source.bytes)
        if len(piece) == 0:
            raise OSError(f"{source.path} ended early")
        source.sum += sum(piece[:: plan.stride])
        source.bytes += len(piece)
        source.pieces += 1


async def scan(source: Source, plan: argparse.Namespace, deadline: float) -> None:
    """Scans the whole file, with a turn for the others after every window."""
    started = time.monotonic()
    while source.bytes < source.size_bytes and time.monotonic() < deadline:
        await window(source, plan, min(source.bytes + plan.window, source.size_bytes))
        await asyncio.sleep(0)
    source.seconds = time.monotonic() - started


async def scan_all(sources: list[Source], plan: argparse.Namespace, heart: Heartbeat) -> float:
    """Scans all files at once on this loop and gives the seconds it took."""
    loop = asyncio.get_running_loop()
    heart.start(loop)
    started = time.monotonic()
    deadline = started + plan.max_seconds if plan.max_seconds else float("inf")
    await asyncio.gather(*(scan(source, plan, deadline) for source in sources))
    heart.hear(loop)
    return time.monotonic() - started


def say(line: dict[str, object]) -> None:
    """One line of JSON, flushed because whoever measures acts on it."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def wait_for_go() -> bool:
    """False when stdin closed instead."""
    say({"type": "ready", "pid": os.getpid()})
    word = sys.stdin.readline()
    if word not in ("go\n", ""):
        raise OSError(f'expected the line "go" on stdin, found {word!r}')
    return word == "go\n"


def usage() -> dict[str, int]:
    """What the process has cost so far, getrusage(2)."""
    found = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "major_faults": found.ru_majflt, "minor_faults": found.ru_minflt,
        "voluntary_switches": found.ru_nvcsw, "involuntary_switches": found.ru_nivcsw,
    }  # fmt: skip


def report(
    sources: list[Source], plan: argparse.Namespace, heart: Heartbeat, seconds: float, cost: dict[str, int]
) -> bool:
    """Prints the closing lines; False where the sum was wrong."""
    read, size = sum(file.bytes for file in sources), sum(file.size_bytes for file in sources)
    total = sum(file.sum for file in sources)
    compared = plan.expect_sidecars and read == size
    right = total == sum(file.expected for file in sources)
    pieces = sum(file.pieces for file in sources)
    common = {
        "seconds": seconds, "bytes": read, "blocks": pieces, "covered_fraction": read / size, "checksum": str(total),
    }  # fmt: skip
    faults = {name: cost[name] for name in ("major_faults", "minor_faults")}
    say({"type": "sample", "iteration": 0, **common, **faults})
    say({
        "type": "end", **common, "distinct_bytes": read, "checksum_ok": right if compared else None,
        "threads": [{"seconds": seconds, "blocks": pieces, **cost}], "setup": {},
        "files": [{"seconds": file.seconds, "bytes": file.bytes} for file in sources],
        "response": {**heart.response(), "minor_faults": cost["minor_faults"]}, "heartbeat_hdr_v2_base64": None,
    })  # fmt: skip
    return right or not compared


def main() -> int:
    """Sets up, waits for `go`, scans, reports; gives the exit status."""
    plan = arguments(sys.argv[1:])
    try:
        sources = [opened(plan, path) for path in plan.files]
        if not plan.no_handshake and not wait_for_go():
            return DONE
        heart, before = Heartbeat(plan.heartbeat_us), usage()
        seconds = asyncio.run(scan_all(sources, plan, heart))
        cost = {name: value - before[name] for name, value in usage().items()}
        right = report(sources, plan, heart, seconds, cost)
        while not plan.no_handshake and sys.stdin.read(64):
            pass
    except (OSError, ValueError, KeyError) as refused:
        complain(str(refused))
        return FAILED
    if not right:
        complain("the bytes of the files do not add up to what their sidecars say")
    return DONE if right else FAILED


if __name__ == "__main__":
    sys.exit(main())
