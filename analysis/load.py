"""A run's folder as it was recorded, checked at the door. Standard library only, so that `show` starts at once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analysis.levels import Layout, in_order, layout
from pagecage.errors import PagecageError
from pagecage.record import Record, read_records
from pagecage.verdicts.judge import Verdicts, judge

_PLAN_KEYS = ("run_id", "experiment", "definition", "host", "size", "seed", "trials", "command")


@dataclass(frozen=True)
class Judged:
    """The last attempt of one trial with its verdicts."""

    record: Record
    verdicts: Verdicts

    @property
    def is_included(self) -> bool:
        """Whether its figures may be averaged: a data point that nothing excludes."""
        return self.verdicts.is_data_point and not self.verdicts.excluded

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
    """One run folder: its plan, what the host is, and the trials that have a record, in the plan's order."""

    path: Path
    plan: Mapping[str, Any]
    facts: tuple[Mapping[str, Any], ...]
    trials: tuple[Judged, ...]
    attempts: int

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
    def layout(self) -> Layout:
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
    """Read a run's folder; raises PagecageError when it is none, or has no record yet."""
    plan = _plan(path)
    order = {trial["trial_id"]: place for place, trial in enumerate(plan["trials"])}
    records = list(read_records(path / "records.jsonl"))
    if strange := next((r.trial_id for r in records if r.trial_id not in order), None):
        raise PagecageError(f"{path}/records.jsonl has trial {strange}, which its plan lacks", "use the folder unmixed")
    if not records:
        raise PagecageError(f"{path} has no record yet", f"pagecage run --resume {path}")
    last = {record.trial_id: _in_factor_order(record, plan) for record in records}
    judged = (Judged(record, judge(record, read_lines(path, record, "sampler"))) for record in last.values())
    in_order = tuple(sorted(judged, key=lambda trial: order[trial.record.trial_id]))
    return Run(path, plan, tuple(_facts(path)), in_order, len(records))


def _in_factor_order(record: Record, plan: Mapping[str, Any]) -> Record:
    """The record with its levels as the definition orders its factors; a file may have them in any order."""
    levels = {name: record.treatment[name] for name in plan["definition"]["factors"] if name in record.treatment}
    return replace(record, treatment=levels)


def _plan(path: Path) -> Mapping[str, Any]:
    file = path / "plan.json"
    try:
        plan = json.loads(file.read_text())
    except OSError:
        raise PagecageError(f"{path} is no run folder: it has no plan.json", "ls runs/") from None
    except ValueError as error:
        raise PagecageError(f"{file} is no JSON: {error}", "make the run again") from None
    missing = [key for key in _PLAN_KEYS if key not in plan]
    if missing:
        raise PagecageError(f"{file} lacks {missing[0]!r}", "docs/FORMAT.md lists the keys")
    return dict(plan)


def _facts(path: Path) -> list[Mapping[str, Any]]:
    return [json.loads(file.read_text()) for file in sorted((path / "facts").glob("*.json"))]


def trace_path(run_path: Path, record: Record, collector: str) -> Path | None:
    """Where a collector's trace of one trial lies; None when there is none."""
    relative = record.traces.get(collector)
    file = run_path / relative if relative else None
    return file if file and file.is_file() else None


def read_lines(run_path: Path, record: Record, collector: str) -> list[dict[str, Any]]:
    """The JSON lines of a trace; a line that a kill cut off is skipped, a missing trace is empty."""
    file = trace_path(run_path, record, collector)
    rows = []
    for line in file.read_text().splitlines() if file else []:
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows
