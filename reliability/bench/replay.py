"""The overhead of a replay, inside and around the program, compared with a plain scope."""

from __future__ import annotations

import json
from collections.abc import Iterator
from statistics import median

from pagecage.linux.systemd import Systemd
from pagecage.model.cage import UNCAGED, Cage
from pagecage.model.record import Record
from pagecage.model.trial import CommandSpec, Trial, Workload
from pagecage.planning.options import definitions
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

RUNS = 7
CAGED = "customer-tenth"
# Runs inside the scope, so that its own start counts as little as the harness's.
_TIMED = """
import subprocess, sys, time
begin = time.monotonic()
subprocess.run(sys.argv[1:], check=True, stderr=subprocess.DEVNULL)
print(time.monotonic() - begin)
"""
_BARE = """
import json, os, subprocess, sys
order = json.loads(sys.argv[1])
for _ in range(order["runs"]):
    for command in order["begin"]:
        subprocess.run(command, check=True)
    with open(order["file"], "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    subprocess.run(order["scope"], check=True)
    subprocess.run(order["end"], check=True)
"""


def measure(session: Session) -> Iterator[Figure]:
    """Measure what the harness adds inside and around a program."""
    bed = session.bed()
    alone = bare_seconds(bed)
    session.leave()
    yield from replays(session.wish, bed.dataset, alone)


def program(file: str, cage: str) -> list[str]:
    """Return a foreign program: it reads the whole file, or as much as a cap lets pass in some
    seconds.
    """
    return ["dd", f"if={file}", "of=/dev/null", "bs=256k", *["count=256"] * (cage == CAGED)]


def bare_seconds(bed: Bed) -> dict[str, list[float]]:
    """Return the seconds of the program by cage, in a scope of a slice with the same limits, its
    file cold.
    """
    return {name: _bare(bed, cage) for name, cage in _cages().items()}


def _cages() -> dict[str, Cage]:
    return {UNCAGED: Cage(UNCAGED, {}), CAGED: definitions().cage(CAGED, None)}


def _bare(bed: Bed, cage: Cage) -> list[float]:
    tell(f"{RUNS} bare runs in {cage.name}")
    systemd, unit = Systemd(bed.host.user, 257), "pagecage-bare.slice"
    timed = ["python3", "-S", "-c", _TIMED, *program(bed.dataset, cage.name)]
    order = {
        "runs": RUNS,
        "file": bed.dataset,
        "begin": systemd.make_commands(unit, cage, bed.host.data_dir),
        "scope": systemd.enter_command(unit, timed),
        "end": systemd.systemctl("stop", unit),
    }
    done = bed.run("python3", "-c", _BARE, json.dumps(order))
    return [float(line) for line in done.stdout.split()]


def replays(wish: str, file: str, bare: dict[str, list[float]]) -> Iterator[Figure]:
    """Run the same with the harness; return its overhead by cage."""
    trials = [_trial(file, cage, n) for n in range(RUNS) for cage in _cages().values()]
    last = run_plan(wish, make_plan(trials, "bench-replay")).last_records()
    for cage in bare:
        records = [last[f"{cage.replace('-', '_')}_{n}"] for n in range(RUNS)]
        replayed = [response_of(record, "wall_seconds") for record in records]
        says = f"{median(replayed):.2f} s in a replay, {median(bare[cage]):.2f} s bare"
        yield figure_of_pairs(f"replayed / bare, {cage}", replayed, bare[cage], says, most=1.02)
        yield _around(cage, records, bare[cage])


def _trial(file: str, cage: Cage, number: int) -> Trial:
    name, *arguments = program(file, cage.name)
    command = CommandSpec(data_paths=(file,), is_literal=True)
    workload = Workload(name, tuple(arguments), "command", command=command)
    trial_id = f"{cage.name.replace('-', '_')}_{number}"
    return make_trial(trial_id, workload, cage, experiment="bench-replay", cache="cold")


def _around(cage: str, records: list[Record], bare: list[float]) -> Figure:
    """The whole trial, from its first phase to its last: what a user waits for.

    The first one calibrates.
    """
    trials = [sum(phase.seconds for phase in record.phases) for record in records]
    says = (
        f"{median(trials[1:]):.2f} s a trial, {median(bare):.2f} s bare, {trials[0]:.2f} s the"
        " first trial"
    )
    return figure_of_pairs(f"trial of a replay / bare, {cage}", trials[1:], bare[1:], says)
