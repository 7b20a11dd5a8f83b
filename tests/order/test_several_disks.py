"""A trial whose cage names a second disk: its limits, its folder, and its refusals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pagecage.agent import storage
from pagecage.agent.drivers.container import container_of
from pagecage.agent.drivers.driver import LaunchContext
from pagecage.linux.block_device import Disk
from pagecage.linux.processes import SupervisedProcesses
from pagecage.linux.systemd import Systemd
from pagecage.model.cage import Cage, DiskLimits
from pagecage.model.json_codec import to_json
from pagecage.model.trial import CommandSpec, Trial, Workload
from pagecage.verdicts.limits import judge_limits
from tests.builders.served_volumes import served
from tests.builders.trial_runs import carry_out
from tests.fake_host.machine import MAJ_MIN, OTHER_MAJ_MIN, OTHER_NODE, Machine, make_trial
from tests.record_schema import breaches

APART = Cage("apart", {"IOReadIOPSMax": 500}, disks={"wal": DiskLimits({"IOWriteIOPSMax": 50})})
WAL_ALONE = replace(APART, properties={})
LIST = Workload("ls", ("-a", "{disk.wal}"), "command", command=CommandSpec())


def listing(cage: Cage) -> Trial:
    return make_trial(cage=cage, workload=LIST, cache="any", dataset=None, collectors=())


def test_the_slice_has_limits_on_both_disks(machine: Machine) -> None:
    record = carry_out(machine, make_trial(cage=APART, collectors=()))
    assert (record.outcome, record.error) == ("ok", None)
    log = record.disks["wal"]
    assert (record.device.maj_min, log.device.maj_min) == (MAJ_MIN, OTHER_MAJ_MIN)
    assert (record.cage.read_back or {})["io.max.wiops"] == "max"
    assert log.cage.expected == {"io.max.wiops": "50"}
    assert (log.cage.read_back or {})["io.max.wiops"] == "50"
    assert log.device.node == OTHER_NODE
    assert set((record.counters.before or {})["disks"]) == {"wal"}
    assert not breaches(to_json(record)), "docs/schema/record.schema.json"


def test_each_limit_is_driven_and_judged(machine: Machine) -> None:
    record = carry_out(machine, make_trial(cage=APART, collectors=()))
    assert set(record.disks["wal"].cage.calibration or {}) == {"IOWriteIOPSMax"}
    found = {(one.disk, one.property): one.verdict for one in judge_limits(record)}
    assert found == {(None, "IOReadIOPSMax"): "enforced", ("wal", "IOWriteIOPSMax"): "enforced"}


def test_a_limit_that_the_manager_forgets(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """systemd starts the slice all the same; only reading back finds out."""
    monkeypatch.setenv("FAKE_FORGETS", "io.max")
    record = carry_out(machine, make_trial(cage=WAL_ALONE, collectors=()))
    assert record.outcome == "requirement_missed"
    assert record.missed_requirements[0].requirement == "limits"
    assert "wal: io.max.wiops is missing, not 50" in (record.error or "")


def test_a_disk_that_the_host_lacks(machine: Machine) -> None:
    cage = Cage("apart", {}, disks={"index": DiskLimits({"IOReadIOPSMax": 50})})
    record = carry_out(machine, make_trial(cage=cage, collectors=()))
    [missed] = record.missed_requirements
    assert (record.outcome, record.phase) == ("requirement_missed", "requirements")
    assert missed.requirement == "other_disk"
    assert "this host has no disk 'index'" in missed.reason
    assert "--disk index=DIR" in missed.hint
    assert machine.log_lines() == [], "nothing was started"


def test_one_disk_under_two_names(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel would keep one limit for both."""
    monkeypatch.setattr(Machine, "other", machine.data / "log")
    record = carry_out(machine, make_trial(cage=APART, collectors=()))
    [missed] = record.missed_requirements
    assert missed.requirement == "other_disk"
    assert "wal and data are both /dev/fakedisk, for which there is one limit" in missed.reason
    assert record.phase == "requirements", "before anything was done"


