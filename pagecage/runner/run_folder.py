"""The folder of a run, its records and its traces."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pagecage.errors import UNREADABLE, HostError, PagecageError, why_unreadable
from pagecage.memory_search.rounds import rule_of, with_rounds
from pagecage.model.json_codec import JsonView, lines_of
from pagecage.model.plan import Plan, plan_from_json, plan_to_json
from pagecage.model.record import Record, append_record, read_records, records_of_lines
from pagecage.model.run_files import read_plan
from pagecage.model.trial import Trial, trial_from_json
from pagecage.verdicts.evaluate import Judge, JudgedRecords, judge_of
from pagecage.verdicts.stopping import enough_blocks
from pagecage.whole_files import point_link, whole_folder, write_whole


@dataclass(frozen=True)
class Attempt:
    """The part of a record that decides what runs next; a record is a hundred times as large."""

    trial_id: str
    number: int
    outcome: str
    is_final: bool
    is_measured: bool


def attempt_of(record: Record) -> Attempt:
    trial_id, is_measured = record.trial_id, record.measured is not None
    return Attempt(trial_id, record.attempt, record.outcome, record.is_final, is_measured)


class RecordLog:
    """A file of records that only grows, so that known lines are not read again.

    Reading all of them each time took 70 ms of CPU time per trial in a plan of 1,000 trials.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._forget(0)

    def _forget(self, inode: int) -> None:
        self._inode, self._bytes, self._lines = inode, 0, 0
        self._attempts: list[Attempt] = []

    def attempts(self) -> list[Attempt]:
        """Return every attempt in the order of writing. Raises PagecageError.

        A last line without a newline may still be written, so it is read again the next time.
        """
        last: list[Attempt] = []
        try:
            with self._path.open("rb") as file:
                stat = os.fstat(file.fileno())
                if stat.st_ino != self._inode or stat.st_size < self._bytes:
                    self._forget(stat.st_ino)
                file.seek(self._bytes)
                for line in lines_of(file):
                    last = [*map(attempt_of, records_of_lines([line], self._path, self._lines + 1))]
                    if not line.endswith(b"\n"):
                        break
                    self._attempts += last
                    self._bytes += len(line)
                    self._lines, last = self._lines + 1, []
        except FileNotFoundError:
            return []
        except OSError as error:
            reason = f"{self._path} cannot be read: {error.strerror}"
            raise PagecageError(reason, f"ls -l {self._path}") from None
        return self._attempts + last


MOST_RUN_BYTES = 64 << 30
"""All traces of a run."""
_RESTORE = "restore the folder as it was recorded"


def new_run_id(experiment: str, host: str) -> str:
    """Return a run id of UTC time, experiment and host, which sorts by time."""
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{experiment}-{host}"


