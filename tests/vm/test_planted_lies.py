"""Lies planted in trials of the real guest: each is caught by a named verdict."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from pagecage.hosts.agent_package import make_agent_package
from pagecage.hosts.host import ResourceNeeds
from pagecage.hosts.vm.vm_host import VmHost
from pagecage.model.cage import Cage
from pagecage.model.record import Record
from pagecage.model.traces import read_lines
from pagecage.model.trial import Dataset, Trial, Workload
from pagecage.planning.plan import Plan
from pagecage.process import run, spawn
from pagecage.runner.campaign import Campaign
from pagecage.runner.run_folder import RunFolder
from pagecage.units import MIB
from pagecage.verdicts.evaluate import Verdicts, evaluate
from tests.tree import ROOT

pytestmark = [pytest.mark.vm, pytest.mark.long]
DATA = Dataset(16 * MIB)
CAP = 4_000_000
PAUSE_SECONDS = 2.0
READ = ("--file", "{file}", "--expect-sidecar", "{sidecar}", "--pattern", "sequential")
# It answers as pcread does after a whole pass, and reads nothing.
LIAR = """#!/bin/sh
echo '{"type": "ready"}'
read -r go
sleep 1
echo '{"type": "end", "seconds": 1.0, "bytes": 16777216, "distinct_bytes": 16777216,
 "covered_fraction": 1.0, "checksum": 7, "checksum_ok": true, "threads": []}' | tr -d '\\n'
echo
read -r rest
"""
WRITE = (
    "import os, sys; os.unlink(sys.argv[1]); open(sys.argv[1], 'w').write(sys.argv[2]);"
    " os.chmod(sys.argv[1], 0o755)"
)
SLICE = "/sys/fs/cgroup/pagecage.slice/pagecage-{name}.1.slice"
ON_DISK = "d=$(findmnt -n -o MAJ:MIN -T {data}); "
# Trial: when the lie is planted, the command in the guest, and what catches it.
CASES: Mapping[str, tuple[str, str, str]] = {
    "honest": ("", "", "enforced"),
    "raised": (
        "go",
        ON_DISK + "echo $d rbps=max >{slice}/io.max; sleep 1; echo $d rbps={cap} >{slice}/io.max",
        "leaky",
    ),
    "elsewhere": (
        "collectors",
        ON_DISK + "echo $d rbps=max >{slice}/io.max; echo 254:0 rbps={cap} >{slice}/io.max",
        "requirement_missed",
    ),
    "warmed": ("collectors", "cat {file} >/dev/null", "not_prepared"),
    "neighbour": (
        "go",
        "n=$(findmnt -n -o SOURCE -T {data}); dd if=$n of=/dev/null bs=1M count=24 iflag=direct",
        "not_quiet",
    ),
    "paused": ("go", "", "not_quiet"),
    "liar": ("trial", "", "not_prepared"),
}


def trial(name: str) -> Trial:
    return Trial(
        trial_id=name,
        experiment="lies",
        treatment={"case": name},
        repeat=1,
        block=1,
        position=0,
        workload=Workload("pcread", READ),
        cage=Cage("slow", {"IOReadBandwidthMax": CAP}),
        cache="cold",
        dataset=DATA,
        read_ahead_kb=128,
        timeout_seconds=120.0,
    )


def plant(host: VmHost, name: str) -> None:
    """Plant the lie of a trial; it acts for at most a few seconds."""
    if name == "paused":
        threading.Thread(target=pause, args=(host,)).start()
        return
    command = CASES[name][1].format(
        data=host.data_dir,
        file=f"{host.data_dir}/{DATA.file_name}",
        slice=SLICE.format(name=name),
        cap=CAP,
    )
    if name == "liar":
        run(host.command(["python3", "-c", WRITE, f"{host.spool_dir}/bin/pcread", LIAR]))
    elif CASES[name][0] == "go":
        spawn(host.command(["sh", "-c", command]))
    else:
        run(host.command(["sh", "-c", command]))


def pause(host: VmHost) -> None:
    """Stop QEMU for two seconds."""
    pid = host._running().process_id.pid
    time.sleep(0.5)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(PAUSE_SECONDS)
    os.kill(pid, signal.SIGCONT)


Found = tuple[Record, Verdicts]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Found]]:
    """Every trial with its lie, and its verdicts."""
    host, package = VmHost(), make_agent_package(ROOT)
    harness = {"version": "0", "git_revision": None, "git_dirty": None}
    plan = Plan(
        "lies-vm",
        tuple(map(trial, CASES)),
        {"fresh": "never", "experiment": "lies", "harness": harness},
    )
    document = {**plan.document, "run_id": plan.run_id, "trials": []}
    folder = RunFolder.create(tmp_path_factory.mktemp("lies"), replace(plan, document=document))

    def disturb(event: Mapping[str, Any]) -> None:
        name = event.get("trial_id", "")
        moment = event.get("phase", event["event"])
        if name in CASES and CASES[name][0] == moment:
            plant(host, name)

    campaign = Campaign(host, plan, folder, package, disturb)
    try:
        host.prepare(ResourceNeeds(0, 256 * MIB), print)
        state = host.start()
        host.install(package)
        campaign._serve(plan.trials, state)
        yield {
            record.trial_id: (record, evaluate(record, read_lines(folder.path, record, "sampler")))
            for record in folder.records()
        }
    finally:
        host.stop()


def caught_by(one: Found) -> str:
    """Return the word of what caught a trial, or that of its limit."""
    record, verdicts = one
    if record.outcome != "ok":
        return record.outcome
    if verdicts.limits[0].verdict == "leaky":
        return "leaky"
    if verdicts.host_quiet.verdict == "not_quiet":
        return "not_quiet"
    if verdicts.consistency.verdict == "contradictory":
        return "contradictory"
    return verdicts.limits[0].verdict


@pytest.mark.parametrize("name", CASES)
def test_each_lie_is_caught(found: Mapping[str, Found], name: str) -> None:
    record, verdicts = found[name]
    assert caught_by(found[name]) == CASES[name][2], (record.error, verdicts)
