"""The folder of a fleet run: what was asked, one ordinary run folder a host, and how each round ended on each host."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pagecage.errors import UNREADABLE, PagecageError, why_unreadable
from pagecage.planning.plan import Plan
from pagecage.runner.run_folder import RunFolder, is_there, point_latest

FLEET_VERSION = 1
DOCUMENT = "fleet.json"


@dataclass(frozen=True)
class RoundResult:
    """How one round ended on one host. `outcome` is `done lost refused incomplete interrupted`, `because` says why.

    `seconds` is from the round's first task to its last on that host.
    """

    host: str
    round: int
    outcome: str
    because: str
    unix_seconds: float
    seconds: float


@dataclass(frozen=True)
class FleetRequest:
    """What was asked for: which group, in which way (`replicate spread`), and who was left out, by name why."""

    group: str
    mode: str
    left_out: Mapping[str, str] = field(default_factory=dict)


class FleetFolder:
    """One fleet run in runs/. Like a run's it is only ever added to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ends_path = path / "rounds.jsonl"

    @classmethod
    def create(cls, runs: Path, whole: Plan, asked: FleetRequest, plans: Mapping[str, Plan]) -> FleetFolder:
        """Make it, with a run folder for each host, and point latest-<experiment>@<group> at it."""
        folder = cls(runs / whole.run_id)
        for host, plan in plans.items():
            RunFolder.make(folder.host_path(host), plan)
        document = {
            "fleet_version": FLEET_VERSION, "run_id": whole.run_id, "experiment": whole.document["experiment"],
            **asdict(asked), "command": whole.document["command"],
            "hosts": {host: plan.sha256 for host, plan in plans.items()},
        }  # fmt: skip
        (folder.path / DOCUMENT).write_text(json.dumps(document, indent=1) + "\n")
        point_latest(runs, f"{document['experiment']}@{asked.group}", whole.run_id)
        return folder

    def document(self) -> dict[str, Any]:
        """fleet.json. Raises PagecageError when it cannot be read or is newer than this pagecage."""
        try:
            told: dict[str, Any] = json.loads((self.path / DOCUMENT).read_text())
            version, _ = told["fleet_version"], told["hosts"].items()
        except UNREADABLE as error:
            why = why_unreadable(error)
            raise PagecageError(f"{self.path} holds no readable {DOCUMENT} ({why})", "ls runs/") from None
        if version > FLEET_VERSION:
            raise PagecageError(f"{self.path}/{DOCUMENT} has format version {version}", "use a newer pagecage")
        return told

    def host_path(self, host: str) -> Path:
        """The run folder of one host."""
        return self.path / "hosts" / host

    def host_folders(self) -> dict[str, RunFolder]:
        """The run folder of each host, by name, in the order in which they were named."""
        return {host: RunFolder(self.host_path(host)) for host in self.document()["hosts"]}

    def left_working(self) -> set[str]:
        """Hosts with a round that was not fetched to its end, whose agent may still work at it."""
        return {path.stem for path in (self.path / "streams").glob("*")}

    def add(self, end: RoundResult) -> None:
        """Note how a round ended, forced to the disk."""
        with self._ends_path.open("a") as file:
            file.write(json.dumps(asdict(end)) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def last_ends(self) -> dict[str, RoundResult]:
        """How the last round of each host ended; nothing of one that has had none."""
        lines = self._ends_path.read_text().splitlines() if self._ends_path.exists() else []
        ends = [RoundResult(**json.loads(line)) for line in lines if line.endswith("}")]
        return {end.host: end for end in ends}


def round_end(host: str, number: int, outcome: str, because: str, began: float) -> RoundResult:
    """How a round that began at `began` (time.monotonic) ended now."""
    return RoundResult(host, number, outcome, because, time.time(), round(time.monotonic() - began, 3))


def find_fleet(runs: Path, name: str) -> FleetFolder | None:
    """A fleet run by its id, its path, or EXPERIMENT@GROUP (its newest); None when it names none."""
    for path in (runs / name, runs / f"latest-{name}", Path(name)):
        if is_there(path / DOCUMENT):
            return FleetFolder(path.resolve())
    return None
