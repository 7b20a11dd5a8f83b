#!/usr/bin/env python3
"""pcscan-python: the delays of an asyncio program that scans files beside other work.

One event loop runs one task per file, which yields after every window. asyncio has no support for
files: `--io mmap` reads mapped memory in the loop, and `--io read` uses the loop's thread pool, as
asyncio programs do. Bytes are summed by built-in functions written in C, so that the time of the
interpreter does not hide that of the disk.
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

from pagecage_workload import BAD_ARGUMENTS, Failure, Handshake, run

PROGRAM = "pcscan-python"
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "p9999": 0.9999, "max": 1.0}


class Parser(argparse.ArgumentParser):
    """A parser that reports invalid arguments in one sentence."""

    def error(self, message: str) -> NoReturn:
        """Exit with status 2."""
        sys.stderr.write(f"{PROGRAM}: {message} (see `{PROGRAM} --help`)\n")
        sys.exit(BAD_ARGUMENTS)


def length(text: str) -> int:
    """Parse a number of bytes above zero, with an optional suffix K, M or G (powers of 1024)."""
    shift = {"K": 10, "M": 20, "G": 30}.get(text[-1:], 0)
    number = int(text[:-1] if shift else text) << shift
    if number <= 0:
        raise ValueError(text)
    return number


def arguments(words: list[str]) -> argparse.Namespace:
    """Parse the command line; exit with status 2 if it is invalid."""
    parser = Parser(prog=PROGRAM, description="Scans several files in one asyncio loop")
    parser.add_argument("--files", nargs="+", type=Path, required=True, help="the files to scan")
    parser.add_argument(
        "--io",
        choices=["mmap", "read", "conventional"],
        default="mmap",
        help="map the files, or read them in the thread pool",
    )
    parser.add_argument(
        "--expect-sidecars", action="store_true", help="compare the checksum with FILE.json"
    )
    parser.add_argument(
        "--stride", type=length, default=512, help="sum one byte out of every N (512)"
    )
    parser.add_argument(
        "--window", type=length, default=2 << 20, help="bytes between two yields to the loop (2M)"
    )
    parser.add_argument("--buf", type=length, default=64 << 10, help="bytes per read (64K)")
    parser.add_argument(
        "--heartbeat-us", type=int, default=0, help="period of the heartbeat; 0 disables it"
    )
    parser.add_argument("--max-seconds", type=float, help="stop after this time")
    parser.add_argument(
        "--no-handshake", action="store_true", help="do not wait for `go`, and exit at the end"
    )
    plan = parser.parse_args(words)
    if plan.expect_sidecars and plan.stride != 512:
        parser.error("--expect-sidecars needs --stride 512, for which sidecars have a checksum")
    if plan.window % plan.buf or plan.buf % plan.stride:
        parser.error("--window must be a multiple of --buf, and --buf a multiple of --stride")
    return plan


class Heartbeat:
    """Beats at intended times. Every beat that is due counts with its own full delay."""

    def __init__(self, period_us: int) -> None:
        self._period = period_us / 1e6
        self.late_us: list[float] = []
        self._next = 0.0

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Schedule the first beat, one period from now."""
        if self._period > 0:
            self._next = loop.time() + self._period
            loop.call_at(self._next, self._beat, loop)

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        self.poll(loop)
        loop.call_at(self._next, self._beat, loop)

    def poll(self, loop: asyncio.AbstractEventLoop) -> None:
        """Record all beats that are due."""
        now = loop.time()
        while self._period > 0 and self._next <= now:
            self.late_us.append((now - self._next) * 1e6)
            self._next += self._period

    def response(self) -> dict[str, float | None]:
        """Return quantiles in microseconds; None if no beat was due."""
        if self._period <= 0:
            return {}
        late = sorted(self.late_us)
        at = {name: max(0, math.ceil(len(late) * share) - 1) for name, share in QUANTILES.items()}
        found = {
            f"heartbeat_{name}_us": late[place] if late else None for name, place in at.items()
        }
        return {
            **found,
            "gap_max_us": found["heartbeat_max_us"],
            "heartbeat_count": float(len(late)),
        }


