"""Hosts that are folders of this machine, reached by Ansible's local connection, with scripted
agents.
"""

from __future__ import annotations

import json
import platform
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pagecage.fleet.folder import FleetFolder, FleetRequest
from pagecage.fleet.preflight import ReadyHost
from pagecage.fleet.provisioning import FleetHost, FleetPlaybook, make_fleet_playbook
from pagecage.fleet.rounds import FleetCampaign, HostRun, host_plans
from pagecage.hosts.agent_package import AgentPackage
from pagecage.model.json_codec import Json
from pagecage.model.plan import Plan
from tests.tree import ROOT

HERE = Path(__file__).resolve().parent
FIT: Json = {
    "kernel": "6.12",
    "machine": platform.machine(),
    "cpu_model": "a",
    "cpus": 1,
    "memory_bytes": 2**31,
    "systemd": {"pid1": True, "version": 257, "user": False},
    "cgroup": {"v2": True, "controllers": ["io", "memory"], "manager": "systemd"},
    "disk": {"filesystem": "ext4"},
}


def agent_archive(path: Path) -> Path:
    """Return the scripted agent as one file, like the real one."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(HERE / "fleet_agent.py", "__main__.py")
        archive.write(HERE / "scripted_agent.py", "scripted_agent.py")
    return path


@dataclass
class Rack:
    """A group of such hosts, and the received events."""

    top: Path
    names: tuple[str, ...]
    heard: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)

    def make(self) -> None:
        of_hosts = (f"{name}/{kind}" for name in self.names for kind in ("spool", "data"))
        for folder in ("units", *of_hosts):
            (self.top / folder).mkdir(parents=True)
        for name in self.names:
            self.set_script(name, {})
            self.is_like(name, **FIT)
        self.let_answer(*self.names)

    def let_answer(self, *names: str) -> None:
        """Write the inventory. The addresses of hosts that are not named do not answer."""
        gone = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
        hosts = {
            host.name: {**host.variables, **({} if host.name in names else gone)}
            for host in self.hosts()
        }
        (self.top / "inventory.json").write_text(json.dumps({"all": {"hosts": hosts}}))

    def set_script(self, name: str, script: Mapping[str, Any]) -> None:
        (self.top / name / "spool/script.json").write_text(json.dumps(script))

    def is_like(self, name: str, **facts: Any) -> None:
        (self.top / name / "spool/facts.json").write_text(json.dumps(facts))

    def hosts(self) -> tuple[FleetHost, ...]:
        return tuple(self.host(name) for name in self.names)

    def host(self, name: str) -> FleetHost:
        local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        own = {
            "pagecage_data_dir": f"{self.top / name}/data",
            "campaign_spool": f"{self.top / name}/spool",
        }
        patience = {"campaign_dir": f"{self.top / name}/fleet", "campaign_patience_seconds": 0}
        return FleetHost(name, name, {**local, **own, **patience})

    def package(self) -> AgentPackage:
        return AgentPackage(agent_archive(self.top / "agent.pyz"), (), "0" * 64)

    def stage(self) -> FleetPlaybook:
        return make_fleet_playbook(
            ROOT, self.package(), self.top / "scratch", self.top / "inventory.json"
        )

    def seen(self) -> tuple[ReadyHost, ...]:
        """The hosts that a check finds, where all are suitable."""
        facts = (self.top / host.name / "spool/facts.json" for host in self.hosts())
        return tuple(
            ReadyHost(host, json.loads(path.read_text()))
            for host, path in zip(self.hosts(), facts, strict=True)
        )

    def begin(self, plan: Plan, mode: str = "replicate") -> FleetFolder:
        return FleetFolder.create(
            self.top / "runs", plan, FleetRequest("rack", mode), host_plans(plan, self.names, mode)
        )

    def go(self, folder: FleetFolder, *names: str) -> None:
        """Run the missing trials on these hosts, or on all."""
        runs, streams = folder.host_folders(), folder.path / "streams"
        streams.mkdir(exist_ok=True)
        lanes = [
            HostRun(one.remote, runs[one.host.name].plan(), runs[one.host.name], streams, self.hear)
            for one in self.seen()
            if one.host.name in (names or self.names)
        ]
        FleetCampaign(self.stage(), folder, lanes, self.package(), self.hear).run()

    def hear(self, host: str, event: Mapping[str, Any]) -> None:
        self.heard.append((host, event))

    def agent_calls(self, name: str) -> list[list[str]]:
        path = self.top / name / "spool/calls"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []
