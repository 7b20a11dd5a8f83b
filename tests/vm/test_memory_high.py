"""MemoryHigh on a real kernel: set by systemd, or beside Docker's own limits on the slice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pagecage.hosts.agent_package import make_agent_package
from pagecage.hosts.vm.vm_host import VmHost
from pagecage.model.cage import Cage
from pagecage.model.record import Record
from pagecage.model.trial import CommandSpec, Trial, Workload
from pagecage.planning.plan import Plan
from pagecage.runner.campaign import Campaign
from pagecage.runner.run_folder import RunFolder
from pagecage.units import MIB
from pagecage.verdicts.evaluate import evaluate
from tests.tree import ROOT

pytestmark = [pytest.mark.vm, pytest.mark.slow, pytest.mark.timeout(900)]
_HIGH_BYTES = 24 * MIB
_FILL = "b = bytearray(b'1') * (26 << 20); print(len(b))"
_DRIVERS = ["systemd-scope", pytest.param("docker-api", marks=pytest.mark.long)]


def trial(driver: str) -> Trial:
    return Trial(
        trial_id=driver.replace("-", "_"),
        experiment="throttled",
        treatment={"driver": driver},
        repeat=1,
        block=1,
        position=0,
        workload=Workload(
            "python3", ("-I", "-c", _FILL), "command", command=CommandSpec(is_literal=True)
        ),
        cage=Cage("throttled", {"MemoryHigh": _HIGH_BYTES, "MemorySwapMax": 0}),
        timeout_seconds=120.0,
        driver=driver,
    )


@pytest.fixture(scope="module", params=_DRIVERS)
def record(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Record:
    """A program that needs a little more memory than the limit from which it is throttled."""
    trials = (trial(request.param),)
    harness = {"version": "0", "git_revision": None, "git_dirty": None}
    document = {"fresh": "never", "experiment": "throttled", "harness": harness}
    plan = Plan("throttled-vm", trials, document)
    stored = replace(plan, document={**document, "run_id": plan.run_id, "trials": []})
    folder = RunFolder.create(tmp_path_factory.mktemp("throttled"), stored)
    Campaign(VmHost(), plan, folder, make_agent_package(ROOT), lambda _: None).run()
    [found] = folder.records()
    return found


def test_the_program_ends_by_itself_above_the_limit(record: Record) -> None:
    """The kernel throttles and never kills, where MemoryMax would."""
    assert (record.outcome, record.error) == ("ok", None)
    cgroup = record.counters.totals["cgroup"]
    assert cgroup["memory.events"]["high"] > 0
    assert cgroup["memory.events"]["oom_kill"] == 0
    assert cgroup["memory.peak"] > _HIGH_BYTES


def test_the_limit_is_read_back_and_proven(record: Record) -> None:
    assert record.cage.read_back["memory.high"] == str(_HIGH_BYTES)
    limits = {limit.property: limit for limit in evaluate(record).limits}
    assert limits["MemoryHigh"].verdict == "enforced", limits["MemoryHigh"].reason


def test_the_diagnosis_names_it(record: Record) -> None:
    found = evaluate(record)
    assert found.binding_limit.verdict == "memory", found.binding_limit
    assert found.diagnosis.sentence.startswith("The MemoryHigh of 24 MiB held the program back")
