"""The effect of each collector on a reader: `python -m tests.bench.observers HOST ROUNDS`.

The reader reads a cold file in random blocks through a mapping, without limits, so that it waits
for nothing but the disk and the CPU. In each round every set of collectors, each alone and all
together, has a machine state of its own, in which trials with and without it take turns. The
sampler runs in every trial; its gaps are read from its rows.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import median

from pagecage.checkout import TOP
from pagecage.cli.host_choice import choose_host
from pagecage.cli.run_plan import harness
from pagecage.hosts.agent_package import make_agent_package
from pagecage.model.cage import UNCAGED, Cage
from pagecage.model.record import Record
from pagecage.model.trial import COLLECTORS, DRIVERS, WITHOUT_LIMITS, Dataset, Trial, Workload
from pagecage.planning.plan import Plan
from pagecage.runner.campaign import Campaign
from pagecage.runner.run_folder import RunFolder
from pagecage.units import MIB
from tests.bench.bed import Figure, ratio_of_pairs, scratch
from tests.bench.goals import LEAST_SPEED
from tests.bench.say import say
from tests.bench.session import Session
from tests.bench.trials import tell

NONE, ALL = "none", "all"
IN_GUEST = ("iostat", "sar", "vmtouch", "bpftrace", "blocklat", "damon")
"""perf-mem needs a sampling unit of the CPU, which an emulated one has not."""
NATIVELY = ("iostat", "sar", "vmtouch")
TRIALS = 3
BUSY = "busy"
"""Trials without collectors whose readers keep every CPU busy, for the sampler's gaps."""
_SECONDS = 4.0
_FILE_MIB, _NATIVE_FILE_MIB, _BUSY_FILE_MIB = 128, 2048, 16
"""More than a reader reads in these seconds, in an emulated guest and on a machine of its own."""
_READING = ("--source", "mmap", "--pattern", "random", "--block-bytes", "4096")
_NATIVE_READING = (*_READING, "--advice", "random")  # the machine's read-ahead may be megabytes
_BUSY = ("--source", "heap", "--threads", "4", "--warm-passes", "4000", "--block-bytes", "65536")


@dataclass(frozen=True)
class Observed:
    """One trial: its speed, latency, reads from the disk, and its sampler's gaps in seconds.

    A trial without collectors took turns with those of the set `beside`.
    """

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


def plan_of_reading(names: Sequence[str], rounds: int, driver: str) -> Plan:
    """Return a plan with a machine state for each set in each round; what is first alternates."""
    trials: list[Trial] = []
    blocks = [(number, *one) for number in range(rounds) for one in sets_of(names).items()]
    for block, (number, beside, collectors) in enumerate(blocks, 1):
        pair = {BUSY: ()} if beside == BUSY else {NONE: (), beside: collectors}
        for turn in range(TRIALS):
            for name in pair if (number + turn) % 2 == 0 else reversed(pair):
                trial_id = f"{name}_{beside}_{number}_{turn}"
                shown = {"collectors": name, "beside": beside}
                trials.append(_trial(trial_id, shown, pair[name], block, driver))
    run_id = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-observers"
    return Plan(
        run_id, tuple(trials), {"experiment": "observers", "fresh": "block", "harness": harness()}
    )


def _trial(
    trial_id: str,
    treatment: Mapping[str, str],
    collectors: tuple[str, ...],
    block: int,
    driver: str,
) -> Trial:
    is_native = driver == WITHOUT_LIMITS
    if treatment["collectors"] == BUSY:
        reading, file_mib = _BUSY, _BUSY_FILE_MIB
    elif is_native:
        reading, file_mib = _NATIVE_READING, _NATIVE_FILE_MIB
    else:
        reading, file_mib = _READING, _FILE_MIB
    return Trial(
        trial_id=trial_id,
        experiment="observers",
        treatment=treatment,
        repeat=1,
        block=block,
        position=0,
        workload=_reader(reading),
        cage=Cage(UNCAGED, {}),
        driver=driver,
        cache="cold",
        dataset=Dataset(file_mib * MIB),
        read_ahead_kb=None if is_native else 128,
        collectors=collectors,
        max_seconds=_SECONDS,
    )


def _reader(reading: tuple[str, ...]) -> Workload:
    words = ("--file", "{file}", *reading, "--max-seconds", f"{_SECONDS:g}")
    return Workload("pcread", words, "handshake")


def observe(wish: str, names: Sequence[str], rounds: int, driver: str) -> list[Observed]:
    """Run the plan; return what each trial showed."""
    host, plan = choose_host(wish, None, say), plan_of_reading(names, rounds, driver)
    folder = RunFolder.create(scratch(), plan)
    Campaign(host, plan, folder, make_agent_package(TOP), tell).run()
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
    """Yield the speed of each set beside that of none, round by round, and the longest gap."""
    for name in dict.fromkeys(one.beside for one in found if one.beside != BUSY):
        with_them, without = pairs_of(found, name)
        ratio, low, high = ratio_of_pairs(with_them, without)
        says = f"{median(with_them) / 1e6:.2f} and {median(without) / 1e6:.2f} MB/s"
        yield Figure(
            f"{prefix}{name} / none", ratio, low, high, f"{LEAST_SPEED:g} or more",
            ratio >= LEAST_SPEED, len(without), says,
        )  # fmt: skip
    gap = max(one.longest_gap_seconds for one in found)
    yield Figure(
        f"{prefix}longest gap of the sampler, s", gap, gap, gap, "1 or less", gap <= 1, 1, ""
    )


def pairs_of(found: Sequence[Observed], name: str) -> tuple[list[float], list[float]]:
    """Return the speeds with a set of collectors, and without it in the trials beside."""
    rows = [one for one in found if one.beside == name]
    with_them = [one.bytes_per_second for one in rows if one.collectors == name]
    return with_them, [one.bytes_per_second for one in rows if one.collectors == NONE]


def measure(session: Session, rounds: int = 1) -> Iterator[Figure]:
    """Measure in the guest or on this machine; keep what each trial showed."""
    session.leave()
    is_local = session.wish == "local"
    names, driver = (NATIVELY, WITHOUT_LIMITS) if is_local else (IN_GUEST, DRIVERS[0])
    found = observe(session.wish, names, rounds, driver)
    path = scratch() / f"observers-{'natively' if is_local else 'guest'}.jsonl"
    with path.open("a") as file:
        file.writelines(f"{json.dumps(asdict(one))}\n" for one in found)
    yield from figures(found, "")


if __name__ == "__main__":
    assert set(IN_GUEST) < set(COLLECTORS)
    with Session(sys.argv[1]) as session:
        for figure in measure(session, int(sys.argv[2]) if len(sys.argv) > 2 else 1):
            say(f"{figure.name}: {figure.ratio:.3f} [{figure.low:.3f}, {figure.high:.3f}]"
                f" {figure.says}")  # fmt: skip
