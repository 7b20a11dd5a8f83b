"""Facts of the host: complete, not invented, and without exceptions."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pagecage.agent import facts
from pagecage.agent.facts import read_facts, tool_version
from pagecage.agent.main import main
from pagecage.errors import PagecageError
from pagecage.model.requirements import check_host
from pagecage.process import Completed, run
from tests.builders.programs import install
from tests.fake_host.machine import Machine


def test_a_fit_machine(machine: Machine) -> None:
    found = read_facts(machine.data, False)
    assert check_host(found) == []
    assert found["systemd"] == {"pid1": True, "version": 257, "user": False, "user_manager": None}
    assert found["cgroup"]["controllers"] == ["cpuset", "cpu", "io", "memory", "pids"]
    assert found["disk"]["name"] == "fakedisk"
    assert found["disk"]["queue_settings"]["read_ahead_kb"] == "256"
    assert found["uid"] == os.getuid()
    assert all(found["tools"][name] for name in ("iostat", "sar", "vmtouch", "fio"))
    json.dumps(found)


def missed_by(facts: dict[str, Any]) -> set[str]:
    return {missed.requirement.value for missed in check_host(facts)}


def test_a_user_without_the_io_controller(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default systemd delegates memory and pids to a user, but not io."""
    manager = machine.cgroups / f"user.slice/user-{os.getuid()}.slice/user@{os.getuid()}.service"
    manager.mkdir(parents=True)
    (manager / "cgroup.controllers").write_text("memory pids\n")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(machine.root / "runtime"))
    assert missed_by(read_facts(machine.data, True)) == {"user_manager"}
    (machine.root / "runtime/systemd/private").mkdir(parents=True)
    assert missed_by(read_facts(machine.data, True)) == {"io_controller"}


def test_a_machine_with_nothing(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (machine.cgroups / "cgroup.controllers").unlink()
    monkeypatch.setattr(facts, "is_pid1", lambda: False)
    found = read_facts(machine.data / "not/made/yet", False)
    assert set(found["tools"].values()) == {None}
    assert found["systemd"]["version"] == 0
    assert found["free_bytes"] > 0
    assert missed_by(found) == {"memory_controller", "io_controller"}


def test_a_disk_that_cannot_be_limited_is_a_fact_and_not_an_error(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Path) -> None:
        raise PagecageError("/data is on overlay")

    monkeypatch.setattr(facts, "resolve_disk", refuse)
    assert read_facts(machine.data, False)["disk"] == {"error": "/data is on overlay"}


def write_tool(folder: Path, script: str) -> list[str]:
    install(folder / "tool", f"#!/bin/sh\n{script}\n")
    return [str(folder / "tool"), "--version"]


@pytest.mark.parametrize(
    ("script", "version"),
    [
        ("echo 'sysstat version 12.6.1'", "sysstat version 12.6.1"),
        ("echo 'usage: x'; echo 'v1.3.1' >&2; exit 1", "v1.3.1"),
        ("echo hello", "version not stated"),
        (":", "version not stated"),
    ],
)
def test_a_tools_version(tmp_path: Path, script: str, version: str) -> None:
    assert tool_version(*write_tool(tmp_path, script)) == version


def test_a_tool_that_hangs_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def soon(argv: list[str], **more: Any) -> Completed:
        return run(argv, **{**more, "timeout_seconds": 0.2})

    monkeypatch.setattr(facts, "run", soon)
    assert tool_version(*write_tool(tmp_path, "exec sleep 30")) == "does not answer"
    assert tool_version("no-such-tool") is None


def test_the_agents_own_verb(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["facts", str(machine.data)]) == 0
    assert json.loads(capsys.readouterr().out)["disk"]["name"] == "fakedisk"
    assert main(["sweep", str(machine.spool)]) == 0
    assert json.loads(capsys.readouterr().out) == []
