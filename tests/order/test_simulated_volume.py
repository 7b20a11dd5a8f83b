"""Trials whose I/O limits a simulated volume enforces: the real agent and the real server."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from pagecage.agent import storage
from pagecage.agent.volume_server import VolumeServer
from pagecage.errors import HostDied, HostError
from pagecage.model.cage import Cage, IoAccounting, LatencyFloor
from pagecage.model.json_codec import to_json
from pagecage.model.volume_model import volume_model
from pagecage.process import spawn
from pagecage.verdicts.volume_account import volume_account
from tests.builders.served_volumes import PLUGIN_FILE, served
from tests.builders.trial_runs import carry_out
from tests.fake_host.machine import LIGHT, Machine, make_trial
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
    external = record.cage.external or {}
    assert external["by"] == "volume"
    assert external["model"] == volume_model(CAGE, TRIAL.repeat)
    assert external["read_back"] == {
        name: value for name, value in CAGE.properties.items() if name.startswith("IO")
    }
    read_back = record.cage.read_back or {}
    assert {read_back[key] for key in read_back if key.startswith("io.max")} == {"max"}
    assert {one["aspect"]: one["state"] for one in record.cage.fidelity or ()} == {
        "io_size": "exact",
        "merged": "exact",
        "combined": "exact",
        "latency": "exact",
    }
    assert record.device.storage == "volume"
    assert not breaches(to_json(record)), "docs/schema/record.schema.json"


def test_the_account_is_that_of_the_measured_part(guest: Machine) -> None:
    record = carry_out(guest, TRIAL)
    account = volume_account(record)
    assert account is not None
    assert record.measured is not None
    assert account.seconds == pytest.approx(record.measured.seconds, abs=0.5)


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


def test_a_volume_is_no_disk_in_memory(machine: Machine) -> None:
    trial = replace(TRIAL, storage="null_blk", storage_latency_us=500)
    record = carry_out(machine, trial)
    assert record.outcome == "requirement_missed"
    assert "a simulated volume is a disk of its own" in (record.error or "")


def test_a_server_without_its_file_says_so() -> None:
    with served() as running:
        folder = running.data_socket.parent
        missing = Path(folder, "missing.raw")
        other = folder / "other"
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
    assert record.cage.external["model"]["limits"] == []


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
        parent = spawn(
            [sys.executable, "-c", PARENT, PLUGIN_FILE, folder], env={"PYTHONPATH": str(ROOT)}
        )
        time.sleep(moments.uniform(0.0, 0.4))
        parent.kill()
        parent.wait()
    until = time.monotonic() + 10
    while (left := servers_of(folder)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not left, f"left behind: {left}"
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
