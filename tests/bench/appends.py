"""Benchmarks of the append log against write(2) with O_APPEND and against batches.

`python -m tests.bench.appends [DIR]` runs them alone. The aims apply on this machine, because the
log needs neither a cage nor a guest; in an emulated guest the same ratios are printed without an
aim. Both methods of a pair append the same records to files in the same directory and take turns in
going first. The benchmark fails if a file does not have every record.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from pagecage.checkout import TOP
from pagecage.process import run
from tests.bench.bed import Bed, Figure, ratio_of_pairs
from tests.bench.say import say
from tests.bench.show import show

PAIRS = 21
RECORDS_A_SECOND = 40_000  # open load: a third of the throughput of write(2) on two or more CPUs
LOG = (
    "pclog",
    "--prefault-bytes",
    "16M",
)  # with the helper that populates pages ahead of the writers
FAR_AHEAD = (
    "pclog",
    "--prefault-bytes",
    "64M",
)  # the same, for a log that grows by a gigabyte per second
BARE = ("pclog",)
FRAMED = ("pclog", "--framing", "framed")
Pcappend = Callable[..., Mapping[str, float]]


@dataclass(frozen=True)
class Match:
    """Two methods that append the same records, the figure to compare, and the aim or None."""

    name: str
    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    load: tuple[str, ...]
    least: float | None
    figure: str = "append_seconds"


BYTE = ("--procs", "4", "--ops", "100000", "--bytes", "1")
LINE = ("--procs", "4", "--ops", "100000", "--bytes", "128")
PAGE = ("--procs", "4", "--ops", "10000", "--bytes", "4095")
OPEN = ("--procs", "4", "--ops", "10000", "--bytes", "128", "--rate", str(RECORDS_A_SECOND))
MATCHES = (
    Match("pclog / write, 1 byte", LOG, ("write",), BYTE, 24.0),
    Match("pclog / write, 128 bytes", LOG, ("write",), LINE, 4.0),
    Match("pclog / write, 4095 bytes", FAR_AHEAD, ("write",), PAGE, 1.5),
    Match("pclog / batch, 4095 bytes", FAR_AHEAD, ("batch",), PAGE, 1 / 1.2),
    Match("pclog / write, p99.9", LOG, ("write",), OPEN, 1.0, "call_p999_us"),
    Match("no helper / write, 128 bytes", BARE, ("write",), LINE, None),
    Match("no helper / write, 4095 bytes", BARE, ("write",), PAGE, None),
    Match("no helper / write, p99.9", BARE, ("write",), OPEN, None, "call_p999_us"),
    Match("framed / write, 1 byte", FRAMED, ("write",), BYTE, None),
    Match("framed / write, 128 bytes", FRAMED, ("write",), LINE, None),
    Match("framed / write, 4095 bytes", FRAMED, ("write",), PAGE, None),
    Match("framed / write, p99.9", FRAMED, ("write",), OPEN, None, "call_p999_us"),
)


def natively(parent: Path) -> Iterator[Figure]:
    """Yield every ratio on this machine, with files below the directory `parent`."""
    parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=parent) as folder:
        program = str(TOP / "build/host/bin/pcappend")

        def pcappend(*words: str) -> Mapping[str, float]:
            return _response(
                run(
                    [program, "--dir", folder, "--no-handshake", *words], timeout_seconds=300
                ).stdout
            )

        for match in MATCHES:
            yield compare(match, pcappend, aimed=True)


def measure(bed: Bed) -> Iterator[Figure]:
    """Yield the same ratios on the host, without aims."""
    folder = bed.dataset.rpartition("/")[0]

    def pcappend(*words: str) -> Mapping[str, float]:
        return _response(
            bed.run(bed.program("pcappend"), "--dir", folder, "--no-handshake", *words).stdout
        )

    return (compare(match, pcappend, aimed=False) for match in MATCHES)


def _response(lines: str) -> Mapping[str, float]:
    end: Mapping[str, Mapping[str, float]] = json.loads(lines.splitlines()[-1])
    return end["response"]


def compare(match: Match, pcappend: Pcappend, *, aimed: bool) -> Figure:
    """Return one ratio: the time of `theirs` divided by that of `ours`.

    They alternate in going first.
    """
    say(f"{match.name}: {PAIRS} times each")
    ours, theirs = [], []
    for number in range(PAIRS):
        for method, kept in ((match.ours, ours), (match.theirs, theirs))[
            :: 1 if number % 2 else -1
        ]:
            kept.append(pcappend("--method", *method, *match.load)[match.figure])
    ratio, low, high = ratio_of_pairs(theirs, ours)
    aim, met = "none set", True
    if aimed and match.least is not None:
        aim, met = f"lower bound {match.least:.3g} or more", low >= match.least
    return Figure(match.name, ratio, low, high, aim, met, PAIRS, _sentence(match))


def _sentence(match: Match) -> str:
    what = "99.9th percentile of a call's time" if match.figure == "call_p999_us" else "time"
    load = f", {RECORDS_A_SECOND} records a second" if match.load is OPEN else ""
    return f"{match.theirs[0]}'s {what} by that of {' '.join(match.ours)}, 4 processes{load}"


if __name__ == "__main__":
    for made in natively(Path(sys.argv[1]) if len(sys.argv) > 1 else TOP / "build/bench"):
        show(made)
