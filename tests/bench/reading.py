"""pcread compared with fio on the same engine, file and cache state.

fio is the established tool, so pcread must be as fast. fio runs with its cheapest settings: no
clock read per block, registered buffers and files, and a random order (lfsr) that visits each block
once without a map. In an order with repetitions some blocks would still be in the CPU's cache.
pcread sums every byte that it reads; fio's mmap engine copies them, and its other engines read
none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from tests.bench.bed import DATASET_BYTES, Bed, Figure, ratio_of_pairs
from tests.bench.say import say

PAIRS = 15
SECONDS = 2
LEAST = 0.97
DIRECT_PCREAD = ("--direct", "--queue-depth", "32", "--max-seconds", f"{SECONDS}")
DIRECT_FIO = (
    "--direct=1",
    "--iodepth=32",
    "--fixedbufs=1",
    "--registerfiles=1",
    f"--runtime={SECONDS}",
)


@dataclass(frozen=True)
class Pairing:
    """The same read, configured for both programs."""

    name: str
    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    says: str


RANDOM = ("--pattern", "random")
PAIRINGS = (
    Pairing(
        "pcread / fio mmap",
        ("--source", "mmap"),
        ("--ioengine=mmap", "--rw=read"),
        "resident, in order",
    ),
    Pairing(
        "pcread / fio mmap random",
        ("--source", "mmap", *RANDOM),
        ("--ioengine=mmap", "--rw=randread"),
        "resident, random",
    ),
    Pairing(
        "pcread / fio psync",
        ("--source", "pread"),
        ("--ioengine=psync", "--rw=read"),
        "resident, in order",
    ),
    Pairing(
        "pcread / fio psync random",
        ("--source", "pread", *RANDOM),
        ("--ioengine=psync", "--rw=randread"),
        "resident, random",
    ),
    Pairing(
        "pcread / fio io_uring direct",
        ("--source", "uring", *DIRECT_PCREAD, *RANDOM),
        ("--ioengine=io_uring", "--rw=randread", *DIRECT_FIO),
        "past the page cache, random, 32 deep",
    ),
)


def measure(bed: Bed) -> Iterator[Figure]:
    """Measure the ratios of their speeds by turns, so that drift of the machine affects both."""
    bed.run("dd", f"if={bed.dataset}", "of=/dev/null", "bs=1M", "status=none")
    return (_held(bed, pairing) for pairing in PAIRINGS)


def _held(bed: Bed, pairing: Pairing) -> Figure:
    say(f"{pairing.name}: {PAIRS} times each")
    pairs = [(pcread(bed, *pairing.ours), fio(bed, *pairing.theirs)) for _ in range(PAIRS)]
    ours, theirs = map(list, zip(*pairs, strict=True))
    ratio, low, high = ratio_of_pairs(ours, theirs)
    says = f"bytes a second, {DATASET_BYTES >> 20} MiB {pairing.says}, pages of 4 KiB"
    return Figure(
        pairing.name, ratio, low, high, f"lower bound {LEAST} or more", low >= LEAST, PAIRS, says
    )


def pcread(bed: Bed, *arguments: str) -> float:
    """Return bytes per second over all passes, by pcread's own clock."""
    done = bed.run(bed.program("pcread"), "--file", bed.dataset, "--no-handshake", *arguments)
    end = next(line for line in map(json.loads, done.stdout.splitlines()) if line["type"] == "end")
    return float(end["bytes"] / end["seconds"])


def fio(bed: Bed, *arguments: str) -> float:
    """Return bytes per second, by fio's clock."""
    done = bed.run(
        "fio",
        "--name=read",
        f"--filename={bed.dataset}",
        "--bs=4k",
        "--readonly",
        f"--size={DATASET_BYTES}",
        "--invalidate=0",
        "--gtod_reduce=1",
        "--random_generator=lfsr",
        "--output-format=json",
        *arguments,
    )
    read = json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]["read"]
    return float(read["io_bytes"] / (read["runtime"] / 1000))
