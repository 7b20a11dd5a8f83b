"""A limit that is not applied is no data point: without the io controller an ordinary user's trials are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pagecage.campaign import Campaign
from pagecage.cli.choose import Wishes, build_plan, definitions
from pagecage.cli.places import TOP
from pagecage.hosts.host import MachineState
from pagecage.hosts.kit import make_kit
from pagecage.hosts.ssh import ssh_argv
from pagecage.hosts.vm.host import VmHost
from pagecage.process import run
from pagecage.record import Record, read_records
from pagecage.runs import RunFolder

pytestmark = pytest.mark.vm
_DROP_IN = "/etc/systemd/system/user@.service.d/50-pagecage.conf"
_UNDO = f"rm {_DROP_IN} && systemctl daemon-reload && systemctl restart user@1000.service"


class Undelegated(VmHost):
    """The guest's ordinary user as Debian ships it: his systemd hands out memory and cpu, but not io."""

    def start(self) -> MachineState:
        state = super().start()
        run(ssh_argv(replace(self.target, user="root", control_path=None), ["sh", "-c", _UNDO]))
        return state


def run_smoke(host: VmHost, runs: Path) -> list[Record]:
    experiment = definitions().experiment("smoke")
    try:
        plan = build_plan(Wishes(host="vm", size="smoke"), experiment, host, "a test", print)
        folder = RunFolder.create(runs, plan)
        Campaign(host, plan, folder, make_kit(TOP), lambda _: None).run()
    finally:
        host.stop()
    return list(read_records(folder.records_path))


def test_without_the_io_controller_every_trial_is_refused(tmp_path: Path) -> None:
    records = run_smoke(Undelegated("bench"), tmp_path)
    assert [record.outcome for record in records] == ["requirement_missed"] * 4
    for record in records:
        assert record.missed_requirements[0]["requirement"] == "io_controller"
        assert record.counters == {}
        assert record.response == {}
