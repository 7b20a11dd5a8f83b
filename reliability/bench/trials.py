"""The overhead of the harness: an empty trial, and the collectors beside a reading trial."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median

from pagecage.model.record import Record
from pagecage.model.trial import COLLECTORS, Dataset, Trial, Workload
from pagecage.planning.options import definitions
from pagecage.units import MIB
from reliability.bench.bed import (
    Bed,
    Figure,
    Session,
    figure_of_pairs,
    make_plan,
    make_trial,
    response_of,
    run_plan,
)
from reliability.campaign import tell

NOTHINGS = 10
PAIRS = 5
_BARE = """
import subprocess, sys, time
for _ in range(int(sys.argv[1])):
    begin = time.monotonic()
    subprocess.run(["systemd-run", *sys.argv[2:], "--scope", "--quiet", "true"], check=True)
    print(time.monotonic() - begin)
"""


def measure(session: Session) -> Iterator[Figure]:
    """Measure the overhead of an empty trial and of the collectors."""
    bare = bare_scope_seconds(session.bed())
    session.leave()
    records = run_trials(session.wish)
    yield fixed_cost(records, bare)
    yield collectors_cost(records)


def bare_scope_seconds(bed: Bed) -> list[float]:
    """Return the seconds of `systemd-run --scope true` on the host."""
    tell(f"starting {NOTHINGS} bare scopes")
    done = bed.run("python3", "-c", _BARE, str(NOTHINGS), *(["--user"] if bed.host.user else []))
    return [float(line) for line in done.stdout.split()]


def run_trials(wish: str) -> Mapping[str, Record]:
    """Run the plan on its own host; return the records by trial."""
    nothing = Workload("true", (), "command")
    nothings = [make_trial(f"nothing_{n}", nothing) for n in range(NOTHINGS)]
    reading = [
        _reading(f"reading_{n}_{'on' if collectors else 'off'}", 2 + 2 * n + side, collectors)
        for n in range(PAIRS)
        for side, collectors in enumerate(((), COLLECTORS) if n % 2 else (COLLECTORS, ()))
    ]
    return run_plan(wish, make_plan([*nothings, *reading], fresh="block")).last_records()


def _reading(name: str, block: int, collectors: tuple[str, ...]) -> Trial:
    blocks = ("--source", "mmap", "--pattern", "random", "--block-bytes", "4096")
    return make_trial(
        name,
        Workload("pcread", ("--file", "{file}", *blocks, "--max-seconds", "10"), "handshake"),
        definitions().cage("customer-tenth", None),
        block=block,
        cache="cold",
        dataset=Dataset(128 * MIB),
        read_ahead_kb=128,
        collectors=collectors,
        max_seconds=10.0,
    )


def seconds_of_nothing(record: Record) -> float:
    """Return the seconds of a trial, from its first phase to its last."""
    return sum(phase.seconds for phase in record.phases)


def fixed_cost(records: Mapping[str, Record], bare: list[float]) -> Figure:
    """Compare an empty trial, from its first phase to its last, with a plain scope."""
    trials = [seconds_of_nothing(records[f"nothing_{n}"]) for n in range(NOTHINGS)]
    says = f"{median(trials):.2f} s a trial of nothing, {median(bare):.2f} s a bare scope"
    return figure_of_pairs("trial of nothing / bare scope", trials, bare, says)


def collectors_cost(records: Mapping[str, Record]) -> Figure:
    on, off = (
        [response_of(records[f"reading_{n}_{side}"], "bytes_per_second") for n in range(PAIRS)]
        for side in ("on", "off")
    )
    says = (
        f"{median(on) / 1e6:.2f} and {median(off) / 1e6:.2f} MB/s, random reads under"
        " customer-tenth"
    )
    return figure_of_pairs("collectors on / off", on, off, says, least=0.98)
