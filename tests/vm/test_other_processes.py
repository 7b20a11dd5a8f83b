"""Another process in the guest that reads or drops a trial's file: the trial has no answer, its
next attempt has one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from pagecage.hosts.agent_package import make_agent_package
from pagecage.hosts.host import ResourceNeeds
from pagecage.hosts.vm.vm_host import VmHost
from pagecage.model.cage import Cage
from pagecage.model.record import Record
from pagecage.model.trial import CommandSpec, Dataset, Trial, Workload
from pagecage.process import PIPE, run, spawn
from pagecage.runner.campaign import Campaign
from pagecage.units import MIB
from pagecage.verdicts.evaluate import evaluate
from tests.builders.guest_runs import one_trial, stored_plan
from tests.builders.known import known
from tests.tree import ROOT

pytestmark = [pytest.mark.vm, pytest.mark.slow]
DATA = Dataset(8 * MIB)
DONE = "/dev/shm/another-process-is-done"
READ = (
    *("--file", "{file}", "--expect-sidecar", "{sidecar}", "--pattern", "sequential", "--source"),
    "mmap",
)
SLOWLY = ("--block-bytes", "131072", "--pause-us", "30000")
# Acts as soon as a trial's slice exists, which is made after its cache state was proven.
WATCHER = """
import json, os, subprocess, sys, time
waiting = json.loads(sys.argv[1])
print("watching", flush=True)
while waiting:
    for slice_, command in list(waiting.items()):
        if os.path.isdir(slice_):
            subprocess.run(command, shell=True, check=True)
            del waiting[slice_]
    time.sleep(0.01)
"""


def pcread(*arguments: str) -> Workload:
    return Workload("pcread", (*READ, *arguments))


def sh(script: str, **command: Any) -> Workload:
    return Workload("sh", ("-c", script), "command", command=CommandSpec(**command))


WAITS = sh(
    f"head -c 1M {{file}} >/dev/null; until test -e {DONE}; do sleep 0.1; done; cat {{file}}"
    " >/dev/null"
)
SERVICE = sh("cat {file} >/dev/null; echo serving; exec sleep 60", ready_when="serving")
# Trial: its program, its cache state, when another process acts, and the expected error.
CASES: Mapping[str, tuple[Workload, str, str, str]] = {
    "workload": (pcread(), "cold", "proven", "another process had read"),
    "command": (sh("cat {file} >/dev/null"), "cold", "proven", "another process had read"),
    "service": (SERVICE, "cold", "proven", "another process had read"),
    "command-runs": (WAITS, "cold", "go", "since it is charged for these pages"),
    "workload-runs": (pcread(*SLOWLY), "cold", "go", "since it is charged for these pages"),
    "dropped": (pcread(), "resident", "proven", "left the page cache before"),
    "dropped-runs": (pcread(*SLOWLY), "resident", "go", "had to be read again"),
}
QUICK = tuple(name for name, case in CASES.items() if case[2] == "proven")


def trial(name: str) -> Trial:
    workload, cache, _, _ = CASES[name]
    return one_trial(
        name,
        workload=workload,
        cage=Cage("uncaged", {}),
        cache=cache,
        dataset=DATA,
        read_ahead_kb=128,
        timeout_seconds=60.0,
    )


def act(host: VmHost, name: str) -> str:
    """Return the other process's command for a case."""
    path, (_, cache, when, _) = f"{host.data_dir}/{DATA.file_name}", CASES[name]
    does = (
        f"dd if={path} iflag=nocache count=0 status=none"
        if cache == "resident"
        else f"cat {path} >/dev/null"
    )
    return f"{does}; touch {DONE}" if when == "go" else does


@contextmanager
def watching(host: VmHost) -> Iterator[None]:
    """The other process, acting on the first attempt of each trial that is to be disturbed
    before `go`.
    """
    slices = {
        name: f"/sys/fs/cgroup/pagecage.slice/pagecage-{name.replace('-', '_')}.1.slice"
        for name in CASES
    }
    table = {slices[name]: act(host, name) for name, case in CASES.items() if case[2] == "proven"}
    argv = host.command(["python3", "-c", WATCHER, json.dumps(table)])
    watcher = spawn(argv, stdin=PIPE, stdout=PIPE)
    assert known(watcher.stdout).readline() == b"watching\n"
    yield
    assert watcher.wait(30) == 0


@pytest.fixture(scope="module")
def attempts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, int], Record]]:
    """Each trial disturbed; the short ones once more, as a run retries them."""
    host, package = VmHost(), make_agent_package(ROOT)
    plan, folder = stored_plan(tmp_path_factory.mktemp("kept"), "kept-vm", *map(trial, CASES))
    disturbed: set[str] = set()

    def disturb(event: Mapping[str, Any]) -> None:
        name = event.get("trial_id", "")
        if event["event"] == "go" and CASES[name][2] == "go" and name not in disturbed:
            disturbed.add(name)
            run(host.command(["sh", "-c", act(host, name)]))

    campaign = Campaign(host, plan, folder, package, disturb)
    try:
        host.prepare(ResourceNeeds(0, 256 * MIB), print)
        state = host.start()
        host.install(package)
        with watching(host):
            campaign._serve(plan.trials, state)
        quick = tuple(one for one in folder.remaining(plan) if one.trial_id in QUICK)
        campaign._serve(quick, state)
        yield {(record.trial_id, record.attempt): record for record in folder.records()}
    finally:
        host.stop()


@pytest.mark.parametrize("name", CASES)
def test_a_disturbed_trial_is_refused_whatever_it_printed(
    attempts: dict[tuple[str, int], Record], name: str
) -> None:
    record = attempts[name, 1]
    assert record.outcome == "not_prepared", record.cache
    assert CASES[name][3] in (record.error or "")
    assert record.response == {}
    assert evaluate(record).cache_state_reached.verdict == "not_reached"
    is_at_gate = CASES[name][2] == "proven"
    assert (record.measured is None) == is_at_gate, "what is found at the gate is never let go"


@pytest.mark.parametrize("name", QUICK)
def test_the_next_attempt_is_believed_to_the_page(
    attempts: dict[tuple[str, int], Record], name: str
) -> None:
    record = attempts[name, 2]
    assert (record.outcome, record.error) == ("ok", None)
    assert evaluate(record).cache_state_reached.verdict == "reached"
    start, go, end = (getattr(record.cache, moment) for moment in ("start", "go", "end"))
    if CASES[name][1] == "resident":
        assert {start.resident_bytes, go.resident_bytes, end.resident_bytes} == {DATA.size_bytes}
        return
    assert (start.resident_bytes, go.resident_bytes) == (0, 0)
    assert end.resident_bytes == end.read_bytes - start.read_bytes == record.cache.came_bytes
    assert end.charged_bytes == pytest.approx(DATA.size_bytes, abs=record.cache.charge_lag_bytes)
