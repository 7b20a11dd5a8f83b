"""Trials of nothing, run by the agent on a started machine without a controller."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from pagecage.agent.protocol import RunRequest, request_to_json
from pagecage.model.cage import UNCAGED, Cage
from pagecage.model.record import read_records
from pagecage.model.trial import Trial, Workload


def nothing(count: int, block: int = 1) -> tuple[Trial, ...]:
    """Return trials that start `true` without limits, data or collectors."""
    return tuple(
        Trial(
            trial_id=f"nothing_{number}",
            experiment="bench",
            treatment={},
            repeat=1,
            block=block,
            position=0,
            workload=Workload("true", (), "command"),
            cage=Cage(UNCAGED, {}),
        )
        for number in range(count)
    )


def request_file(path: Path, folder: str, data_dir: str, count: int) -> Path:
    """Write the request of so many trials for an agent whose files are in `folder`."""
    request = RunRequest(
        run_id=path.stem,
        plan_sha256="0" * 64,
        host="bench",
        data_dir=data_dir,
        spool_dir=f"{folder}/spool",
        records_path=f"{folder}/{path.stem}.jsonl",
        programs_dir=f"{folder}/bin",
        user=False,
        machine={"state_id": None, "restore_seq": None, "emulated": False, "details": {}},
        harness={"version": "0", "git_revision": None, "agent_sha256": "0" * 64},
        trials=nothing(count),
    )
    path.write_text(json.dumps(request_to_json(request)))
    return path


_WITH_CONTROLLERS = """
import sys
sys.path.insert(0, sys.argv[1])
from pagecage.agent.main import main
from pagecage.agent import facts
found = facts._cgroup
facts._cgroup = lambda systemd: found(systemd) | {"controllers": ["cpu", "io", "memory"]}
sys.exit(main(sys.argv[2:]))
"""


def serve_command(folder: str, name: str, *, has_controllers: bool = True) -> list[str]:
    """Return the agent's command for the request NAME.json in this folder.

    On a machine without controllers the agent is told that it has some. Trials of nothing need
    none, but the product does not run them there.
    """
    agent = f"{folder}/agent.pyz"
    start = [agent] if has_controllers else ["-c", _WITH_CONTROLLERS, agent]
    return ["python3", *start, "serve", f"{folder}/{name}.json", f"{folder}/{name}.frames"]


def trial_seconds(path: Path) -> list[float]:
    """Return the seconds from each trial's start to the next one's, its record included.

    Raises ValueError if a trial did not succeed.
    """
    records = tuple(read_records(path))
    for record in records:
        if record.outcome != "ok":
            raise ValueError(f"{record.trial_id} is {record.outcome}: {record.error}")
    return differences([one.phases[0].start_monotonic_seconds for one in records])


def differences(starts: Sequence[float]) -> list[float]:
    """Return the seconds between moments that follow each other."""
    return [float(after - before) for before, after in pairwise(starts)]


def phase_seconds(path: Path) -> dict[str, list[float]]:
    """Return the seconds of each phase, by its name."""
    found: dict[str, list[Any]] = {}
    for record in read_records(path):
        for phase in record.phases:
            found.setdefault(phase.name, []).append(phase.seconds)
    return found
