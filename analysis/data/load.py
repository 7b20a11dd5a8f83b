"""Run folders, loaded and validated with the standard library only.

Importing pandas here would delay `pagecage show`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from analysis.data.levels import TableLayout, sort_levels, table_layout
from analysis.data.series import Series, series_of
from pagecage.errors import PagecageError, why_unreadable
from pagecage.memory_search.rounds import with_rounds
from pagecage.model.record import Record, read_records
from pagecage.model.run_files import check_records, read_facts, read_plan
from pagecage.model.traces import check_traces, read_lines
from pagecage.units import LEAST_PAGE_BYTES
from pagecage.verdicts.evaluate import Judge, Verdicts, evaluate, judge_of
from pagecage.verdicts.repeats import others_by_trial
from pagecage.verdicts.stopping import needed, too_wide

Treatment = Mapping[str, str]

_MALFORMED_RECORD_ERRORS = (
    AttributeError,
    IndexError,
    KeyError,
    OverflowError,
    TypeError,
    ValueError,
    ZeroDivisionError,
)
"""Exceptions raised for a record whose outline is valid but whose contents are not."""


@dataclass(frozen=True)
class JudgedTrial:
    """The last attempt of a trial, with its verdicts and its sampler's series."""

    record: Record
    verdicts: Verdicts
    series: Series
    is_included_by_name: bool = False

    @property
    def is_excluded(self) -> bool:
        """True if its verdicts exclude it and it is not included by name."""
        return self.verdicts.excluded and not self.is_included_by_name

    @property
    def is_included(self) -> bool:
        """True if its figures are averaged: it is a data point and not excluded."""
        return self.verdicts.is_data_point and not self.is_excluded

    @property
    def has_unproven_limit(self) -> bool:
        """True if nothing reached one of its limits, so that it may not have been in force."""
        return any(limit.verdict == "never_reached" for limit in self.verdicts.limits)

    @property
    def lacks_proof(self) -> bool:
        """True if its figure counts although a limit or the quiet of its host is not proven."""
        is_unknown = self.verdicts.host_quiet.verdict == "unknown"
        return self.is_included and (is_unknown or self.has_unproven_limit)

    @property
    def is_valid_apart_from_noise(self) -> bool:
        """True if no reason other than host noise excludes it.

        The flags that a kernel passes do not depend on other activity on the host.
        """
        return self.verdicts.is_data_point and all(
            r.startswith("host not quiet") for r in self.verdicts.reasons
        )

    @property
    def is_wrong(self) -> bool:
        """True if it gave a wrong answer and is not excluded; the record's error describes it."""
        return self.record.outcome == "wrong_answer" and not self.verdicts.excluded

    @property
    def is_killed(self) -> bool:
        """True if the kernel killed it for memory, which is its answer."""
        return self.record.outcome == "oom_killed"


@dataclass(frozen=True)
class Run:
    """A run folder: its plan, the facts of its hosts, and the recorded trials in plan order.

    `plan["trials"]` holds the trials that the run needs, and `plan["planned"]` the number planned;
    a stopping rule may have ended the run earlier. `too_wide` holds the treatments whose interval
    is wider than that rule allows.
    """

    path: Path
    plan: Mapping[str, Any]
    facts: tuple[Mapping[str, Any], ...]
    trials: tuple[JudgedTrial, ...]
    attempts: int
    too_wide: Mapping[tuple[str, ...], float | None] = field(default_factory=dict)

    @property
    def is_baseline(self) -> bool:
        """True if it was read from a baseline's file, which keeps only some of the facts."""
        return self.path.is_file()

    @property
    def definition(self) -> Mapping[str, Any]:
        """The experiment's definition, as it was when the run was planned."""
        definition: Mapping[str, Any] = self.plan["definition"]
        return definition

    @property
    def factors(self) -> Mapping[str, list[str]]:
        """Levels by factor, in the definition's order; numeric levels are sorted."""
        return {name: sort_levels(levels) for name, levels in self.definition["factors"].items()}

    @property
    def layout(self) -> TableLayout:
        """The layout of its treatments in a table."""
        return table_layout(self.factors, (trial["treatment"] for trial in self.plan["trials"]))

    @property
    def response(self) -> str:
        """The name of the experiment's main response."""
        return str(self.definition.get("response", "read_seconds"))

    @property
    def metrics(self) -> Mapping[str, Any]:
        """The patterns of a service's metrics by name; empty for other workloads."""
        metrics: Mapping[str, Any] = (self.definition.get("workload") or {}).get("metrics") or {}
        return metrics

    def fill_places(self, text: str) -> str:
        """Return a text of the definition with the {places} of the run's size filled in."""
        size = (self.definition.get("sizes") or {}).get(self.plan["size"]) or {}
        for name, value in (size.get("places") or {}).items():
            text = text.replace(f"{{{name}}}", str(value))
        return text

    @property
    def is_emulated(self) -> bool:
        """True if any trial ran on an emulated CPU."""
        return any(trial.record.emulated for trial in self.trials)

    @property
    def page_bytes(self) -> int:
        """The size of the hosts' pages; the largest, if the hosts differ."""
        return max((trial.record.page_bytes for trial in self.trials), default=LEAST_PAGE_BYTES)


