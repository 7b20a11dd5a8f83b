"""What a run's folder must have to be read: its plan and facts, checked where they come in."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pagecage.errors import UNREADABLE, PagecageError, why_unreadable
from pagecage.model.record import Record
from pagecage.model.record_v1 import upgrade_facts

PLAN_VERSION = 1
"""The newest plan.json that is understood here."""
_KEYS = {
    "run_id": str, "experiment": str, "definition": dict, "host": str, "size": str, "seed": int, "trials": list,
    "command": str,
}  # fmt: skip
_TRIAL_KEYS = {"trial_id": str, "treatment": dict, "block": int}
_FORMAT = "docs/FORMAT.md lists the keys"


def read_plan(path: Path) -> Mapping[str, Any]:
    """plan.json of a run's folder. Raises PagecageError when it is none, or newer than this pagecage."""
    file = path / "plan.json"
    try:
        plan = json.loads(file.read_bytes())
    except FileNotFoundError:
        raise PagecageError(f"{path} is no run folder: it has no plan.json", "ls runs/") from None
    except UNREADABLE as error:
        raise PagecageError(f"{file} is no JSON: {why_unreadable(error)}", "make the run again") from None
    version = plan.get("plan_version", PLAN_VERSION) if isinstance(plan, dict) else None
    if isinstance(plan, dict) and not isinstance(version, int):
        raise PagecageError(f"{file}: 'plan_version' is no int", _FORMAT)
    if isinstance(version, int) and version > PLAN_VERSION:
        raise PagecageError(f"{file} has format version {version}", "use a newer pagecage to read it")
    _check(plan, _KEYS, str(file))
    if not isinstance(plan.get("until_ci"), float | None):
        raise PagecageError(f"{file}: 'until_ci' is no share", _FORMAT)
    _check_treatments(plan, file)
    return dict(plan)


def _check(table: Any, keys: Mapping[str, type], where: str) -> None:
    if not isinstance(table, dict):
        raise PagecageError(f"{where} is no table", _FORMAT)
    for key, kind in keys.items():
        if key not in table:
            raise PagecageError(f"{where} lacks {key!r}", _FORMAT)
        if not isinstance(table[key], kind):
            raise PagecageError(f"{where}: {key!r} is no {kind.__name__}", _FORMAT)


def _check_treatments(plan: Mapping[str, Any], file: Path) -> None:
    """Every trial has a level of each factor, and the definition knows it."""
    factors = plan["definition"].get("factors")
    if not isinstance(factors, dict) or not all(isinstance(levels, list) and levels for levels in factors.values()):
        raise PagecageError(f"{file}: its definition has no factors", _FORMAT)
    if not isinstance(plan["definition"].get("question"), str):
        raise PagecageError(f"{file}: its definition has no question", _FORMAT)
    for number, trial in enumerate(plan["trials"]):
        where = f"{file}: trial {number}"
        _check(trial, _TRIAL_KEYS, where)
        strange = set(trial["treatment"]) ^ set(factors)
        if strange or any(level not in factors[name] for name, level in trial["treatment"].items()):
            raise PagecageError(f"{where} has a treatment that the definition lacks", _FORMAT)


def read_facts(path: Path) -> tuple[Mapping[str, Any], ...]:
    """Every facts file of a run's folder, in the order of their names. Raises PagecageError for one that is none."""
    return tuple(_facts(file) for file in sorted((path / "facts").glob("*.json")))


def _facts(file: Path) -> Mapping[str, Any]:
    try:
        facts = json.loads(file.read_bytes())
    except UNREADABLE as error:
        hint = f"rm {file}: facts are shown and decide nothing"
        raise PagecageError(f"{file} is no JSON: {why_unreadable(error)}", hint) from None
    if not isinstance(facts, dict):
        raise PagecageError(f"{file} holds no facts", f"rm {file}: facts are shown and decide nothing")
    return upgrade_facts(facts)


def check_records(path: Path, plan: Mapping[str, Any], records: Sequence[Record]) -> None:
    """Refuse records of another run, and a folder that has none yet."""
    file = f"{path}/records.jsonl"
    if not records:
        raise PagecageError(f"{path} has no record yet", f"pagecage run --resume {path}")
    planned = {trial["trial_id"]: trial["treatment"] for trial in plan["trials"]}
    for record in records:
        if record.experiment != plan["experiment"]:
            raise PagecageError(
                f"{file} mixes experiments: a record of {record.experiment} in a run of {plan['experiment']}",
                "use the folder unmixed",
            )
        if record.trial_id not in planned:
            raise PagecageError(f"{file} has trial {record.trial_id}, which its plan lacks", "use the folder unmixed")
        if record.run_id != plan["run_id"]:
            raise PagecageError(f"{file} has a record of another run, {record.run_id}", "use the folder unmixed")
        if dict(record.treatment) != planned[record.trial_id]:
            raise PagecageError(f"{file}: trial {record.trial_id} has another treatment than its plan", _FORMAT)
