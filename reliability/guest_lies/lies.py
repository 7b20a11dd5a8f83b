"""Lies that are planted in trials of the real guest, and the verdict that must catch each."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import dataclass

from pagecage.hosts.vm.vm_host import VmHost
from pagecage.model.cage import Cage
from pagecage.model.trial import Dataset, Trial, Workload
from pagecage.process import run, spawn
from pagecage.units import MIB

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
