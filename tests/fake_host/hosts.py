"""Hosts for campaigns in tests, which run a given agent and count requests."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pagecage.agent.protocol import RunRequest, request_to_json
from pagecage.errors import HostDied, HostError
from pagecage.hosts.agent_package import AgentPackage, push_agent_package
from pagecage.hosts.host import MachineState, Progress, ResourceNeeds
from pagecage.process import PIPE, spawn
from tests.builders.known import known
from tests.fake_host.machine import HERE, Machine


@dataclass
class TestHost:
    """A host whose agent is `agent`, whatever the campaign would start. `deaths` lists the numbers
    of starts that fail, from 1.
    """

    __test__ = False

    agent: Sequence[str]
    spool_dir: str
    data_dir: str = "/nowhere"
    name: str = "vm"
    deaths: tuple[int, ...] = ()
    outer_fails: bool = False
    calls: list[str] = field(default_factory=list)
    starts: int = 0

    user: bool = False
    disks: Mapping[str, str] = field(default_factory=dict)
    own_disk: Mapping[str, Any] | None = None

    def is_emulated(self, progress: Progress) -> bool:
        return True

    def prepare(self, need: ResourceNeeds, progress: Progress) -> None:
        self.calls.append("prepare")
        progress("preparing")

    def start(self) -> MachineState:
        return self._start("start")

    def restart(self) -> MachineState:
        return self._start("restart")

    def _start(self, call: str) -> MachineState:
        self.calls.append(call)
        self.starts += 1
        if self.starts in self.deaths:
            raise HostDied("the guest did not come up")
        return MachineState("5a7e-1", self.starts, True, {"accel": "tcg"})

    def install(self, package: AgentPackage) -> None:
        push_agent_package(self, package)

    def agent_command(self) -> list[str]:
        return list(self.agent)

    def command(self, argv: Sequence[str]) -> list[str]:
        return list(argv)

    def interactive(self, argv: Sequence[str]) -> list[str]:
        return list(argv)

    def push(self, sources: Sequence[Path], directory: str) -> None:
        self.calls.append(f"push {len(sources)}")
        Path(directory).mkdir(parents=True, exist_ok=True)
        for source in sources:
            if source.exists():
                shutil.copy2(source, directory)

    def outer_sample(self) -> dict[str, Any] | None:
        if self.outer_fails:
            raise HostDied("the guest is gone")
        return {"unix_seconds": float(len(self.calls)), "qemu_cpu_seconds": 1.0}

    def throttle(self, limits: Mapping[str, int]) -> dict[str, int]:
        self.calls.append(f"throttle {dict(limits)}")
        if self.name != "vm":
            raise HostError("nothing is around it", "use HOST=vm")
        return dict(limits)

    def command_volume(self, command: Mapping[str, Any], disk: str = "data") -> dict[str, Any]:
        raise HostError("nothing is around it", "use HOST=vm")

    def stop(self) -> None:
        self.calls.append("stop")


def scripted(script: Path, spool: Path, **more: Any) -> TestHost:
    """Return a host with the scripted agent."""
    argv = [sys.executable, "-S", str(HERE / "scripted_agent.py"), str(script)]
    return TestHost(argv, str(spool), **more)


def on_fakes(agent: Path, machine: Machine, **more: Any) -> TestHost:
    """Return a host with the real agent on the fake machine."""
    words = (HERE / "agent_on_fakes.py", agent, machine.root, "run")
    argv = [sys.executable, "-S", *map(str, words)]
    return TestHost(argv, str(machine.spool), str(machine.data), **more)


def request_line(request: RunRequest) -> bytes:
    return json.dumps(request_to_json(request)).encode() + b"\n"


class StartedAgent:
    """The real agent on the fake machine as a process, which is given a request's line."""

    def __init__(self, package: AgentPackage, machine: Machine, line: bytes) -> None:
        argv = on_fakes(package.agent, machine).agent_command()
        self.process = spawn(argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, new_session=True)
        self.stdin, self.stdout, self.stderr = (
            known(stream)
            for stream in (self.process.stdin, self.process.stdout, self.process.stderr)
        )
        self.stdin.write(line)

    def end(self, seconds: float = 60) -> int:
        """Wait for its end, close its streams, and return its exit status."""
        status = self.process.wait(seconds)
        for stream in (self.stdin, self.stdout, self.stderr):
            stream.close()
        return status
