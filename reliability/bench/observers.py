"""The effect of each collector: `python -m reliability.bench.observers HOST ROUNDS [READER]`.

One reader reads a cold file in random blocks through a mapping, without limits, so that it waits
for nothing but the disk and the CPU. Another reads a resident file by pread(2), so that it waits
for the CPU alone. In each round every set of collectors, each alone and all together, has a machine
state of its own, in which trials with and without it take turns. The sampler runs in every trial;
its gaps are read from its rows.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from statistics import median

from pagecage.model.plan import Plan
from pagecage.model.record import Record
from pagecage.model.trial import COLLECTORS, DRIVERS, WITHOUT_LIMITS, Dataset, Trial, Workload
from pagecage.runner.run_folder import RunFolder
from pagecage.units import MIB
from reliability.bench.bed import (
    LEAST_SPEED,
    Figure,
    Session,
    figure_of_pairs,
    make_plan,
    make_trial,
    run_plan,
    scratch,
    single_figure,
)
from reliability.campaign import tell

NONE, ALL = "none", "all"
IN_GUEST = ("iostat", "sar", "vmtouch", "bpftrace", "blocklat", "damon")
"""perf-mem needs a sampling unit of the CPU, which an emulated one has not."""
NATIVELY = ("iostat", "sar", "vmtouch")
TRIALS = 3
BUSY = "busy"
"""Trials without collectors whose readers keep every CPU busy, for the sampler's gaps."""
_SECONDS = 4.0


@dataclass(frozen=True)
class Reader:
    """The arguments of pcread, the size of its file, and the cache state at the start."""

    words: tuple[str, ...]
    file_mib: int
    cache: str


_BLOCKS = ("--pattern", "random", "--block-bytes", "4096")
_COLD = Reader(("--source", "mmap", *_BLOCKS), 128, "cold")
_RESIDENT = Reader(("--source", "pread", *_BLOCKS, "--passes", "1000000"), 64, "warm")
READERS = {"cold": _COLD, "resident": _RESIDENT}
_NATIVE_READERS = {
    # The machine's read-ahead may be megabytes.
    "cold": replace(_COLD, words=(*_COLD.words, "--advice", "random"), file_mib=2048),
    "resident": replace(_RESIDENT, file_mib=256),
}
"""A cold file is larger than what is read in these seconds."""
_BUSY = Reader(
    ("--source", "heap", "--threads", "4", "--warm-passes", "4000", "--block-bytes", "65536"),
    16,
    "cold",
)


@dataclass(frozen=True)
class Observed:
    """One trial: its speed, latency, reads from the disk, and its sampler's gaps in seconds.

    A trial without collectors took turns with those of the set `beside`.
    """

    reader: str
    collectors: str
    beside: str
    bytes_per_second: float
    block_p99_us: float | None
    device_read_bytes: float | None
    median_gap_seconds: float
    longest_gap_seconds: float
    statuses: Mapping[str, str]