def load_run(path: Path) -> Run:
    """Load a run folder.

    Raises PagecageError if it is not a run folder, has no record, or holds an invalid record.
    """
    known = _JudgedRecords(path)
    plan, records = planned_and_recorded(path, known.judge_of)
    last = {record.trial_id: _in_factor_order(record, plan) for record in records}
    trials = needed(plan, last, known.verdicts)
    judged = tuple(known.trial(last[t["trial_id"]]) for t in trials if t["trial_id"] in last)
    narrowed = {**plan, "trials": trials, "planned": len(plan["trials"])}
    wide = too_wide(plan, last, known.verdicts)
    return Run(path, narrowed, read_facts(path), judged, len(records), wide)


def planned_and_recorded(
    path: Path, judging: Callable[[Mapping[str, Record]], Judge] | None = None
) -> tuple[Mapping[str, Any], list[Record]]:
    """Return plan.json with the rounds that its records ask for, and the records, both checked.

    `judging` makes the judge of a run from the last record of each trial.
    """
    records = list(read_records(path / "records.jsonl"))
    plan = read_plan(path)
    try:
        last = {record.trial_id: record for record in records}
        judge = judging(last) if judging else judge_of(path, last)
        plan = with_rounds(plan, last, judge)
    except _MALFORMED_RECORD_ERRORS as error:
        raise PagecageError(
            f"{path}: its search for memory cannot be repeated ({why_unreadable(error)})",
            "docs/FORMAT.md lists the keys",
        ) from None
    check_records(path, plan, records)
    return plan, records


class _JudgedRecords:
    """The verdicts on a run's records and their series, made once for each trial."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._others: Mapping[str, Sequence[Record]] = {}
        self._known: dict[str, tuple[Verdicts, Series]] = {}

    def judge_of(self, last: Mapping[str, Record]) -> Judge:
        """Return the judge of these records, the last of each trial."""
        self._others = others_by_trial(last.values())
        return self.verdicts

    def trial(self, record: Record) -> JudgedTrial:
        """Return the trial of its last record."""
        return JudgedTrial(record, *self._judged(record))

    def verdicts(self, record: Record) -> Verdicts:
        """Return the verdicts on the last record of a trial."""
        return self._judged(record)[0]

    def _judged(self, record: Record) -> tuple[Verdicts, Series]:
        if record.trial_id not in self._known:
            try:
                rows = read_lines(self._path, record, "sampler")
                damage = check_traces(self._path, record)
                verdicts = evaluate(record, rows, damage, self._others[record.trial_id])
                self._known[record.trial_id] = verdicts, series_of(rows)
            except _MALFORMED_RECORD_ERRORS as error:
                raise PagecageError(
                    f"{self._path}/records.jsonl: the record of trial {record.trial_id} cannot be"
                    f" evaluated ({why_unreadable(error)})",
                    "docs/FORMAT.md lists the keys",
                ) from None
        return self._known[record.trial_id]


def excluded_trials(run: Run) -> list[JudgedTrial]:
    """Return the trials that have an answer but are not averaged in."""
    return [trial for trial in run.trials if trial.verdicts.is_data_point and not trial.is_included]


def with_included(run: Run, trial_ids: Collection[str]) -> Run:
    """Return the run with these trials included, whatever their verdicts."""
    trials = tuple(
        replace(t, is_included_by_name=t.is_included_by_name or t.record.trial_id in trial_ids)
        for t in run.trials
    )
    return replace(run, trials=trials)


def _in_factor_order(record: Record, plan: Mapping[str, Any]) -> Record:
    """Return the record with its levels in the definition's order of factors."""
    levels = {
        name: record.treatment[name]
        for name in plan["definition"]["factors"]
        if name in record.treatment
    }
    return replace(record, treatment=levels)
