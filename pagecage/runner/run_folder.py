"""Run folders: made once, appended to, found again. What is done is computed from the records, never stored."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pagecage.errors import UNREADABLE, HostError, PagecageError, why_unreadable
from pagecage.model.record import Record, append_record, read_records
from pagecage.model.trial import Trial
from pagecage.planning.plan import Plan, plan_from_json, plan_to_json
from pagecage.verdicts.stopping import enough_blocks


def new_run_id(experiment: str, host: str) -> str:
    """UTC time, experiment, host: sorts by age and reads as what it is."""
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{experiment}-{host}"


def point_latest(runs: Path, name: str, run_id: str) -> None:
    """Point the link latest-<name> at a run."""
    aside = runs / f".latest-{os.getpid()}"
    aside.unlink(missing_ok=True)
    aside.symlink_to(run_id)
    aside.replace(runs / f"latest-{name}")


class RunFolder:
    """One folder of runs/. Nothing in it is ever rewritten but the report."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records_path = path / "records.jsonl"

    @classmethod
    def create(cls, runs: Path, plan: Plan) -> RunFolder:
        """Make the folder, write the plan, and point latest-<experiment> at it."""
        folder = cls.make(runs / plan.run_id, plan)
        point_latest(runs, plan.document["experiment"], plan.run_id)
        return folder

    @classmethod
    def make(cls, path: Path, plan: Plan) -> RunFolder:
        """Make the folder at this path and write the plan. Raises PagecageError when it is there already."""
        try:
            (path / "facts").mkdir(parents=True)
        except FileExistsError:
            raise PagecageError(f"runs/{plan.run_id} is there already: two runs in one second", "try again") from None
        except OSError as error:
            hint = "set PAGECAGE_RUNS to a folder of yours"
            raise HostError(f"{path} cannot be made: {error.strerror}", hint) from None
        (path / "trials").mkdir()
        (path / "plan.json").write_text(json.dumps(plan_to_json(plan), indent=1) + "\n")
        return cls(path)

    def plan(self) -> Plan:
        """The plan as written. Raises PagecageError when there is none, or its hash shows that it was changed."""
        try:
            data = json.loads((self.path / "plan.json").read_text())
            plan = plan_from_json(data)
        except UNREADABLE as error:
            why = why_unreadable(error)
            raise PagecageError(f"{self.path} holds no readable plan.json ({why})", "ls runs/") from None
        if data.get("plan_sha256") != plan.sha256:
            raise PagecageError(f"{self.path.name}/plan.json was changed after it was written", "start a new run")
        return plan

    def records(self) -> list[Record]:
        """Every record, in the order in which they came."""
        return list(read_records(self.records_path))

    def last_records(self) -> dict[str, Record]:
        """The last record of each trial: the one that counts."""
        return {record.trial_id: record for record in self.records()}

    def remaining(self, plan: Plan) -> tuple[Trial, ...]:
        """Trials of the plan without a final record, in order; none of blocks that its stopping rule made needless."""
        last = self.last_records()
        open_trials = (t for t in plan.trials if t.trial_id not in last or not last[t.trial_id].is_final)
        enough = enough_blocks(plan.document, last)
        return tuple(t for t in open_trials if enough is None or t.block <= enough)

    def next_attempts(self) -> dict[str, int]:
        """Per trial that has records, the number its next attempt gets."""
        return {trial_id: record.attempt + 1 for trial_id, record in self.last_records().items()}

    def add_facts(self, facts: Mapping[str, Any], restore_seq: int | None) -> None:
        """What the host was, once per machine state."""
        name = f"{facts.get('boot_id')}-{restore_seq}.json"
        (self.path / "facts" / name).write_text(json.dumps(facts, indent=1) + "\n")

    def trace_path(self, trial_id: str, attempt: int, name: str) -> Path:
        """Where a trace goes; its folder is made."""
        folder = self.path / "trials" / f"{trial_id}.{attempt}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / Path(name).name

    def append(self, record: Record) -> None:
        """Add one record, forced to the disk."""
        append_record(self.records_path, record)


def is_there(path: Path) -> bool:
    """Return whether a path that a user named exists; a name that no file can have is one of nothing."""
    return os.path.exists(path)  # noqa: PTH110 - Path.exists() raises for a name that is too long


def find_run(runs: Path, name: str) -> RunFolder:
    """A run by its id, its path, or an experiment's name (its newest run)."""
    for path in (runs / name, runs / f"latest-{name}", Path(name)):
        if is_there(path / "plan.json"):
            return RunFolder(path.resolve())
        if is_there(path / "hosts"):
            raise PagecageError(f"{name} is a run of many hosts", f"name one: {path / 'hosts'}/HOST")
    known = sorted(path.name.removeprefix("latest-") for path in runs.glob("latest-*"))
    raise PagecageError(f"there is no run {name!r}", f"runs exist of: {', '.join(known) or 'nothing yet'}")