@dataclass
class Source:
    """A file and the progress of its scan."""

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
    """Open a file, and map it with `--io mmap`."""
    file = os.open(path, os.O_RDONLY)
    size_bytes = os.fstat(file).st_size
    if size_bytes == 0:
        raise OSError(f"{path} is empty")
    view = (
        memoryview(mmap.mmap(file, size_bytes, prot=mmap.PROT_READ)) if plan.io == "mmap" else None
    )
    sidecar = (
        json.loads(Path(f"{path}.json").read_text())
        if plan.expect_sidecars
        else {"stride512_sum": "0"}
    )
    return Source(path, file, size_bytes, view, int(sidecar["stride512_sum"]))


async def window(source: Source, plan: argparse.Namespace, end: int) -> None:
    """Scan up to byte `end`."""
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
    """Scan the whole file, and yield to the loop after every window."""
    started = time.monotonic()
    while source.bytes < source.size_bytes and time.monotonic() < deadline:
        await window(source, plan, min(source.bytes + plan.window, source.size_bytes))
        await asyncio.sleep(0)
    source.seconds = time.monotonic() - started


async def scan_all(sources: list[Source], plan: argparse.Namespace, heart: Heartbeat) -> float:
    """Scan all files concurrently in this loop, and return the seconds it took."""
    loop = asyncio.get_running_loop()
    heart.start(loop)
    started = time.monotonic()
    deadline = started + plan.max_seconds if plan.max_seconds else float("inf")
    await asyncio.gather(*(scan(source, plan, deadline) for source in sources))
    heart.poll(loop)
    return time.monotonic() - started


def usage() -> dict[str, int]:
    """Return the resource usage of the process so far, from getrusage(2)."""
    found = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "major_faults": found.ru_majflt,
        "minor_faults": found.ru_minflt,
        "voluntary_switches": found.ru_nvcsw,
        "involuntary_switches": found.ru_nivcsw,
    }


def report(
    handshake: Handshake,
    sources: list[Source],
    plan: argparse.Namespace,
    heart: Heartbeat,
    seconds: float,
    cost: dict[str, int],
) -> None:
    """Print the closing lines. Raises Failure if the checksum is wrong."""
    read, size = sum(file.bytes for file in sources), sum(file.size_bytes for file in sources)
    total = sum(file.sum for file in sources)
    compared = plan.expect_sidecars and read == size
    right = total == sum(file.expected for file in sources)
    pieces = sum(file.pieces for file in sources)
    common = {
        "seconds": seconds,
        "bytes": read,
        "blocks": pieces,
        "covered_fraction": read / size,
        "checksum": str(total),
    }
    faults = {name: cost[name] for name in ("major_faults", "minor_faults")}
    handshake.sample(iteration=0, **common, **faults)
    handshake.end(
        **common,
        distinct_bytes=read,
        checksum_ok=right if compared else None,
        threads=[{"seconds": seconds, "blocks": pieces, **cost}],
        setup={},
        files=[{"seconds": file.seconds, "bytes": file.bytes} for file in sources],
        response={**heart.response(), "minor_faults": cost["minor_faults"]},
        heartbeat_hdr_v2_base64=None,
    )
    if compared and not right:
        raise Failure("the checksum of the files differs from their sidecars")


def scan_files(plan: argparse.Namespace, handshake: Handshake) -> None:
    """Open the files, wait for `go`, scan them, and report."""
    try:
        sources = [opened(plan, path) for path in plan.files]
        if not handshake.wait_for_go():
            return
        heart, before = Heartbeat(plan.heartbeat_us), usage()
        seconds = asyncio.run(scan_all(sources, plan, heart))
    except (ValueError, KeyError) as refused:
        raise Failure(str(refused)) from None
    cost = {name: value - before[name] for name, value in usage().items()}
    report(handshake, sources, plan, heart, seconds, cost)


def main() -> int:
    """Run the workload and return its exit status."""
    plan = arguments(sys.argv[1:])
    return run(PROGRAM, lambda handshake: scan_files(plan, handshake), plan.no_handshake)


if __name__ == "__main__":
    sys.exit(main())
