"""pcread against fio's mmap engine on one resident file, read in order in blocks of a page."""

from __future__ import annotations

import json

from tests.bench.bed import DATASET_BYTES, Bed, Figure, ratio_of_pairs
from tests.bench.say import say

PAIRS = 15


def measure(bed: Bed) -> list[Figure]:
    """The ratio of their speeds, by turns, so that a drift of the machine meets both."""
    say(f"reading a resident file {PAIRS} times with each of pcread and fio")
    bed.run("dd", f"if={bed.dataset}", "of=/dev/null", "bs=1M", "status=none")
    ours, theirs = zip(*((_pcread(bed), _fio(bed)) for _ in range(PAIRS)), strict=True)
    ratio, low, high = ratio_of_pairs(list(ours), list(theirs))
    return [Figure("pcread / fio mmap", ratio, low, high, "lower bound 0.97 or more", low >= 0.97, PAIRS,
                   f"bytes a second, {DATASET_BYTES >> 20} MiB resident, sequential, 4096-byte blocks")]  # fmt: skip


def _pcread(bed: Bed) -> float:
    done = bed.run(
        bed.program("pcread"), "--file", bed.dataset, "--source", "mmap", "--pattern", "sequential",
        "--block-bytes", "4096", "--no-handshake",
    )  # fmt: skip
    end = next(line for line in map(json.loads, done.stdout.splitlines()) if line["type"] == "end")
    return float(end["bytes"] / end["seconds"])


def _fio(bed: Bed) -> float:
    done = bed.run(
        "fio", "--name=read", f"--filename={bed.dataset}", "--rw=read", "--bs=4k", "--ioengine=mmap", "--readonly",
        f"--size={DATASET_BYTES}", "--invalidate=0", "--output-format=json",
    )  # fmt: skip
    read = json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]["read"]
    return float(read["io_bytes"] / (read["runtime"] / 1000))
