"""Trials on simulated volumes, on several disks, and under limits of QEMU."""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pagecage.agent import storage
from pagecage.agent.drivers.container import container_of
from pagecage.agent.drivers.driver import LaunchContext
from pagecage.agent.limits.calibration import SimulatedVolume
from pagecage.agent.volume_server import VolumeServer
from pagecage.cloud.profile import cage_of
from pagecage.cloud.volume_request import VolumeRequest
from pagecage.definitions.cage_file import cage_of_tables
from pagecage.definitions.reader import Definitions
from pagecage.errors import HostDied, HostError
from pagecage.hosts.agent_package import AgentPackage
from pagecage.linux.block_device import Disk
from pagecage.linux.processes import SupervisedProcesses
from pagecage.linux.systemd import Systemd
from pagecage.model.cage import (
    BurstCredits,
    Cage,
    DiskLimits,
    IoAccounting,
    LatencyFloor,
    LatencyQuantiles,
    VolumeSimulation,
)
from pagecage.model.json_codec import to_json
from pagecage.model.record import Record, read_records
from pagecage.model.trial import CommandSpec, Trial, Workload
from pagecage.model.volume_model import dilated, latency_at, volume_model
from pagecage.process import run, spawn
from pagecage.runner.campaign import Campaign
from pagecage.verdicts.limits import judge_limits
from pagecage.verdicts.volume_account import volume_account
from tests.builders.command_trials import bare_trial
from tests.builders.guest_runs import stored_plan
from tests.builders.imports import read
from tests.builders.known import known
from tests.builders.strategies import simulations
from tests.builders.trial_runs import carry_out
from tests.builders.volumes import KINDS, PLUGIN_FILE, any_profile, request_at, served, size_at
from tests.builders.waiting import wait_until
from tests.fake_host.hosts import on_fakes
from tests.fake_host.machine import (
    LIGHT,
    MAJ_MIN,
    OTHER_MAJ_MIN,
    OTHER_NODE,
    Machine,
    make_trial,
)
from tests.record_schema import breaches
from tests.tree import ROOT

CAGE = replace(
    LIGHT,
    accounting=IoAccounting(262_144, merged=True, combined=True),
    latency=LatencyFloor(500, 500),
    enforced_by="volume",
)
TRIAL = make_trial(cage=CAGE, collectors=())


@pytest.fixture
def server() -> Iterator[VolumeServer]:
    with served() as running:
        yield running