def sets_of(names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return each collector alone, all together, and a busy machine."""
    return {**{name: (name,) for name in names}, ALL: tuple(names), BUSY: ()}


def plan_of_reading(
    names: Sequence[str], rounds: int, driver: str, readers: Sequence[str] = tuple(READERS)
) -> Plan:
    """Return a plan with a machine state for each reader and set in each round.

    What is first alternates. A busy machine has one reader of its own.
    """
    trials: list[Trial] = []
    sets = [
        (reader, beside, collectors)
        for reader in readers
        for beside, collectors in sets_of(names).items()
        if beside != BUSY or reader == readers[-1]
    ]
    blocks = [(number, *one) for number in range(rounds) for one in sets]
    for block, (number, reader, beside, collectors) in enumerate(blocks, 1):
        pair = {BUSY: ()} if beside == BUSY else {NONE: (), beside: collectors}
        for turn in range(TRIALS):
            for name in pair if (number + turn) % 2 == 0 else reversed(pair):
                trial_id = f"{name}_{beside}_{reader}_{number}_{turn}"
                shown = {"reader": reader, "collectors": name, "beside": beside}
                trials.append(_trial(trial_id, shown, pair[name], block, driver))
    return make_plan(trials, "observers", "block")


def _trial(
    trial_id: str,
    treatment: Mapping[str, str],
    collectors: tuple[str, ...],
    block: int,
    driver: str,
) -> Trial:
    is_native = driver == WITHOUT_LIMITS
    readers = _NATIVE_READERS if is_native else READERS
    reader = _BUSY if treatment["collectors"] == BUSY else readers[treatment["reader"]]
    words = ("--file", "{file}", *reader.words, "--max-seconds", f"{_SECONDS:g}")
    return make_trial(
        trial_id,
        Workload("pcread", words, "handshake"),
        experiment="observers",
        treatment=treatment,
        block=block,
        driver=driver,
        cache=reader.cache,
        dataset=Dataset(reader.file_mib * MIB),
        read_ahead_kb=None if is_native else 128,
        collectors=collectors,
        max_seconds=_SECONDS,
    )


def observe(wish: str, plan: Plan) -> list[Observed]:
    folder = run_plan(wish, plan)
    records = folder.last_records()
    places = {trial.trial_id: trial for trial in plan.trials}
    return [_observed(folder, places[name], record) for name, record in records.items()]


def _observed(folder: RunFolder, trial: Trial, record: Record) -> Observed:
    if record.outcome != "ok":
        raise RuntimeError(f"{record.trial_id} is {record.outcome}: {record.error}")
    path = folder.path / record.traces["sampler"]
    moments = [json.loads(line)["t"] for line in path.read_text().splitlines()]
    gaps = [after - before for before, after in pairwise(moments)][:-1]
    found = record.response
    return Observed(
        trial.treatment["reader"],
        trial.treatment["collectors"],
        trial.treatment["beside"],
        float(found["bytes_per_second"] or 0),
        found.get("block_p99_us"),
        found.get("device_read_bytes"),
        median(gaps),
        max(gaps),
        {name: one["status"] for name, one in record.collectors.items()},
    )


def figures(found: Sequence[Observed], prefix: str) -> Iterator[Figure]:
    """Yield the speed of each set beside that of none, by reader, and the longest gap."""
    pairs = dict.fromkeys((one.reader, one.beside) for one in found if one.beside != BUSY)
    for reader, name in pairs:
        with_them, without = pairs_of(found, reader, name)
        says = f"{median(with_them) / 1e6:.2f} and {median(without) / 1e6:.2f} MB/s"
        title = f"{prefix}{name} / none, {reader} file"
        yield figure_of_pairs(title, with_them, without, says, least=LEAST_SPEED)
    gap = max(one.longest_gap_seconds for one in found)
    yield single_figure(f"{prefix}longest gap of the sampler, s", gap, "1 or less", gap <= 1, "")


def pairs_of(found: Sequence[Observed], reader: str, name: str) -> tuple[list[float], list[float]]:
    """Return a reader's speeds with a set of collectors, and without it in the trials beside."""
    rows = [one for one in found if (one.reader, one.beside) == (reader, name)]
    with_them = [one.bytes_per_second for one in rows if one.collectors == name]
    return with_them, [one.bytes_per_second for one in rows if one.collectors == NONE]


def measure(
    session: Session, rounds: int = 1, readers: Sequence[str] = tuple(READERS)
) -> Iterator[Figure]:
    """Measure in the guest or on this machine; keep what each trial showed."""
    session.leave()
    is_local = session.wish == "local"
    names, driver = (NATIVELY, WITHOUT_LIMITS) if is_local else (IN_GUEST, DRIVERS[0])
    found = observe(session.wish, plan_of_reading(names, rounds, driver, readers))
    path = scratch() / f"observers-{'natively' if is_local else 'guest'}.jsonl"
    with path.open("a") as file:
        file.writelines(f"{json.dumps(asdict(one))}\n" for one in found)
    yield from figures(found, "")


if __name__ == "__main__":
    assert set(IN_GUEST) < set(COLLECTORS)
    wish, rounds, *readers = sys.argv[1:] if len(sys.argv) > 2 else [sys.argv[1], "1"]
    with Session(wish) as session:
        for figure in measure(session, int(rounds), readers or tuple(READERS)):
            tell(f"{figure.name}: {figure.ratio:.3f} [{figure.low:.3f}, {figure.high:.3f}]"
                f" {figure.says}")  # fmt: skip
