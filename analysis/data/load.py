"""A run's folder as it was recorded, checked at the door. Standard library only, so that `show` starts at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from analysis.data.levels import TableLayout, in_order, layout
from analysis.data.series import Series, series_of
from analysis.data.traces import read_lines
from analysis.data.validate import check_records, read_facts, read_plan
from pagecage.errors import PagecageError, why_unreadable
from pagecage.model.record import Record, read_records
from pagecage.verdicts.evaluate import Verdicts, evaluate
from pagecage.verdicts.stopping import needed, too_wide

Treatment = Mapping[str, str]

_STRANGE = (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError, ZeroDivisionError)
"""What reading raises where a record, valid in its outline, holds something else than the agent writes."""


@dataclass(frozen=True)
class JudgedTrial:
    """The last attempt of one trial with its verdicts and its sampler's series."""

    record: Record
    verdicts: Verdicts
    series: Series
    is_included_by_name: bool = False

    @property
    def is_excluded(self) -> bool:
        """Whether its verdicts keep it out, and nobody let it in by its name."""
        return self.verdicts.excluded and not self.is_included_by_name

    @property
    def is_included(self) -> bool:
        """Whether its figures may be averaged: a data point that is not excluded."""
        return self.verdicts.is_data_point and not self.is_excluded

    @property
    def is_whole(self) -> bool:
        """Whether it was what was asked for, noise aside: flags that a kernel passes do not depend on who else runs."""
        return self.verdicts.is_data_point and all(r.startswith("host not quiet") for r in self.verdicts.reasons)

    @property
    def is_wrong(self) -> bool:
        """Whether it gave a wrong answer and nothing excludes it; the record's error says what was wrong."""
        return self.record.outcome == "wrong_answer" and not self.verdicts.excluded

    @property
    def is_killed(self) -> bool:
        """Whether its answer is that the kernel killed it for memory."""
        return self.record.outcome == "oom_killed"


@dataclass(frozen=True)
class Run:
    """One run folder: its plan, what the host is, and the trials that have a record, in the plan's order.

    `plan["trials"]` are those that the run needs, `plan["planned"]` how many there might have been: a stopping rule may
    have ended it before. `too_wide` has the treatments whose interval is wider than that rule asks.
    """

    path: Path
    plan: Mapping[str, Any]
    facts: tuple[Mapping[str, Any], ...]
    trials: tuple[JudgedTrial, ...]
    attempts: int
    too_wide: Mapping[tuple[str, ...], float | None] = field(default_factory=dict)

    @property
    def definition(self) -> Mapping[str, Any]:
        """The experiment's definition, as it was when the run was planned."""
        definition: Mapping[str, Any] = self.plan["definition"]
        return definition

    @property
    def factors(self) -> Mapping[str, list[str]]:
        """Levels by factor, in the definition's order, but numbers by their size."""
        return {name: in_order(levels) for name, levels in self.definition["factors"].items()}

    @property
    def layout(self) -> TableLayout:
        """How its treatments stand in a table."""
        return layout(self.factors, (trial["treatment"] for trial in self.plan["trials"]))

    @property
    def response(self) -> str:
        """Name of the response that the experiment is about."""
        return str(self.definition.get("response", "read_seconds"))

    def filled(self, text: str) -> str:
        """A text of the definition with the size's own {places} filled in."""
        size = (self.definition.get("sizes") or {}).get(self.plan["size"]) or {}
        for name, value in (size.get("places") or {}).items():
            text = text.replace(f"{{{name}}}", str(value))
        return text

    @property
    def is_emulated(self) -> bool:
        """Whether any trial ran on translated instructions."""
        return any(trial.record.emulated for trial in self.trials)


def load_run(path: Path) -> Run:
    """Read a run's folder; raises PagecageError when it is none, has no record, or holds what is no record of it."""
    plan = read_plan(path)
    records = list(read_records(path / "records.jsonl"))
    check_records(path, plan, records)
    last = {record.trial_id: _in_factor_order(record, plan) for record in records}
    trials = needed(plan, last)
    judged = tuple(_judged(path, last[t["trial_id"]]) for t in trials if t["trial_id"] in last)
    narrowed = {**plan, "trials": trials, "planned": len(plan["trials"])}
    return Run(path, narrowed, read_facts(path), judged, len(records), too_wide(plan, last))


def _judged(path: Path, record: Record) -> JudgedTrial:
    try:
        rows = read_lines(path, record, "sampler")
        return JudgedTrial(record, evaluate(record, rows), series_of(rows))
    except _STRANGE as error:
        why = why_unreadable(error)
        raise PagecageError(
            f"{path}/records.jsonl: the record of trial {record.trial_id} cannot be judged ({why})",
            "docs/FORMAT.md lists the keys",
        ) from None


def excluded_trials(run: Run) -> list[JudgedTrial]:
    """Return the trials that have an answer but are not averaged in."""
    return [trial for trial in run.trials if trial.verdicts.is_data_point and not trial.is_included]


def with_included(run: Run, trial_ids: Collection[str]) -> Run:
    """The run with these trials counted, whatever their verdicts exclude."""
    trials = tuple(
        replace(t, is_included_by_name=t.is_included_by_name or t.record.trial_id in trial_ids) for t in run.trials
    )
    return replace(run, trials=trials)


def _in_factor_order(record: Record, plan: Mapping[str, Any]) -> Record:
    """The record with its levels as the definition orders its factors; a file may have them in any order."""
    levels = {name: record.treatment[name] for name in plan["definition"]["factors"] if name in record.treatment}
    return replace(record, treatment=levels)