@pytest.fixture
def guest(machine: Machine, server: VolumeServer, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return a machine that believes to be our guest, with a controller that serves a volume."""

    def ask(_stream: Any, _inbox: Any, event: str, details: Mapping[str, Any]) -> dict[str, Any]:
        assert event == "volume_wanted"
        return {"answer": server.command(details["command"])}

    monkeypatch.setattr(storage, "OF_OURS", machine.root)
    monkeypatch.setattr(storage, "ask", ask)
    return machine


def test_the_volume_has_the_limits_and_the_slice_has_not(guest: Machine) -> None:
    record = carry_out(guest, TRIAL)
    assert (record.outcome, record.error) == ("ok", None)
    assert record.cage.enforced_by == "volume"
    external = known(record.cage.external)
    assert external["by"] == "volume"
    assert external["model"] == volume_model(CAGE, TRIAL.repeat)
    assert external["read_back"] == {
        name: value for name, value in CAGE.properties.items() if name.startswith("IO")
    }
    read_back = known(record.cage.read_back)
    assert {read_back[key] for key in read_back if key.startswith("io.max")} == {"max"}
    states = {one["aspect"]: one["state"] for one in record.cage.fidelity or ()}
    assert states == dict.fromkeys(("io_size", "merged", "combined", "latency"), "exact")
    assert record.device.storage == "volume"
    assert not breaches(to_json(record)), "docs/schema/record.schema.json"


def test_the_account_is_that_of_the_measured_part(guest: Machine) -> None:
    record = carry_out(guest, TRIAL)
    seconds = known(record.measured).seconds
    assert known(volume_account(record)).seconds == pytest.approx(seconds, abs=0.5)


def test_no_limit_stays_behind(guest: Machine, server: VolumeServer) -> None:
    carry_out(guest, TRIAL)
    held = server.command({"in_force": True})
    assert held["in_force"]["limits"] == []
    assert held["in_force"]["read_latency"] == []


def test_another_model_than_requested_is_no_cage(
    guest: Machine, server: VolumeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = server.command

    def lies(command: Mapping[str, Any]) -> dict[str, Any]:
        answer = real(command)
        if command.get("configure", {}).get("limits"):
            answer["in_force"]["limits"] = answer["in_force"]["limits"][1:]
        return answer

    monkeypatch.setattr(server, "command", lies)
    record = carry_out(guest, TRIAL)
    assert record.outcome == "requirement_missed"
    assert "the simulated volume holds another model: limits" in (record.error or "")


def test_a_server_that_ends_is_the_reason(
    guest: Machine, server: VolumeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = server.command

    def dies(command: Mapping[str, Any]) -> dict[str, Any]:
        if "account" in command:
            server.end()
        return real(command)

    monkeypatch.setattr(server, "command", dies)
    record = carry_out(guest, TRIAL)
    assert record.outcome == "failed"
    assert "the simulated volume ended" in (record.error or "")


def test_a_guest_without_a_volume(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> dict[str, Any]:
        raise HostError("the guest's data disk is not a simulated volume", "use HOST=vm")

    monkeypatch.setattr(storage, "OF_OURS", machine.root)
    monkeypatch.setattr(storage, "ask", refuse)
    record = carry_out(machine, TRIAL)
    assert record.outcome == "requirement_missed"
    assert record.missed_requirements[0].requirement == "volume"


def test_a_volume_is_not_the_layer_of_a_container(machine: Machine) -> None:
    trial = replace(TRIAL, storage="container_layer")
    record = carry_out(machine, trial)
    assert record.outcome == "requirement_missed"
    assert "a simulated volume is a disk of its own" in (record.error or "")


def test_a_server_without_its_file_says_so() -> None:
    with served() as running:
        folder = running.data_socket.parent
        missing, other = folder / "missing.raw", folder / "other"
        other.mkdir()
        with pytest.raises(HostError, match=r"nbdkit did not start: .*missing\.raw"):
            VolumeServer.start(PLUGIN_FILE, missing, other, other / "log")


def test_a_command_to_a_killed_server(server: VolumeServer) -> None:
    server.end()
    with pytest.raises(HostDied, match="the simulated volume ended"):
        server.command({"account": True})


def test_a_refused_command_is_one_sentence(server: VolumeServer) -> None:
    with pytest.raises(HostError, match="refused a command"):
        server.command({"configure": {"limits": [{"per_second": 0}]}})


def test_a_cage_without_limits_is_an_open_volume(guest: Machine) -> None:
    cage = Cage("open", {}, latency=LatencyFloor(300, None), enforced_by="volume")
    record = carry_out(guest, make_trial(cage=cage, collectors=()))
    assert (record.outcome, record.error) == ("ok", None)
    assert known(record.cage.external)["model"]["limits"] == []


PARENT = """
import sys
from pathlib import Path
from pagecage.agent.volume_server import VolumeServer

plugin, folder = Path(sys.argv[1]), Path(sys.argv[2])
server = VolumeServer.start(plugin, folder / "volume.raw", folder, folder / "log")
print("up", flush=True)
while True:
    server.command({"configure": {"limits": []}})
"""


def kill_at_random(folder: Path, count: int) -> None:
    """Kill the process that started a server, at random moments; the next start must succeed."""
    moments = random.Random(20261122)
    for _ in range(count):
        argv = [sys.executable, "-c", PARENT, str(PLUGIN_FILE), str(folder)]
        parent = spawn(argv, env={"PYTHONPATH": str(ROOT)})
        time.sleep(moments.uniform(0.0, 0.4))
        parent.kill()
        parent.wait()
    wait_until(lambda: not servers_of(folder))
    server = VolumeServer.start(PLUGIN_FILE, folder / "volume.raw", folder, folder / "log")
    assert server.command({"in_force": True})["in_force"]["limits"] == []
    server.end()
    assert sorted(path.name for path in folder.iterdir()) == ["log", "volume.raw"]


def servers_of(folder: Path) -> list[str]:
    """Return the command lines of the processes that serve a volume of this folder."""
    lines = [
        path.read_bytes().replace(b"\\0", b" ").decode()
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if path.exists()
    ]
    return [line for line in lines if "nbdkit" in line and str(folder) in line]


@pytest.mark.parametrize("count", [10, pytest.param(200, marks=pytest.mark.long)])
def test_a_killed_process_leaves_no_server(count: int) -> None:
    with TemporaryDirectory(prefix="pcv-") as name:
        folder = Path(name)
        with (folder / "volume.raw").open("wb") as volume:
            volume.truncate(2**20)
        kill_at_random(folder, count)


@pytest.fixture(scope="module")
def volume() -> Iterator[SimulatedVolume]:
    with served() as server:
        yield SimulatedVolume(server.command)


def differences(volume: SimulatedVolume, cage: Cage, seed: int = 1) -> dict[str, object]:
    """Return the parts of the model in force that differ from the requested ones."""
    model = volume_model(cage, seed)
    in_force = volume.configure(model)
    return {key: in_force.get(key) for key, value in model.items() if in_force.get(key) != value}


@pytest.mark.parametrize("name", sorted(KINDS))
@pytest.mark.parametrize("start", ["full", "half", "drained"])
def test_a_volume_of_the_catalogue_is_held(volume: SimulatedVolume, name: str, start: str) -> None:
    kind = KINDS[name]
    request: VolumeRequest = request_at(kind, size_at(kind, Fraction(1)), Fraction(1))
    cage = cage_of(any_profile(kind, request, start), "x", "about")
    assert not differences(volume, cage)
    assert not differences(volume, dilated(cage, 7))


@pytest.mark.parametrize("name", ["customer-volume", "customer", "aws-gp2-tenth"])
def test_a_cage_of_this_checkout_is_held(volume: SimulatedVolume, name: str) -> None:
    assert not differences(volume, Definitions(ROOT, []).cage(name, None))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    simulation=simulations,
    start=st.sampled_from(["full", "half", "drained"]),
    seed=st.integers(0, 2**63 - 1),
)
def test_every_simulation_of_a_file_is_held(
    volume: SimulatedVolume, simulation: VolumeSimulation, start: str, seed: int
) -> None:
    cage = Cage("x", {}, burst=BurstCredits(start), simulation=simulation)
    assert not differences(volume, cage, seed)


def test_an_imported_account_has_the_latencies_that_were_set() -> None:
    """The account has the layout of a real volume's counters."""
    given = LatencyQuantiles(4096, ((0.0, 2000.0), (1.0, 8000.0)))
    cage = Cage("x", {}, simulation=VolumeSimulation((), (given,)))
    with served() as server:
        volume = SimulatedVolume(server.command)
        volume.configure(volume_model(cage, 1))
        reads = [word for n in range(300) for word in ("-c", f"read -q {4096 * n} 4096")]
        run(["qemu-io", "-f", "raw", *reads, f"nbd+unix:///?socket={server.data_socket}"])
        found = read(json.dumps(volume.account()))
    [imported] = known(cage_of_tables("x", found.cage()).simulation).read_latency
    assert imported.size_bytes == 4096
    for probability in (0.25, 0.5, 0.75, 0.95):
        set_us = latency_at(given.quantiles, probability)
        assert latency_at(imported.quantiles, probability) == pytest.approx(set_us, rel=0.2)
    assert [one.text for one in found.observed if "exceeded" in one.text] == [
        f"the demand never exceeded the {layer}'s {quantity}"
        for layer in ("volume", "instance")
        for quantity in ("IOPS", "throughput")
    ]


APART = Cage("apart", {"IOReadIOPSMax": 500}, disks={"wal": DiskLimits({"IOWriteIOPSMax": 50})})
WAL_ALONE = replace(APART, properties={})
LIST = Workload("ls", ("-a", "{disk.wal}"), "command", command=CommandSpec())


def listing(cage: Cage) -> Trial:
    return bare_trial(LIST, cage=cage)


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


def test_a_limit_that_the_manager_forgets(machine: Machine) -> None:
    """systemd starts the slice all the same; only reading back finds out."""
    machine.misbehave(FORGETS="io.max")
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
    monkeypatch.setattr(machine, "other", machine.data / "log")
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
    spec = CommandSpec(is_literal=True)
    literal = replace(LIST, arguments=("{disk.wal}", "{file}"), command=spec)
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
        external = known(cage_of_disk.external)
        assert [one["per_second"] for one in external["model"]["limits"]] == [limit]
        assert len(external["account"]["pcvolume"]["limits"]) == 1
    seeds = {known(one.external)["model"]["seed"] for one in (own, others)}
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


HELD = {"IOReadBandwidthMax": 20_000_000, "IOReadIOPSMax": 500}


def run_throttled(machine: Machine, package: AgentPackage, host: str) -> tuple[Record, list[str]]:
    trial = make_trial(driver="qemu-throttle", collectors=())
    plan, folder = stored_plan(machine.root / "runs", "20261121T100000Z-throttle-vm", trial)
    around = on_fakes(package.agent, machine, name=host)
    Campaign(around, plan, folder, package, lambda _: None).run()
    asked = [call for call in around.calls if call.startswith("throttle")]
    return list(read_records(folder.records_path))[-1], asked


def test_the_outer_machine_limits_the_disk_for_the_trial(
    machine: Machine, package: AgentPackage
) -> None:
    record, asked = run_throttled(machine, package, "vm")
    assert (record.outcome, record.error) == ("ok", None)
    assert asked == [f"throttle {HELD}", "throttle {}"]
    assert record.cage.external == {"by": "qemu", "read_back": HELD}


@pytest.mark.parametrize("host", ["local"])
def test_a_host_without_an_outer_machine_is_refused(
    machine: Machine, package: AgentPackage, host: str
) -> None:
    record, _ = run_throttled(machine, package, host)
    assert record.outcome == "requirement_missed"
    assert record.error == "nothing is around it"
    assert record.missed_requirements[0].hint == "use HOST=vm"
