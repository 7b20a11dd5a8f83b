"""Benchmarks of the append log against write(2) with O_APPEND and against batches.

`python -m reliability.bench.appends [DIR]` runs them alone. The aims apply on this machine, because
the log needs neither a cage nor a guest; in an emulated guest the same ratios are printed without
an aim. Both methods of a pair append the same records to files in the same directory and take turns
in going first. The benchmark fails if a file does not have every record.

The ratios differ between machines of the same kind, and from day to day on one virtual machine. On
two CPUs of an EPYC, write(2) took 0.6 to 0.9 us per record of one byte, on one CPU and on both. The
time of pclog, and with it the ratio, depends on properties that a guest cannot choose or read:

- With short records it depends on the CPUs. Writers that run at the same time move the cache line
  of the cursor, and that of the record, between their CPUs. One process needed 11 ns per record.
  Four processes needed 11 to 18 ns on one CPU, and 17 to 33 ns on two: the second CPU made pclog
  slower. A line took 27 ns to move there. CPUs without a common cache need several times as long.
- Other programs on the CPUs keep the writers from running at the same time. The same commit gave
  8.4 and 27.7 on two machines, 31 on the one described here, and 79 there under load.
- With long records it depends on the memory, because most of the time is spent on new pages. A new
  page took 1.5 us where the hypervisor had memory behind it, and 10.8 us where it had not. Free
  page reporting gives the memory of deleted files back within seconds. The ratio at 4,095 bytes was
  1.66 and 3.53 on two machines, and from 1.8 to 7 on the one described here.
- The helper populates its first pages before the clock starts. With 64 MiB of them the four
  processes need 0.15 s including the start, without the helper 0.09 s, and write(2) 0.22 s.

An aim is therefore a bound that held on every machine. Two ratios without an aim describe the
machine at hand: `4 writers / 1 writer` is the cost of the shared cache lines, and `alone / write
alone` is the ratio without them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from pagecage.checkout import TOP
from pagecage.process import run
from reliability.bench.bed import Bed, Figure, by_turns, figure_of_pairs, show
from reliability.campaign import tell

PAIRS = 21
RECORDS_A_SECOND = 40_000  # open load: a third of the throughput of write(2) on two or more CPUs
# With the helper that populates pages ahead of the writers.
LOG = ("pclog", "--prefault-bytes", "16M")
# The same, for a log that grows by a gigabyte per second.
FAR_AHEAD = ("pclog", "--prefault-bytes", "64M")
BARE = ("pclog",)
FRAMED = ("pclog", "--framing", "framed")
Pcappend = Callable[..., Mapping[str, float]]


@dataclass(frozen=True)
class Match:
    """Two methods that append the same records, the figure to compare, and the aim or None.

    `our_load` is the load of `ours` where it differs from `load`.
    """

    name: str
    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    load: tuple[str, ...]
    least: float | None
    figure: str = "append_seconds"
    our_load: tuple[str, ...] | None = None

    @property
    def sides(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return (
            ("--method", *self.ours, *(self.our_load or self.load)),
            ("--method", *self.theirs, *self.load),
        )


# A run of pclog with fewer records would end within two or three time slices of the scheduler.
BYTE = ("--procs", "4", "--ops", "300000", "--bytes", "1")
BYTE_ALONE = ("--procs", "1", "--ops", "600000", "--bytes", "1")
LINE = ("--procs", "4", "--ops", "100000", "--bytes", "128")
PAGE = ("--procs", "4", "--ops", "10000", "--bytes", "4095")
OPEN = ("--procs", "4", "--ops", "10000", "--bytes", "128", "--rate", str(RECORDS_A_SECOND))
MATCHES = (
    Match("pclog / write, 1 byte", LOG, ("write",), BYTE, 4.0),
    Match("pclog / write, 128 bytes", LOG, ("write",), LINE, 4.0),
    Match("pclog / write, 4095 bytes", FAR_AHEAD, ("write",), PAGE, 1.0),
    Match("pclog / batch, 4095 bytes", FAR_AHEAD, ("batch",), PAGE, 1 / 1.5),
    Match("pclog / write, p99.9", LOG, ("write",), OPEN, 1.0, "call_p999_us"),
    Match("4 writers / 1 writer, 1 byte", LOG, LOG, BYTE, None, "wall_per_call_us", BYTE_ALONE),
    Match("alone / write alone, 1 byte", LOG, ("write",), BYTE_ALONE, None),
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
            argv = [program, "--dir", folder, "--no-handshake", *words]
            return _response(run(argv, timeout_seconds=300).stdout)

        for match in MATCHES:
            yield compare(match, pcappend, aimed=True)


def measure(bed: Bed) -> Iterator[Figure]:
    """Yield the same ratios on the host, without aims."""
    folder = bed.dataset.rpartition("/")[0]

    def pcappend(*words: str) -> Mapping[str, float]:
        argv = (bed.program("pcappend"), "--dir", folder, "--no-handshake", *words)
        return _response(bed.run(*argv).stdout)

    return (compare(match, pcappend, aimed=False) for match in MATCHES)


def _response(lines: str) -> Mapping[str, float]:
    end: Mapping[str, Mapping[str, float]] = json.loads(lines.splitlines()[-1])
    return end["response"]


def _figure(pcappend: Pcappend, words: Sequence[str], name: str) -> float:
    return pcappend(*words)[name]


def compare(match: Match, pcappend: Pcappend, *, aimed: bool) -> Figure:
    """Return one ratio: the time of `theirs` divided by that of `ours`.

    They alternate in going first.
    """
    tell(f"{match.name}: {PAIRS} times each")
    sides = (partial(_figure, pcappend, words, match.figure) for words in match.sides)
    ours, theirs = by_turns(PAIRS, *sides)
    least = match.least if aimed else None
    return figure_of_pairs(match.name, theirs, ours, _sentence(match), least_low=least)


_FIGURES = {
    "append_seconds": "time",
    "call_p999_us": "99.9th percentile of a call's time",
    "wall_per_call_us": "time per record",
}


def _sentence(match: Match) -> str:
    what, procs = _FIGURES[match.figure], match.load[match.load.index("--procs") + 1]
    load = f", {RECORDS_A_SECOND} records a second" if match.load is OPEN else ""
    ours = " ".join(match.ours) + (" with one process" if match.our_load else "")
    writers = f"{procs} processes" if procs != "1" else "one process"
    return f"{match.theirs[0]}'s {what} by that of {ours}, {writers}{load}"


if __name__ == "__main__":
    for made in natively(Path(sys.argv[1]) if len(sys.argv) > 1 else TOP / "build/bench"):
        show(made)
