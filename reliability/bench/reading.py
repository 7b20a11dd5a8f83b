"""pcread compared with fio on the same engine, file and cache state.

`python -m reliability.bench.reading [DIR]` runs it alone, on this machine and without a cage.
There the CPU decides, because the file is in the page cache. In an emulated guest the same ratios
describe the emulated CPU as well.

fio is the established tool, so pcread must be as fast. fio runs with its cheapest settings: no
clock read per block, registered buffers and files, and a random order (lfsr) that visits each block
once without a map. In an order with repetitions some blocks would still be in the CPU's cache.
pcread sums every byte that it reads; fio's mmap engine copies them, and its other engines read
none. Both take turns in going first.

Other programs can only slow a run down, so that a figure is the faster of two runs. fio's job is a
thread, because its job processes call setsid(2): the scheduler's autogroups give each session its
own share of a busy CPU. Such a job was twice as fast as pcread on a machine with a load of eight.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from pagecage.checkout import TOP
from reliability.bench.bed import (
    DATASET_BYTES,
    Bed,
    Figure,
    NativeBed,
    ReadingBed,
    by_turns,
    figure_of_pairs,
    generate,
    scratch,
    show,
)
from reliability.campaign import tell

PAIRS = 9
RUNS = 2
SECONDS = 2
LEAST = 0.97
QUEUE_PCREAD = ("--queue-depth", "32")
QUEUE_FIO = ("--iodepth=32", "--fixedbufs=1", "--registerfiles=1")
DIRECT_PCREAD = ("--direct", *QUEUE_PCREAD, "--max-seconds", f"{SECONDS}")
DIRECT_FIO = ("--direct=1", *QUEUE_FIO, f"--runtime={SECONDS}")


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
        "pcread / fio io_uring",
        ("--source", "uring", *QUEUE_PCREAD),
        ("--ioengine=io_uring", "--rw=read", *QUEUE_FIO),
        "resident, in order, 32 deep",
    ),
    Pairing(
        "pcread / fio io_uring random",
        ("--source", "uring", *QUEUE_PCREAD, *RANDOM),
        ("--ioengine=io_uring", "--rw=randread", *QUEUE_FIO),
        "resident, random, 32 deep",
    ),
)
DIRECT = (
    Pairing(
        "pcread / fio io_uring direct",
        ("--source", "uring", *DIRECT_PCREAD, *RANDOM),
        ("--ioengine=io_uring", "--rw=randread", *DIRECT_FIO),
        "past the page cache, random, 32 deep",
    ),
)


def natively(parent: Path) -> Iterator[Figure]:
    """Yield the ratios of all engines on this machine, with the file below `parent`.

    The directory must be on a disk. The direct reads are left out, because there the disk decides.
    """
    parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=parent) as folder:
        bed = NativeBed(f"{folder}/bench.bin", str(TOP / "build/host/bin"))
        generate(bed)
        _load(bed)
        for pairing in PAIRINGS:
            yield compare(bed, pairing)


def measure(bed: ReadingBed) -> Iterator[Figure]:
    _load(bed)
    return (compare(bed, pairing) for pairing in (*PAIRINGS, *DIRECT))


def _load(bed: ReadingBed) -> None:
    bed.run("dd", f"if={bed.dataset}", "of=/dev/null", "bs=1M", "status=none")


def compare(bed: ReadingBed, pairing: Pairing) -> Figure:
    """Return the ratio of the speeds, measured by turns."""
    tell(f"{pairing.name}: {PAIRS} times each, the faster of {RUNS} runs")
    ours, theirs = by_turns(
        PAIRS,
        lambda: max(pcread(bed, *pairing.ours) for _ in range(RUNS)),
        lambda: max(fio(bed, *pairing.theirs) for _ in range(RUNS)),
    )
    says = f"bytes a second, {bed.dataset_bytes >> 20} MiB {pairing.says}, pages of 4 KiB"
    return figure_of_pairs(pairing.name, ours, theirs, says, least_low=LEAST)


def pcread(bed: ReadingBed, *arguments: str) -> float:
    """Return bytes per second over all passes, by pcread's own clock."""
    done = bed.run(bed.program("pcread"), "--file", bed.dataset, "--no-handshake", *arguments)
    end = next(line for line in map(json.loads, done.stdout.splitlines()) if line["type"] == "end")
    return float(end["bytes"] / end["seconds"])


def fio(bed: ReadingBed, *arguments: str) -> float:
    """Return bytes per second, by fio's clock."""
    done = bed.run(
        *("fio", "--name=read", "--thread", f"--filename={bed.dataset}", "--bs=4k", "--readonly"),
        *(f"--size={bed.dataset_bytes}", "--invalidate=0", "--gtod_reduce=1"),
        *("--random_generator=lfsr", "--output-format=json", *arguments),
    )
    read = json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]["read"]
    return float(read["io_bytes"] / (read["runtime"] / 1000))


MEMORY_PAIRS = 15
_MEBIBYTE = ("--block-bytes", "1048576", "--fault-every", "0", "--warm-passes", "1")
HEAP = ("--source", "heap", *_MEBIBYTE)
MAPPED = ("--source", "mmap", "--advice", "populate-read", *_MEBIBYTE)
# The first copy touches the pages, the second is timed.
COPY = f"""
import time
a, b = bytearray({DATASET_BYTES}), bytearray({DATASET_BYTES})
for i in range(0, len(a), 4096): a[i] = 1
memoryview(b)[:] = a
start = time.perf_counter()
memoryview(b)[:] = a
print(len(a) / (time.perf_counter() - start))
"""


def measure_memory(bed: Bed) -> Iterator[Figure]:
    tell(f"adding up memory {PAIRS} times, mapped, on the heap, and copied")
    rounds = [
        (pcread(bed, *MAPPED), pcread(bed, *HEAP), float(bed.run("python3", "-c", COPY).stdout))
        for _ in range(MEMORY_PAIRS)
    ]
    mapped, heap, copied = map(list, zip(*rounds, strict=True))
    says = f"bytes a second, {DATASET_BYTES >> 20} MiB in order, pages mapped beforehand"
    yield figure_of_pairs("resident mapping / heap", mapped, heap, says, least_low=0.97)
    says = f"bytes a second summed by bytes a second copied, {DATASET_BYTES >> 20} MiB"
    yield figure_of_pairs("heap / memcpy", heap, copied, says, least_low=1.0)


if __name__ == "__main__":
    for made in natively(Path(sys.argv[1]) if len(sys.argv) > 1 else scratch()):
        show(made)
