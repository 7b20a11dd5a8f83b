"""The trials with planted lies in the guest, what caught them, and their section of docs/TRUST.md.

`python -m reliability.guest_lies.campaign` stores docs/trust/guest-lies.json.
"""

from __future__ import annotations

import os
import platform
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagecage.checkout import TOP
from pagecage.hosts.agent_package import make_agent_package
from pagecage.hosts.host import ResourceNeeds
from pagecage.hosts.vm.vm_host import VmHost
from pagecage.model.cage import Cage
from pagecage.model.record import Record, with_outer_host
from pagecage.model.run_files import read_lines
from pagecage.model.trial import Dataset, Trial, Workload
from pagecage.process import run, spawn
from pagecage.runner.campaign import Campaign
from pagecage.runner.run_folder import RunFolder
from pagecage.units import MIB
from pagecage.verdicts.evaluate import Verdicts, evaluate
from pagecage.verdicts.quiet import CPU_PRESSURE_SHARE
from reliability.campaign import RESULTS, guest_plan, read_results, write_results

DATA = Dataset(16 * MIB)
BYTES_PER_SECOND = 4_000_000
PAUSE_SECONDS = 2.0
HONEST, PAUSED, REPLACED = "honest", "paused", "replaced"
_PCREAD = Workload(
    "pcread", ("--file", "{file}", "--expect-sidecar", "{sidecar}", "--pattern", "sequential")
)
_OR = " or "
# It answers as pcread does after a whole pass, and reads nothing.
_LIAR = """#!/bin/sh
echo '{"type": "ready"}'
read -r go
sleep 1
echo '{"type": "end", "seconds": 1.0, "bytes": 16777216, "distinct_bytes": 16777216,
 "covered_fraction": 1.0, "checksum": 7, "checksum_ok": true, "threads": []}' | tr -d '\\n'
echo
read -r rest || :
"""
_WRITE = (
    "import os, sys; os.unlink(sys.argv[1]); open(sys.argv[1], 'w').write(sys.argv[2]);"
    " os.chmod(sys.argv[1], 0o755)"
)
_SLICE = "/sys/fs/cgroup/pagecage.slice/pagecage-{name}.1.slice"
_ON_DISK = "d=$(findmnt -n -o MAJ:MIN -T {data}); "


@dataclass(frozen=True)
class GuestLie:
    """A lie: the event of the trial at which it is planted, a command in the guest, a verdict.

    `expected` is the word of the verdict, or several joined by `or` if the moment decides.
    """

    name: str
    title: str
    moment: str
    command: str
    expected: str


LIES = (
    GuestLie(HONEST, "no lie", "", "", "enforced"),
    GuestLie(
        "raised",
        "the limit is raised for a second and put back",
        "go",
        _ON_DISK + "echo $d rbps=max >{slice}/io.max; sleep 1; echo $d rbps={cap} >{slice}/io.max",
        "leaky",
    ),
    GuestLie(
        "systemctl",
        "systemd lifts the limit during the measured part",
        "go",
        "systemctl set-property --runtime pagecage-{name}.1.slice IOReadBandwidthMax=",
        "leaky",
    ),
    GuestLie(
        "elsewhere",
        "the limit is on another disk",
        "collectors",
        _ON_DISK + "echo $d rbps=max >{slice}/io.max; echo 254:0 rbps={cap} >{slice}/io.max",
        "requirement_missed or leaky",
    ),
    GuestLie(
        "moved",
        "the workload is moved to another cgroup",
        "go",
        "sleep 1; mkdir -p /sys/fs/cgroup/outside; for p in $(find {slice} -name cgroup.procs -exec"
        " cat {{}} +); do echo $p >/sys/fs/cgroup/outside/cgroup.procs; done",
        "not_prepared",
    ),
    GuestLie(
        "warmed",
        "another process reads the file between the proof of its state and the start",
        "collectors",
        "cat {file} >/dev/null",
        "not_prepared",
    ),
    GuestLie(
        "sparse",
        "the file is replaced by a sparse one of the same size",
        "collectors",
        "cp -p {file} {file}.kept; truncate -s 0 {file}; truncate -s {size} {file}",
        "not_prepared",
    ),
    GuestLie(
        "neighbour",
        "another process reads from the disk",
        "go",
        "n=$(findmnt -n -o SOURCE -T {data}); dd if=$n of=/dev/null bs=1M count=24 iflag=direct",
        "not_quiet",
    ),
    GuestLie(PAUSED, "QEMU is stopped for two seconds", "go", "", "not_quiet"),
    GuestLie(REPLACED, "the workload answers without reading", "trial", "", "not_prepared"),
)
"""The last one stays: it replaces the workload's program in the guest."""


def is_caught(expected: str, found: str) -> bool:
    """Return whether a verdict is one that is expected."""
    return found in expected.split(_OR)


