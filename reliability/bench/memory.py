"""The speed of pcread's sum compared with that of memory, the upper bound of its reads from memory.

There are two comparisons, each measured by turns. A resident mapping whose pages are already mapped
is compared with the heap, which only loads: the same sum over the same bytes. The heap is compared
with memcpy of the same size by the C library (called through Python, whose buffers use it). A copy
moves each byte at least twice, so a reader that is not slowed by its own arithmetic must be at
least as fast.
"""

from __future__ import annotations

from collections.abc import Iterator

from reliability.bench.bed import DATASET_BYTES, Bed, Figure, figure_of_pairs
from reliability.bench.reading import pcread
from reliability.campaign import tell

PAIRS = 15
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


def measure(bed: Bed) -> Iterator[Figure]:
    tell(f"adding up memory {PAIRS} times, mapped, on the heap, and copied")
    rounds = [
        (pcread(bed, *MAPPED), pcread(bed, *HEAP), float(bed.run("python3", "-c", COPY).stdout))
        for _ in range(PAIRS)
    ]
    mapped, heap, copied = map(list, zip(*rounds, strict=True))
    says = f"bytes a second, {DATASET_BYTES >> 20} MiB in order, pages mapped beforehand"
    yield figure_of_pairs("resident mapping / heap", mapped, heap, says, least_low=0.97)
    says = f"bytes a second summed by bytes a second copied, {DATASET_BYTES >> 20} MiB"
    yield figure_of_pairs("heap / memcpy", heap, copied, says, least_low=1.0)
