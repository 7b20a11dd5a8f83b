"""Run folders: created once, then only appended to.

Which trials are finished follows from the records.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pagecage.errors import UNREADABLE, HostError, PagecageError, why_unreadable
from pagecage.memory_search.rounds import rule_of, with_rounds
from pagecage.model.record import Record, append_record, read_records
from pagecage.model.run_files import read_plan
from pagecage.model.trial import Trial, trial_from_json
from pagecage.planning.plan import Plan, plan_from_json, plan_to_json
from pagecage.runner.record_log import Attempt, RecordLog
from pagecage.verdicts.evaluate import Judge, JudgedRecords, judge_of
from pagecage.verdicts.stopping import enough_blocks
from pagecage.whole_files import point_link, whole_folder, write_whole

MOST_RUN_BYTES = 64 << 30
"""All traces of a run."""
_RESTORE = "restore the folder as it was recorded"


def new_run_id(experiment: str, host: str) -> str:
    """Return a run id of UTC time, experiment and host, which sorts by time."""
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{experiment}-{host}"


def point_latest(runs: Path, name: str, run_id: str) -> None:
    """Point the link latest-NAME at a run."""
    point_link(runs / f"latest-{name}", run_id)


class RunFolder:
    """One folder of runs/. Only the report in it is ever rewritten."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records_path = path / "records.jsonl"
        self._log = RecordLog(self.records_path)
        self._superseded: dict[str, int] = {}
        self._judged: JudgedRecords = {}
        self._trace_bytes: int | None = None

    @classmethod
    def create(cls, runs: Path, plan: Plan) -> RunFolder:
        """Create the folder, write the plan, and point latest-EXPERIMENT at it."""
        folder = cls.make(runs / plan.run_id, plan)
        point_latest(runs, plan.document["experiment"], plan.run_id)
        return folder

    @classmethod
    def make(cls, path: Path, plan: Plan) -> RunFolder:
        """Create the folder at this path with the plan, whole or not at all.

        Raises PagecageError if it exists already.
        """
        if path.exists():
            raise PagecageError(
                f"runs/{plan.run_id} exists already: two runs in one second", "try again"
            )
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with whole_folder(path) as part:
                for name in ("facts", "trials"):
                    (part / name).mkdir()
                text = json.dumps(plan_to_json(plan), indent=1)
                (part / "plan.json").write_text(f"{text}\n")
        except OSError as error:
            hint = "set PAGECAGE_RUNS to a writable directory"
            raise HostError(f"{path} cannot be created: {error.strerror}", hint) from None
        return cls(path)

    def plan(self) -> Plan:
        """Return the plan.

        Raises PagecageError if it is missing, or if its hash shows that it was changed.
        """
        try:
            plan = plan_from_json(data := read_plan(self.path))
        except UNREADABLE as error:
            reason = why_unreadable(error)
            raise PagecageError(
                f"{self.path}/plan.json cannot be read: {reason}", "ls runs/"
            ) from None
        if "plan_sha256" not in data:
            raise PagecageError(f"{self.path.name}/plan.json has lost its hash", "start a new run")
        return plan

    def records(self) -> list[Record]:
        """Return every record, in the order of writing."""
        return list(read_records(self.records_path))

    def last_records(self) -> dict[str, Record]:
        """Return the last record of each trial, which is the one that counts."""
        return {record.trial_id: record for record in self.records()}

    def attempts(self) -> list[Attempt]:
        """Return the attempt of every record, in the order of writing."""
        return self._log.attempts()

    def last_attempts(self) -> dict[str, Attempt]:
        """Return the last attempt of each trial, which is the one that counts."""
        return {attempt.trial_id: attempt for attempt in self.attempts()}

    def supersede(self, trial_ids: Collection[str]) -> None:
        """Have these trials measured once more. Their records stay; the next one will count."""
        last = self.last_attempts()
        self._superseded = {trial_id: last[trial_id].number for trial_id in trial_ids}

    def remaining(self, plan: Plan) -> tuple[Trial, ...]:
        """Return the trials without a final record that is not superseded, in order.

        Blocks that the stopping rule has made unnecessary are left out. Rounds that the records of
        a search ask for are added.
        """
        last = self.last_attempts()
        records = self.last_records() if needs_records(plan.document) else {}
        judge = self.judge(records)
        open_trials = (
            t
            for t in planned_trials(plan, records, judge)
            if t.trial_id not in last or not self._is_final(last[t.trial_id])
        )
        enough = enough_blocks(plan.document, records, judge)
        return tuple(t for t in open_trials if enough is None or t.block <= enough)

    def judge(self, records: Mapping[str, Record]) -> Judge:
        """Return a function that evaluates these records, the last of each trial."""
        return judge_of(self.path, records, self._judged)

    def _is_final(self, last: Attempt) -> bool:
        return last.is_final and last.number > self._superseded.get(last.trial_id, 0)

    def next_attempts(self) -> dict[str, int]:
        """Return the number of the next attempt of each trial that has records."""
        return {trial_id: last.number + 1 for trial_id, last in self.last_attempts().items()}

    def add_facts(self, facts: Mapping[str, Any], restore_seq: int | None) -> None:
        """Write the facts of the host, once per machine state."""
        name = f"{facts.get('boot_id')}-{restore_seq}.json"
        _require_no_link(self.path / "facts")
        write_whole(self.path / "facts" / name, json.dumps(facts, indent=1) + "\n")

    def trace_path(self, trial_id: str, attempt: int, name: str) -> Path:
        """Return the path for a trace, whose folder is created.

        Raises PagecageError for a path that is not two folders below this one, or behind a link.
        """
        path = self.path / "trials" / f"{trial_id}.{attempt}" / name
        if len(path.relative_to(self.path).parts) != 3 or ".." in path.parts[-3:]:
            raise PagecageError(f"{path} is not a trace's path", _RESTORE)
        for folder in (path.parent.parent, path.parent):
            folder.mkdir(exist_ok=True)
            _require_no_link(folder)
        return path

    def require_room_for_trace(self, length_bytes: int) -> None:
        """Count the bytes of a trace. Raises HostError if those of the run are too many."""
        if self._trace_bytes is None:
            files = (self.path / "trials").glob("*/*")
            self._trace_bytes = sum(file.lstat().st_size for file in files)
        self._trace_bytes += length_bytes
        if self._trace_bytes > MOST_RUN_BYTES:
            raise HostError(
                f"the traces of {self.path.name} exceed {MOST_RUN_BYTES >> 30} GiB",
                "start a new run with fewer trials or collectors",
            )

    def append(self, record: Record) -> None:
        """Append one record and force it to disk."""
        _require_no_link(self.records_path)
        append_record(self.records_path, record)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder for one writer; the kernel releases the lock if it dies.

        Raises HostError if another process writes to it.
        """
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if not _is_lock_taken(descriptor):
                raise HostError(
                    f"another process writes to the run {self.path.name}",
                    f"wait for it: fuser {self.path}",
                )
            yield
        finally:
            os.close(descriptor)


def _is_lock_taken(descriptor: int) -> bool:
    """Lock an open file or folder; return False if another process has locked it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _require_no_link(path: Path) -> None:
    """Raise PagecageError for a symbolic link, which would lead a writer elsewhere."""
    if path.is_symlink():
        raise PagecageError(f"{path} is a symbolic link", _RESTORE)


