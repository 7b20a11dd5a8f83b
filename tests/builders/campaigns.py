"""Campaigns of three trials on a scripted host."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pagecage.hosts.agent_package import AgentPackage
from pagecage.model.json_codec import Json
from pagecage.model.plan import Plan
from pagecage.model.record import Record, read_records
from pagecage.runner.campaign import Campaign, RunSummary
from pagecage.runner.run_folder import RunFolder
from tests.builders.plans import BASE, CHOICES, plan_of
from tests.fake_host.hosts import TestHost, scripted

KIT = AgentPackage(Path("/nowhere/agent.pyz"), (), "0" * 64)

THREE = replace(BASE, factors={"level": ("a", "b", "c")})


class Run:
    """A plan of three or six trials, its folder, the script of its agent, and the received
    events.
    """

    def __init__(self, tmp_path: Path, fresh: str = "never", repeats: int = 1) -> None:
        self.plan: Plan = plan_of(THREE, replace(CHOICES, repeats=repeats, fresh=fresh))
        self.folder = RunFolder.create(tmp_path / "runs", self.plan)
        self.script = tmp_path / "script.json"
        self.heard: list[Mapping[str, Any]] = []
        self.listener: Callable[[Mapping[str, Any]], None] = self.heard.append
        self.ids = [trial.trial_id for trial in self.plan.trials]
        self.set_script({})

    def set_script(self, script: Json) -> None:
        self.script.write_text(json.dumps(script))

    def host(self, **more: Any) -> TestHost:
        return scripted(self.script, self.script.parent / "spool", **more)

    def go(self, host: TestHost | None = None) -> RunSummary:
        return Campaign(host or self.host(), self.plan, self.folder, KIT, self.listener).run()

    def records(self) -> list[Record]:
        return list(read_records(self.folder.records_path))

    def agent_calls(self) -> list[list[str]]:
        path = self.script.with_name("calls")
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []
