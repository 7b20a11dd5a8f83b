"""The overhead of the harness: an empty trial, and the collectors beside a reading trial."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from pagecage.checkout import TOP
from pagecage.cli.host_choice import choose_host
from pagecage.cli.options import definitions
from pagecage.cli.run_plan import harness
from pagecage.hosts.agent_package import make_agent_package
from pagecage.model.cage import UNCAGED, Cage
from pagecage.model.record import Record
from pagecage.model.trial import COLLECTORS, Dataset, Trial, Workload
from pagecage.planning.plan import Plan
from pagecage.runner.campaign import Campaign
from pagecage.runner.run_folder import RunFolder
from pagecage.units import MIB
from reliability.bench.bed import Bed, Figure, Session, figure_of_pairs, scratch
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


def run_nothings(wish: str) -> list[Record]:
    """Run empty trials on a host of their own; return their records."""
    nothings = _nothings()
    return list(_run(wish, _plan_of(nothings)).values())


def run_trials(wish: str) -> Mapping[str, Record]:
    """Run the plan on its own host; return the records by trial."""
    reading = [
        _trial(
            f"reading_{n}_{'on' if collectors else 'off'}",
            2 + 2 * n + side,
            "pcread",
            "handshake",
            collectors,
            Dataset(128 * MIB),
        )
        for n in range(PAIRS)
        for side, collectors in enumerate(((), COLLECTORS) if n % 2 else (COLLECTORS, ()))
    ]
    return _run(wish, _plan_of([*_nothings(), *reading]))


def _run(wish: str, plan: Plan) -> Mapping[str, Record]:
    host = choose_host(wish, None, tell)
    folder = RunFolder.create(scratch(), plan)
    Campaign(host, plan, folder, make_agent_package(TOP), tell_event).run()
    return folder.last_records()


def _nothings() -> list[Trial]:
    return [_trial(f"nothing_{n}", 1, "true", "command", (), None) for n in range(NOTHINGS)]


def _plan_of(trials: Sequence[Trial]) -> Plan:
    run_id = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-bench"
    document = {"experiment": "bench", "fresh": "block", "harness": harness()}
    return Plan(run_id, tuple(trials), document)


def seconds_of_nothing(record: Record) -> float:
    """Return the seconds of a trial, from its first phase to its last."""
    return sum(phase.seconds for phase in record.phases)


def _trial(
    name: str,
    block: int,
    program: str,
    kind: str,
    collectors: tuple[str, ...],
    data: Dataset | None,
) -> Trial:
    arguments = (
        "--file",
        "{file}",
        "--source",
        "mmap",
        "--pattern",
        "random",
        "--block-bytes",
        "4096",
        "--max-seconds",
        "10",
    )
    return Trial(
        trial_id=name,
        experiment="bench",
        treatment={},
        repeat=1,
        block=block,
        position=0,
        workload=Workload(program, arguments if data else (), kind),
        cage=definitions().cage("customer-tenth", None) if data else Cage(UNCAGED, {}),
        cache="cold" if data else "any",
        dataset=data,
        read_ahead_kb=128 if data else None,
        collectors=collectors,
        max_seconds=10.0 if data else None,
    )


def tell_event(event: Mapping[str, Any]) -> None:
    if event["event"] in ("step", "trial"):
        tell(str(event.get("text") or event.get("trial_id")))


def fixed_cost(records: Mapping[str, Record], bare: list[float]) -> Figure:
    """Compare an empty trial, from its first phase to its last, with a plain scope."""
    trials = [seconds_of_nothing(records[f"nothing_{n}"]) for n in range(NOTHINGS)]
    says = f"{median(trials):.2f} s a trial of nothing, {median(bare):.2f} s a bare scope"
    return figure_of_pairs("trial of nothing / bare scope", trials, bare, says)


def collectors_cost(records: Mapping[str, Record]) -> Figure:
    on, off = (
        [_speed(records[f"reading_{n}_{side}"]) for n in range(PAIRS)] for side in ("on", "off")
    )
    says = (
        f"{median(on) / 1e6:.2f} and {median(off) / 1e6:.2f} MB/s, random reads under"
        " customer-tenth"
    )
    return figure_of_pairs("collectors on / off", on, off, says, least=0.98)


def _speed(record: Record) -> float:
    speed = record.response.get("bytes_per_second")
    if not speed:
        raise RuntimeError(
            f"{record.trial_id} ended as {record.outcome} in {record.phase}: {record.error}"
        )
    return speed