def point_latest(runs: Path, name: str, run_id: str) -> None:
    point_link(runs / f"latest-{name}", run_id)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield the part of a folder of runs/ that becomes `path` when whole. Raises HostError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_folder(path) as part:
            yield part
    except OSError as error:
        hint = "set PAGECAGE_RUNS to a writable directory"
        raise HostError(f"{path} cannot be created: {error.strerror}", hint) from None


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
        """Create the folder with the plan, whole or not at all. Raises PagecageError."""
        if path.exists():
            reason = f"runs/{plan.run_id} exists already: two runs in one second"
            raise PagecageError(reason, "try again")
        with new_folder(path) as part:
            for name in ("facts", "trials"):
                (part / name).mkdir()
            (part / "plan.json").write_text(f"{json.dumps(plan_to_json(plan), indent=1)}\n")
        return cls(path)

    def plan(self) -> Plan:
        """Return the plan. Raises PagecageError if it is missing or was changed."""
        data = read_plan(self.path)
        try:
            plan = plan_from_json(data)
        except (PagecageError, *UNREADABLE) as error:
            reason = error.message if isinstance(error, PagecageError) else why_unreadable(error)
            raise PagecageError(
                f"{self.path}/plan.json cannot be read: {reason}", "ls runs/"
            ) from None
        if "plan_sha256" not in data:
            raise PagecageError(f"{self.path.name}/plan.json has lost its hash", "start a new run")
        return plan

    def records(self) -> list[Record]:
        return list(read_records(self.records_path))

    def last_records(self) -> dict[str, Record]:
        return {record.trial_id: record for record in self.records()}

    def attempts(self) -> list[Attempt]:
        return self._log.attempts()

    def last_attempts(self) -> dict[str, Attempt]:
        return {attempt.trial_id: attempt for attempt in self.attempts()}

    def supersede(self, trial_ids: Collection[str]) -> None:
        """Have these trials measured once more. Their records stay; the next one will count."""
        last = self.last_attempts()
        self._superseded = {trial_id: last[trial_id].number for trial_id in trial_ids}

    def remaining(self, plan: Plan) -> tuple[Trial, ...]:
        """Return the trials without a final record that counts, with the rounds of a search."""
        records = self.last_records() if needs_records(plan.document) else {}
        judge, superseded = self.judge(records), self._superseded
        final = {
            trial_id
            for trial_id, last in self.last_attempts().items()
            if last.is_final and last.number > superseded.get(trial_id, 0)
        }
        enough = enough_blocks(plan.document, records, judge)
        return tuple(
            trial
            for trial in planned_trials(plan, records, judge)
            if trial.trial_id not in final and (enough is None or trial.block <= enough)
        )

    def judge(self, records: Mapping[str, Record]) -> Judge:
        return judge_of(self.path, records, self._judged)

    def next_attempts(self) -> dict[str, int]:
        return {trial_id: last.number + 1 for trial_id, last in self.last_attempts().items()}

    def add_facts(self, facts: JsonView, restore_seq: int | None) -> None:
        """Write the facts of the host, once per machine state."""
        name = f"{facts.get('boot_id')}-{restore_seq}.json"
        _require_no_link(self.path / "facts")
        write_whole(self.path / "facts" / name, json.dumps(facts, indent=1) + "\n")

    def trace_path(self, trial_id: str, attempt: int, name: str) -> Path:
        """Return the path for a trace in a new folder. Raises PagecageError for another place."""
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
            reason = f"the traces of {self.path.name} exceed {MOST_RUN_BYTES >> 30} GiB"
            raise HostError(reason, "start a new run with fewer trials or collectors")

    def append(self, record: Record) -> None:
        _require_no_link(self.records_path)
        append_record(self.records_path, record)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder for one writer. Raises HostError if another process writes to it."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                reason = f"another process writes to the run {self.path.name}"
                raise HostError(reason, f"wait for it: fuser {self.path}") from None
            yield
        finally:
            os.close(descriptor)


def _require_no_link(path: Path) -> None:
    if path.is_symlink():
        raise PagecageError(f"{path} is a symbolic link", _RESTORE)


def needs_records(document: JsonView) -> bool:
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


def run_paths(runs: Path, name: str) -> tuple[Path, Path, Path]:
    """Return the possible places of a run: by its id, as the newest run of that name, by a path."""
    return runs / name, runs / f"latest-{name}", Path(name)


def find_run(runs: Path, name: str) -> RunFolder:
    """Return a run by its id, its path, or an experiment's name (its newest run)."""
    for path in run_paths(runs, name):
        if path_exists(path / "plan.json"):
            return RunFolder(path.resolve())
        if path_exists(path / "hosts"):
            reason = f"{name} is a run on several hosts"
            raise PagecageError(reason, f"name one of them: {path / 'hosts'}/HOST")
    names = sorted(path.name.removeprefix("latest-") for path in runs.glob("latest-*"))
    hint = f"name one of: {', '.join(names)}" if names else "pagecage run EXPERIMENT"
    raise PagecageError(f"there is no run {name!r}", hint)
