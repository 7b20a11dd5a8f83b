"""Baselines: the figures of a run and what makes them comparable, in a small file to commit.

A run folder keeps raw evidence. A baseline keeps what `pagecage compare` needs: per trial its
outcome, its verdict in one word and some responses, and once per treatment what was run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from analysis.data.load import JudgedTrial, Run, series_of
from pagecage.errors import UNREADABLE, PagecageError, why_unreadable
from pagecage.model.json_codec import from_line
from pagecage.model.record import RECORD_VERSION, record_from_json
from pagecage.model.run_files import MOST_PLAN_BYTES, require_factors
from pagecage.verdicts.evaluate import evaluate
from pagecage.whole_files import document_sha256

BASELINE_VERSION = 1
_RUN = (
    *("run_id", "experiment", "definition_sha256", "size", "size_reason", "seed", "host"),
    *("fresh", "command", "harness"),
)
_DEFINITION = ("question", "response", "factors", "identical")
_TRIAL = (
    *("workload", "before", "dataset", "files", "writes_bytes", "cache", "read_ahead_kb"),
    *("storage", "machine_memory_bytes", "dirty_limits"),
)
_FACTS = (
    *("kernel", "machine", "os_release", "cpus", "cpu_model", "memory_bytes", "swap_bytes"),
    *("transparent_hugepage", "systemd"),
)
"""Facts that make runs comparable. Names of hosts, users and paths stay out of a shared file."""
_COVERED = "covered_fraction"
"""The share of a pass that was read, by which totals are scaled."""
_DISK = ("filesystem", "queue_settings")


_RECORDED = (
    *("trial_id", "treatment", "repeat", "block", "position", "outcome", "emulated", "response"),
)


def baseline_of(run: Run, responses: Sequence[str]) -> dict[str, Any]:
    planned = {trial["trial_id"]: trial for trial in run.plan["trials"]}
    treatments: dict[str, dict[str, Any]] = {}
    for trial in run.trials:
        about, levels = planned[trial.record.trial_id], dict(trial.record.treatment)
        cage = about.get("cage") or {}
        entry = {
            "treatment": levels,
            "cage": {key: cage[key] for key in ("name", "properties") if key in cage},
            **{key: about.get(key) for key in _TRIAL},
            "trials": [],
        }
        treatments.setdefault(json.dumps(levels), entry)["trials"].append(_trial(trial, responses))
    kept = {key: run.definition[key] for key in _DEFINITION if key in run.definition}
    baseline = {
        "baseline_version": BASELINE_VERSION,
        **{key: run.plan.get(key) for key in _RUN},
        "definition": (
            kept | ({"workload": {"metrics": dict(run.metrics)}} if run.metrics else {})
        ),
        "facts": [
            {key: facts[key] for key in _FACTS if key in facts}
            | {"disk": {key: disk[key] for key in _DISK if key in disk}}
            for facts in run.facts
            for disk in (facts.get("disk") or {},)
        ],
        "treatments": list(treatments.values()),
    }
    return {**baseline, "baseline_sha256": baseline_sha256(baseline)}


def baseline_sha256(baseline: Mapping[str, Any]) -> str:
    return document_sha256(baseline, "baseline_sha256")


def _trial(trial: JudgedTrial, responses: Sequence[str]) -> dict[str, Any]:
    record = trial.record
    figures = {name: record.response.get(name) for name in (*responses, _COVERED)}
    return {
        "trial_id": record.trial_id,
        "repeat": record.repeat,
        "block": record.block,
        "position": record.position,
        "outcome": record.outcome,
        "excluded": list(trial.verdicts.reasons) if trial.is_excluded else [],
        "emulated": record.emulated,
        "disk": record.device.name,
        "workload_sha256": record.workload.sha256,
        "response": {name: value for name, value in figures.items() if value is not None},
    }


def load_baseline(path: Path) -> Run:
    """Return the run of a baseline; its trials have no evidence, only their verdict."""
    hint = "pagecage compare RUN --save-baseline FILE"
    try:
        if path.stat().st_size > MOST_PLAN_BYTES:
            raise PagecageError(f"{path} is longer than {MOST_PLAN_BYTES >> 20} MiB", hint)
        data = from_line(path.read_bytes())
        version = data["baseline_version"]
        if version == BASELINE_VERSION:
            if data.get("baseline_sha256") not in (None, baseline_sha256(data)):
                raise PagecageError(f"{path} was changed after it was written", hint)
            return _run(path, data)
    except UNREADABLE as error:
        message = f"{path} is not a baseline: {why_unreadable(error)}"
        raise PagecageError(message, hint) from None
    raise PagecageError(
        f"{path} is a baseline of version {version}", "use the pagecage that wrote it"
    )


def _run(path: Path, data: Mapping[str, Any]) -> Run:
    require_factors(data["definition"], str(path))
    if not all(isinstance(one, dict) for one in data["facts"]):
        raise TypeError("'facts' does not hold tables")
    planned = []
    for entry in data["treatments"]:
        about = {key: value for key, value in entry.items() if key != "trials"}
        planned += [{**about, **trial} for trial in entry["trials"]]
    planned.sort(key=lambda trial: (trial["block"], trial["position"]))
    judged = []
    for trial in planned:
        record = record_from_json(
            {
                "record_version": RECORD_VERSION,
                **{key: data[key] for key in ("run_id", "host", "experiment")},
                **{key: trial[key] for key in _RECORDED},
                "plan_sha256": "",
                "attempt": 1,
                "phase": "record",
                "device": {"name": trial["disk"]},
                "workload": {"sha256": trial["workload_sha256"]},
            },
            f"trial {trial['trial_id']}",
        )
        reasons = tuple(trial["excluded"])
        verdicts = replace(evaluate(record), excluded=bool(reasons), reasons=reasons)
        judged.append(JudgedTrial(record, verdicts, series_of(())))
    plan = {
        **{key: data.get(key) for key in _RUN},
        "definition": data["definition"],
        "trials": planned,
        "planned": len(planned),
    }
    return Run(path, plan, tuple(data["facts"]), tuple(judged), len(judged))
