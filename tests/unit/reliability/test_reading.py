"""Direction, order and repetition of the benchmark of pcread against fio."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field

import pytest

from pagecage.process import Completed
from reliability.bench.bed import ReadingBed
from reliability.bench.reading import LEAST, PAIRINGS, PAIRS, RUNS, compare


@dataclass
class FixedSpeeds:
    """A bed with fixed speeds in bytes per second. Each second run of pcread is slower."""

    pcread: float
    fio: float
    dataset: str = "/data/bench.bin"
    dataset_bytes: int = 1 << 20
    started: list[str] = field(default_factory=list)

    def program(self, name: str) -> str:
        return f"/programs/{name}"

    def run(self, *argv: str) -> Completed:
        name = argv[0].rpartition("/")[2]
        slower = 0.5 if self.started.count(name) % RUNS else 1.0
        self.started.append(name)
        if name == "fio":
            slower = 1.0
            assert "--thread" in argv, "a session of its own has a share of the CPU of its own"
            read = {"io_bytes": self.fio * slower, "runtime": 1000}
            return Completed(argv, 0, "note\n" + json.dumps({"jobs": [{"read": read}]}), "")
        end = {"type": "end", "bytes": self.pcread * slower, "seconds": 1.0}
        return Completed(argv, 0, json.dumps({"type": "ready"}) + "\n" + json.dumps(end), "")


@pytest.mark.parametrize(("pcread", "met"), [(2.0, True), (LEAST, True), (0.96, False)])
def test_pcread_must_be_as_fast_as_fio(pcread: float, met: bool) -> None:
    bed: ReadingBed = FixedSpeeds(pcread, 1.0)
    figure = compare(bed, PAIRINGS[0])
    assert (figure.ratio, figure.low, figure.met) == (pcread, pcread, met)
    assert "1 MiB" in figure.says


def test_both_take_turns_in_going_first() -> None:
    bed = FixedSpeeds(1.0, 1.0)
    compare(bed, PAIRINGS[0])
    assert len(bed.started) == 2 * RUNS * PAIRS
    first = bed.started[:: 2 * RUNS]
    assert abs(first.count("pcread") - first.count("fio")) == 1


def test_every_engine_is_compared_in_order_and_at_random() -> None:
    engines = [next(w for w in pairing.theirs if "ioengine" in w) for pairing in PAIRINGS]
    names = ("mmap", "psync", "io_uring")
    assert Counter(engines) == dict.fromkeys((f"--ioengine={name}" for name in names), 2)
