"""A look at every host before a fleet starts: who answers, who is fit, and whether they are alike."""

from __future__ import annotations

import fcntl
import json
from dataclasses import replace
from pathlib import Path

import pytest

from pagecage.agent.facts import read_facts
from pagecage.errors import HostError, PagecageError
from pagecage.fleet.inventory import FleetHost
from pagecage.fleet.look import look, unlike
from tests.fake_host.rack import FIT, Rack


def test_a_look_tells_who_can_serve(rack: Rack) -> None:
    found = look(rack.stage(), "rack", rack.hosts())
    assert [one.host.name for one in found.seen] == ["left", "right"]
    assert found.seen[0].facts == FIT
    assert (found.unreachable, found.unfit) == ({}, {})
    assert list(unlike(found.seen)) == []


def test_a_look_says_why_a_host_cannot_serve(rack: Rack, tmp_path: Path) -> None:
    (tmp_path / "right/data").rmdir()
    rack.is_like("left", **{**FIT, "machine": "riscv64"})
    found = look(rack.stage(), "rack", rack.hosts())
    assert found.seen == ()
    assert "left is riscv64" in found.unfit["left"].message
    assert "right: it was never made fit for experiments (no-data-dir)" in found.unfit["right"].message
    assert found.unfit["right"].hint == "make provision HOST=right"


def test_a_host_without_limits_is_unfit(rack: Rack) -> None:
    rack.is_like("left", **{**FIT, "cgroup": {**FIT["cgroup"], "controllers": ["memory"]}})
    found = look(rack.stage(), "rack", rack.hosts())
    assert "the io controller is not available" in found.unfit["left"].message
    assert found.unfit["left"].hint == "make provision HOST=rack"


def test_hosts_that_differ_are_told_apart(rack: Rack) -> None:
    left, right = rack.seen()
    other = replace(right, facts={**FIT, "kernel": "6.1", "disk": {"filesystem": "xfs"}, "memory_bytes": 2**30})
    assert list(unlike([left, other])) == [
        "kernel is 6.12 on left, 6.1 on right", "disk.filesystem is ext4 on left, xfs on right",
        "their memory differs by more than 5 %",
    ]  # fmt: skip


def test_a_host_that_does_not_answer_is_named(rack: Rack) -> None:
    gone = {**rack.host("right").variables, "ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
    hosts = {"left": dict(rack.host("left").variables), "right": gone}
    (rack.top / "inventory.json").write_text(json.dumps({"all": {"hosts": hosts}}))
    found = look(rack.stage(), "rack", (rack.host("left"), FleetHost("right", "127.0.0.1", gone)))
    assert [one.host.name for one in found.seen] == ["left"]
    assert isinstance(found.unreachable["right"], HostError)
    assert "Connection refused" in found.unreachable["right"].message


def test_an_empty_group_and_a_host_without_a_directory_are_refused(rack: Rack) -> None:
    with pytest.raises(PagecageError, match="the group rack has no host now"):
        look(rack.stage(), "rack", ())
    with pytest.raises(PagecageError, match="left has no pagecage_data_dir"):
        look(rack.stage(), "rack", (FleetHost("left", "left", {}),))
    with pytest.raises(PagecageError, match="cannot be the name of a run's folder"):
        look(rack.stage(), "rack", (FleetHost("a/b", "left", {"pagecage_data_dir": "/x"}),))


def test_facts_that_a_look_reads_are_those_that_agents_tell(tmp_path: Path) -> None:
    assert set(FIT) <= set(read_facts(tmp_path, False))


def test_a_host_that_somebody_uses_is_refused_unless_it_is_our_own_agent(rack: Rack) -> None:
    with (rack.top / "left/spool/lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = look(rack.stage(), "rack", rack.hosts())
        assert found.unfit["left"].message == "left: another run is using this host"
        assert [one.host.name for one in found.seen] == ["right"]
        again = look(rack.stage(), "rack", rack.hosts(), ["left"])
    assert [one.host.name for one in again.seen] == ["right"], "it has no kit, and gets none while it is busy"
    look(rack.stage(), "rack", rack.hosts())
    with (rack.top / "left/spool/lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert len(look(rack.stage(), "rack", rack.hosts(), ["left"]).seen) == 2


def test_a_host_that_greets_is_told_to_be_quiet(rack: Rack) -> None:
    (rack.top / "left/spool/facts.json").write_text("Welcome!\n{}")
    found = look(rack.stage(), "rack", rack.hosts())
    assert found.unfit["left"].hint == "its login must print nothing"