def trial_of(lie: GuestLie) -> Trial:
    """Return the trial in which a lie is planted: a sequential read at 4 MB/s."""
    return Trial(
        trial_id=lie.name,
        experiment="lies",
        treatment={"case": lie.name},
        repeat=1,
        block=1,
        position=0,
        workload=_PCREAD,
        cage=Cage("slow", {"IOReadBandwidthMax": BYTES_PER_SECOND}),
        cache="cold",
        dataset=DATA,
        read_ahead_kb=128,
        timeout_seconds=120.0,
    )


def plant(host: VmHost, lie: GuestLie) -> None:
    """Plant a lie; it acts for at most a few seconds. One during the measured part is detached."""
    if lie.name == PAUSED:
        threading.Thread(target=_pause, args=(host,)).start()
        return
    if lie.name == REPLACED:
        run(host.command(["python3", "-c", _WRITE, f"{host.spool_dir}/bin/pcread", _LIAR]))
        return
    command = lie.command.format(
        data=host.data_dir,
        file=f"{host.data_dir}/{DATA.file_name}",
        slice=_SLICE.format(name=lie.name),
        name=lie.name,
        cap=BYTES_PER_SECOND,
        size=DATA.size_bytes,
    )
    argv = host.command(["sh", "-c", command])
    if lie.moment == "go":
        spawn(argv)
    else:
        run(argv)


def _pause(host: VmHost) -> None:
    """Stop QEMU for two seconds."""
    pid = host._running().process_id.pid
    time.sleep(0.5)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(PAUSE_SECONDS)
    os.kill(pid, signal.SIGCONT)


def guest_lies_section(results: Path) -> Iterator[str]:
    if not (stored := read_results(results / "guest-lies.json")):
        return
    lies = [row for row in stored["lies"] if row["moment"]]
    missed = [row for row in stored["lies"] if not is_caught(row["expected"], row["found"])]
    caught = sum(is_caught(row["expected"], row["found"]) for row in lies)
    yield "## Lies on the real guest\n"
    yield (
        "Lies were also planted in the emulated guest, with its real kernel, systemd and disk."
        f" The expected verdict caught {caught} of {len(lies)} lies, and a trial without a lie is"
        " proven. Each trial is judged only by evidence from inside the guest: the verdict about"
        " load on the outer host is ignored. One lie is not always caught: processes that use"
        f" all CPUs may make a computing trial wait for {100 * CPU_PRESSURE_SHARE:.0f} % of its"
        " time before it is excluded.\n"
    )
    lines = [f"- {row['lie']}: expected {row['expected']}, found {row['found']}" for row in missed]
    yield from (f"{line}\n" for line in lines)


@dataclass(frozen=True)
class CaughtLie:
    """A lie, the word of what caught it, and the sentence that excludes its trial, if any."""

    lie: GuestLie
    found: str
    reason: str


def measure() -> list[CaughtLie]:
    """Plant every lie in a trial of its own; return what caught each."""
    by_name = {lie.name: lie for lie in LIES}
    host, package = VmHost(), make_agent_package(TOP)
    plan = guest_plan("lies-vm", "lies", [trial_of(lie) for lie in LIES])

    def disturb(event: Mapping[str, Any]) -> None:
        lie = by_name.get(event.get("trial_id", ""))
        if lie is not None and lie.moment == event.get("phase", event["event"]):
            plant(host, lie)

    with tempfile.TemporaryDirectory() as runs:
        folder = RunFolder.create(Path(runs), plan)
        campaign = Campaign(host, plan, folder, package, disturb)
        try:
            host.prepare(ResourceNeeds(0, 256 * MIB), print)
            state = host.start()
            host.install(package)
            campaign._serve(plan.trials, state)
        finally:
            host.stop()
        return [_judged(by_name[one.trial_id], one, folder) for one in folder.records()]


def _judged(lie: GuestLie, record: Record, folder: RunFolder) -> CaughtLie:
    """Judge a trial by what was seen inside the guest.

    Load on the machine around it would exclude every trial, whatever was planted.
    """
    inside = with_outer_host(record, None)
    verdicts = evaluate(inside, read_lines(folder.path, record, "sampler"))
    reason = record.error or "; ".join(verdicts.reasons)
    return CaughtLie(lie, _caught_by(record, verdicts), reason)


_CATCHING = ("leaky", "not_quiet", "contradictory")


def _caught_by(record: Record, verdicts: Verdicts) -> str:
    if record.outcome != "ok":
        return record.outcome
    limit = verdicts.limits[0].verdict
    words = (limit, verdicts.host_quiet.verdict, verdicts.consistency.verdict)
    return next((word for word in words if word in _CATCHING), limit)


def main() -> int:
    """Measure, and store the results; return 1 if a lie was not caught as expected."""
    found = measure()
    rows = [
        {"lie": one.lie.title, "moment": one.lie.moment, "expected": one.lie.expected}
        | {"found": one.found, "reason": one.reason}
        for one in found
    ]
    write_results(RESULTS / "guest-lies.json", {"machine": platform.machine(), "lies": rows})
    return int(any(not is_caught(one.lie.expected, one.found) for one in found))


if __name__ == "__main__":
    sys.exit(main())
