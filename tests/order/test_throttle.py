"""A trial with QEMU's throttling, by controller and real agent: set, removed, or refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pagecage.hosts.agent_package import AgentPackage, agent_bytes
from pagecage.model.record import Record, read_records
from pagecage.planning.plan import Plan
from pagecage.runner.campaign import Campaign
from pagecage.runner.run_folder import RunFolder
from tests.builders.plans import HARNESS
from tests.fake_host.hosts import on_fakes
from tests.fake_host.machine import WORKLOADS, Machine, make_trial

HELD = {"IOReadBandwidthMax": 20_000_000, "IOReadIOPSMax": 500}


def carry_out(machine: Machine, host: str) -> tuple[Record, list[str]]:
    agent = machine.root / "agent.pyz"
    agent.write_bytes(agent_bytes())
    package = AgentPackage(
        agent, tuple(path for path in WORKLOADS.iterdir() if path.is_file()), "0" * 64
    )
    trial = make_trial(driver="qemu-throttle", collectors=())
    plan = Plan(
        "20261121T100000Z-throttle-vm",
        (trial,),
        {"fresh": "never", "experiment": "t", "harness": HARNESS},
    )
    whole = replace(plan, document={**plan.document, "run_id": plan.run_id, "trials": []})
    folder = RunFolder.create(machine.root / "runs", whole)
    around = on_fakes(agent, machine, name=host)
    Campaign(around, plan, folder, package, lambda _: None).run()
    return list(read_records(folder.records_path))[-1], [
        call for call in around.calls if call.startswith("throttle")
    ]


def test_the_outer_machine_limits_the_disk_for_the_trial(machine: Machine) -> None:
    record, asked = carry_out(machine, "vm")
    assert (record.outcome, record.error) == ("ok", None)
    assert asked == [f"throttle {HELD}", "throttle {}"]
    assert record.cage.external == {"by": "qemu", "read_back": HELD}


@pytest.mark.parametrize("host", ["local"])
def test_a_host_without_an_outer_machine_is_refused(machine: Machine, host: str) -> None:
    record, _ = carry_out(machine, host)
    assert record.outcome == "requirement_missed"
    assert record.error == "nothing is around it"
    assert record.missed_requirements[0].hint == "use HOST=vm"