def needs_records(document: Mapping[str, Any]) -> bool:
    """Return whether the figures of a plan's records decide what else is run."""
    return bool(document.get("until_ci")) or rule_of(document) is not None


def planned_trials(plan: Plan, last: Mapping[str, Record], judge: Judge) -> tuple[Trial, ...]:
    """Return the trials of a plan, and those of the rounds that the records of a search ask for."""
    if rule_of(plan.document) is None:
        return plan.trials
    added = with_rounds(plan.document, last, judge)["trials"][len(plan.trials) :]
    return (*plan.trials, *map(trial_from_json, added))


def path_exists(path: Path) -> bool:
    """Return whether a path given by the user exists; False for an invalid name too."""
    return os.path.exists(path)  # noqa: PTH110 - Path.exists() raises for a name that is too long


def find_run(runs: Path, name: str) -> RunFolder:
    """Return a run by its id, its path, or an experiment's name (its newest run)."""
    for path in (runs / name, runs / f"latest-{name}", Path(name)):
        if path_exists(path / "plan.json"):
            return RunFolder(path.resolve())
        if path_exists(path / "hosts"):
            raise PagecageError(
                f"{name} is a run on several hosts", f"name one of them: {path / 'hosts'}/HOST"
            )
    names = sorted(path.name.removeprefix("latest-") for path in runs.glob("latest-*"))
    hint = f"name one of: {', '.join(names)}" if names else "pagecage run EXPERIMENT"
    raise PagecageError(f"there is no run {name!r}", hint)