def test_files_on_the_disk_of_another_name(machine: Machine) -> None:
    """The data are where their files lie, and not in the data directory."""
    (machine.other / "data").write_bytes(b"x" * 4096)
    command = CommandSpec(data_paths=(str(machine.other / "data"),))
    trial = replace(listing(WAL_ALONE), workload=replace(LIST, command=command))
    record = carry_out(machine, trial)
    assert (record.outcome, record.phase) == ("requirement_missed", "dataset")
    assert "wal and data are both /dev/otherdisk" in (record.error or "")


def test_a_driver_that_sets_limits_of_one_disk(machine: Machine) -> None:
    record = carry_out(machine, make_trial(cage=APART, collectors=(), driver="docker-flags"))
    assert record.outcome == "requirement_missed"
    assert "docker-flags limits one disk, and apart names several" in (record.error or "")


def test_the_folder_is_empty_and_goes(machine: Machine) -> None:
    (machine.other / "pagecage-wal").mkdir()
    (machine.other / "pagecage-wal/of-an-earlier-trial").touch()
    only_if_empty = Workload("rmdir", ("{disk.wal}",), "command", command=CommandSpec())
    record = carry_out(machine, replace(listing(WAL_ALONE), workload=only_if_empty))
    assert (record.outcome, record.error) == ("ok", None)
    record = carry_out(machine, listing(WAL_ALONE))
    folder = machine.other / "pagecage-wal"
    assert record.workload.argv == ("ls", "-a", str(folder))
    assert not folder.exists()


def test_without_such_a_disk_the_folder_is_beside_the_data(machine: Machine) -> None:
    record = carry_out(machine, listing(Cage("small", {"MemoryMax": 2**30})))
    assert (record.outcome, record.error) == ("ok", None)
    assert record.workload.argv == ("ls", "-a", str(machine.data / "pagecage-wal"))
    assert record.disks == {}


def test_a_literal_command_names_its_disks_too(machine: Machine) -> None:
    literal = replace(
        LIST, arguments=("{disk.wal}", "{file}"), command=CommandSpec(is_literal=True)
    )
    record = carry_out(machine, replace(listing(WAL_ALONE), workload=literal))
    assert record.workload.argv == ("ls", str(machine.other / "pagecage-wal"), "{file}")


def test_each_disk_is_a_volume_with_an_account_of_its_own(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served() as data, served() as log:
        servers = {"data": data, "wal": log}

        def ask(_stream: Any, _inbox: Any, _event: str, asked: Mapping[str, Any]) -> dict[str, Any]:
            return {"answer": servers[asked["disk"]].command(asked["command"])}

        monkeypatch.setattr(storage, "OF_OURS", machine.root)
        monkeypatch.setattr(storage, "ask", ask)
        cage = replace(APART, enforced_by="volume")
        record = carry_out(machine, make_trial(cage=cage, collectors=()))
        left = [one.command({"in_force": True})["in_force"]["limits"] for one in servers.values()]
    assert (record.outcome, record.error) == ("ok", None)
    own, others = record.cage, record.disks["wal"].cage
    assert (others.read_back or {})["io.max.wiops"] == "max", "the slice has no limit"
    for cage_of_disk, limit in ((own, 500), (others, 50)):
        assert cage_of_disk.external is not None
        assert [one["per_second"] for one in cage_of_disk.external["model"]["limits"]] == [limit]
        assert len(cage_of_disk.external["account"]["pcvolume"]["limits"]) == 1
    seeds = {one.external["model"]["seed"] for one in (own, others) if one.external}
    assert len(seeds) == 2, "equal latencies at the same time would be no chance"
    assert left == [[], []]


def test_a_container_can_write_to_the_folder() -> None:
    folder, spool = Path("/disks/wal/pagecage-wal"), Path("/spool")
    context = LaunchContext(
        maker=Systemd(user=False, version=257),
        unit="pagecage-x.1.slice",
        processes=SupervisedProcesses(spool / "supervisor.json", "x"),
        cage=APART,
        disk=Disk("vdb", MAJ_MIN, "/dev/vdb", "ext4", "/data"),
        programs_dir=spool / "bin",
        spool=spool,
        data_dir=Path("/data"),
        folders={"wal": folder},
    )
    assert set(container_of(context, ("ls",)).writable) == {spool, Path("/data"), folder}
