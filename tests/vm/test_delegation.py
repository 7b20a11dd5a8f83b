"""Limits that are not applied: without the io controller, trials of an ordinary user are
refused.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pagecage.checkout import TOP
from pagecage.hosts.agent_package import make_agent_package
from pagecage.hosts.host import MachineState, ResourceNeeds
from pagecage.hosts.ssh import ssh_argv
from pagecage.hosts.vm.vm_host import VmHost
from pagecage.model.json_codec import to_json
from pagecage.model.record import Record, read_records
from pagecage.model.requirements import delegation_command
from pagecage.planning.options import RunOptions, definitions
from pagecage.planning.run_plan import build_plan
from pagecage.process import run
from pagecage.runner.campaign import Campaign
from pagecage.runner.run_folder import RunFolder

pytestmark = [
    pytest.mark.vm,
    pytest.mark.long,
]  # each restarts a user's systemd, which takes a minute under emulation
_DROP_IN = "/etc/systemd/system/user@.service.d/50-pagecage.conf"
_CONTROLLERS = "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/cgroup.controllers"
_UNDO = f"rm {_DROP_IN} && systemctl daemon-reload && systemctl restart user@1000.service"


class Undelegated(VmHost):
    """The guest's ordinary user as Debian ships it: its systemd delegates memory and cpu, but
    not io.
    """

    def start(self) -> MachineState:
        state = super().start()
        run(ssh_argv(replace(self.target, user="root", control_path=None), ["sh", "-c", _UNDO]))
        return state


def run_smoke(host: VmHost, runs: Path) -> list[Record]:
    experiment = definitions().experiment("smoke")
    try:
        plan = build_plan(RunOptions(host="vm", dataset="smoke"), experiment, host, "a test", print)
        folder = RunFolder.create(runs, plan)
        Campaign(host, plan, folder, make_agent_package(TOP), lambda _: None).run()
    finally:
        host.stop()
    return list(read_records(folder.records_path))


def test_without_the_io_controller_every_trial_is_refused(tmp_path: Path) -> None:
    records = run_smoke(Undelegated("bench"), tmp_path)
    assert [record.outcome for record in records] == ["requirement_missed"] * 4
    for record in records:
        assert record.missed_requirements[0].requirement == "io_controller"
        assert to_json(record.counters) == {}
        assert record.response == {}


def test_the_commands_that_are_named_give_io_to_the_users_systemd() -> None:
    """The commands as pasted, without sudo, which the guest's root does not need."""
    running, ended = (
        delegation_command(1000, is_running=each).replace("sudo ", "") for each in (True, False)
    )
    end = f"rm {_DROP_IN}; loginctl disable-linger bench; systemctl stop user@1000.service"
    host = Undelegated()
    try:
        host.prepare(ResourceNeeds(0, 0), print)
        host.start()
        for script, has_io in (
            ("true", False),
            (running, True),
            (f"{end}; {ended}; sleep 2", True),
        ):
            printed = run(host.command(["sh", "-c", f"{script}; cat {_CONTROLLERS}"])).stdout
            assert ("io" in printed.split()) is has_io, f"{script}: {printed}"
    finally:
        host.stop()
