"""The controller's cost of a fleet of hosts: `python -m reliability.bench.fleet_growth HOSTS`.

The hosts are folders of this machine. A small program stands for ansible-playbook, and starts one
scripted agent after the other, which answers at once. Every host runs the whole plan.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from pagecage import ansible
from reliability.bench.bed import Figure, growth_figure, keep, scratch
from reliability.bench.growth import BLOCK, measured_in_child, most_memory_bytes, plan_of_nothing
from reliability.campaign import tell
from tests.fake_host.rack import Rack
from tests.tree import ROOT

HOSTS = (1, 10, 100)


@dataclass(frozen=True)
class FleetCost:
    """CPU seconds and memory of the controller, for so many hosts and trials of all of them."""

    hosts: int
    trials: int
    cpu_seconds: float
    most_bytes: int


def run_fleet(hosts: int) -> FleetCost:
    """Run a plan on each of so many hosts, in this process."""
    top = scratch() / f"fleet-{os.getpid()}"
    os.environ["FAKE_RACK"] = str(top)
    small = str(ROOT / "tests/fake_host/small_ansible.py")
    ansible.ansible_program = lambda *_: small
    rack = Rack(top, tuple(f"host{number}" for number in range(hosts)))
    try:
        rack.make()
        began = time.process_time()
        folder = rack.begin(plan_of_nothing(BLOCK, "never"))
        rack.go(folder)
        seconds = time.process_time() - began
        trials = sum(len(one.records()) for one in folder.host_folders().values())
    finally:
        shutil.rmtree(top, ignore_errors=True)
    assert trials == hosts * BLOCK, f"{trials} records"
    return FleetCost(hosts, trials, seconds, most_memory_bytes())


def in_child(hosts: int) -> FleetCost:
    tell(f"a fleet of {hosts} hosts")
    return FleetCost(**measured_in_child("reliability.bench.fleet_growth", str(hosts)))


def measure() -> Iterator[Figure]:
    """Compare the cost of a trial on many hosts with that on ten."""
    costs = [in_child(hosts) for hosts in HOSTS]
    keep("fleets", costs)
    _, some, many = costs
    growth = (many.cpu_seconds / many.trials) / (some.cpu_seconds / some.trials)
    says = ", ".join(
        f"{1000 * one.cpu_seconds / one.trials:.1f} ms of CPU a trial on {one.hosts} hosts"
        for one in costs
    )
    yield growth_figure("fleet, a trial", growth, says)


if __name__ == "__main__":
    print(json.dumps(asdict(run_fleet(int(sys.argv[1])))))
