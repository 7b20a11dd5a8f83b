"""Tables of the report as data frames whose cells are text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.cells import cache_state_tally, diagnosis_by_treatment, treatments
from analysis.comparison import flatten_facts
from analysis.data.load import JudgedTrial, Run
from analysis.formatting import format_quantity, response_title, treatment_label
from pagecage.units import format_bytes, format_rate, format_seconds
from pagecage.verdicts.limits import amount
from pagecage.verdicts.verdict import limit_title


def counts_table(run: Run) -> pd.DataFrame:
    """Return the number of trials that are planned, answered, included and excluded."""
    points = [t for t in run.trials if t.verdicts.is_data_point]
    excluded = [t for t in points if not t.is_included]
    planned = len(run.plan["trials"])
    rows = [
        ("planned", planned, ""),
        ("with an answer", len(points), _tally(t.record.outcome for t in points)),
        ("included", len(points) - len(excluded), ""),
        (
            "excluded",
            len(excluded),
            _tally(r.split(":")[0] for t in excluded for r in t.verdicts.reasons),
        ),
        ("without an answer", planned - len(points), _tally(_unanswered(run))),
        ("tried again", run.attempts - len(run.trials), ""),
    ]
    return pd.DataFrame(rows, columns=["trials", "number", "of which"])


def _unanswered(run: Run) -> list[str]:
    missing = len(run.plan["trials"]) - len(run.trials)
    outcomes = [t.record.outcome for t in run.trials if not t.verdicts.is_data_point]
    return [*outcomes, *["not run yet"] * missing]


def _tally(values: Any) -> str:
    return ", ".join(f"{n} {word}" for word, n in Counter(values).most_common())


def excluded_table(run: Run) -> pd.DataFrame:
    """Return each trial that is not averaged in, with every reason."""
    rows = [
        {
            "trial": treatment_label(t.record.treatment),
            "repeat": t.record.repeat,
            "outcome": t.record.outcome,
            "reason": "; ".join(t.verdicts.reasons) or t.record.error or "it has no answer",
        }
        for t in run.trials
        if not t.is_included
    ]
    return pd.DataFrame(rows, columns=["trial", "repeat", "outcome", "reason"])


def limits_table(run: Run) -> pd.DataFrame:
    """Return each limit of each cage: calibrated and observed maxima, and the verdicts."""
    rows: dict[tuple[str, str], list[tuple[JudgedTrial, Any]]] = {}
    for trial in run.trials:
        for limit in trial.verdicts.limits:
            key = (trial.record.cage.name or "", limit_title(limit))
            rows.setdefault(key, []).append((trial, limit))
    return pd.DataFrame([_limit_row(*key, found) for key, found in rows.items()])


def _limit_row(cage: str, name: str, found: Sequence[tuple[JudgedTrial, Any]]) -> dict[str, str]:
    limits = [limit for _, limit in found]
    prop = limits[0].property
    observed = [limit.observed for limit in limits if limit.observed is not None]
    driven = [limit.calibrated for limit in limits if limit.calibrated is not None]
    cap = next((limit.cap for limit in limits if limit.cap is not None), None)
    return {
        "cage": cage,
        "limit": name,
        "cap": "not requested" if cap is None else amount(prop, cap),
        "over-driven to": amount(prop, max(driven)) if driven else "–",
        "highest observed": amount(prop, max(observed)) if observed else "–",
        "verdicts": _tally(limit.verdict.replace("_", " ") for limit in limits),
        "example": limits[-1].reason,
    }


def proof_table(run: Run) -> pd.DataFrame:
    """Return for each treatment the verdicts on cache state, host and binding limit."""
    return pd.DataFrame([_proof_row(run, treatment) for treatment in treatments(run)])


def _proof_row(run: Run, treatment: Mapping[str, str]) -> dict[str, str]:
    trials = [t for t in run.trials if dict(t.record.treatment) == dict(treatment)]
    verdicts = [t.verdicts for t in trials]
    amplified = [
        v.amplification.per_distinct_byte
        for v in verdicts
        if v.amplification.per_distinct_byte is not None
    ]
    return {
        "treatment": treatment_label(treatment),
        "outcome": _tally(t.record.outcome.replace("_", " ") for t in trials),
        "cache state": cache_state_tally(trials),
        "host": _tally(v.host_quiet.verdict.replace("_", " ") for v in verdicts),
        "binding limit": _tally(v.binding_limit.verdict for v in verdicts),
        "amplification": format_quantity("amplification", sorted(amplified)[len(amplified) // 2])
        if amplified
        else "–",
        "example": verdicts[-1].binding_limit.reason if verdicts else "",
    }


def diagnosis_table(run: Run) -> pd.DataFrame:
    """Return the diagnosis of each caged treatment."""
    rows = [
        (treatment_label(treatment), diagnosis)
        for treatment, diagnosis in diagnosis_by_treatment(run)
    ]
    return pd.DataFrame(rows, columns=["treatment", "diagnosis"] if rows else None)


def trial_table(run: Run) -> pd.DataFrame:
    """Return one row per trial, in the order they ran, without responses that no trial has."""
    frame = pd.DataFrame([_trial_row(run, trial) for trial in run.trials])
    return frame[
        [name for name in frame if name not in _SHORT.values() or (frame[name] != "–").any()]
    ]


_SHORT = {
    "read_seconds": "measured",
    "covered_fraction": "covered",
    "full_pass_seconds": "whole pass",
    "device_read_bytes": "disk bytes",
    "device_reads": "disk reads",
    "amplification": "per byte",
    "major_faults": "major faults",
}


def _trial_row(run: Run, trial: JudgedTrial) -> dict[str, Any]:
    record, verdicts, response = trial.record, trial.verdicts, trial.record.response

    def text(name: str) -> str:
        value = response.get(name)
        return "–" if value is None else format_quantity(name, value)

    return {
        "#": record.position,
        "trial": treatment_label(record.treatment),
        "repeat": record.repeat,
        "outcome": record.outcome.replace("_", " "),
        **{
            column: text(name)
            for name, column in {run.response: response_title(run.response), **_SHORT}.items()
        },
        "binding limit": verdicts.binding_limit.verdict,
        "host": verdicts.host_quiet.verdict.replace("_", " "),
        "included": "yes" if trial.is_included else "no",
        "collectors": _collectors(record.collectors),
    }


def _collectors(collectors: Mapping[str, Any]) -> str:
    bad = [f"{name} {c['status']}" for name, c in collectors.items() if c["status"] != "ok"]
    return ", ".join(bad) or ("complete" if collectors else "–")


def facts_table(run: Run) -> pd.DataFrame:
    """Return the facts of the host; one column for each machine state that the run had."""
    flat = [dict(flatten_facts(facts)) for facts in run.facts]
    names = list(dict.fromkeys(name for facts in flat for name in facts))
    rows = [[name, *(_plain(name, facts.get(name)) for facts in flat)] for name in names]
    states = [""] if len(flat) == 1 else [f"state {number}" for number in range(1, len(flat) + 1)]
    return pd.DataFrame(rows, columns=["fact", *states])


def _plain(name: str, value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        if name.endswith("_bytes"):
            return format_bytes(value)
        if name.endswith("bytes_per_second"):
            return format_rate(value)
        if name.endswith("_seconds"):
            return format_seconds(value)
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "not known" if value is None else str(value)


def making_table(run: Run) -> pd.DataFrame:
    """Return what is needed to repeat the run: command, seed, size, versions and hashes."""
    plan = run.plan
    harness = plan.get("harness") or {}
    size = (run.definition.get("sizes") or {}).get(plan["size"]) or {}
    rows = {
        "command": plan["command"],
        "run": plan["run_id"],
        "host": plan["host"],
        "size": f"{plan['size']}: {', '.join(f'{k} {v}' for k, v in size.items())}",
        "reason for the size": plan.get("size_reason") or "as requested",
        "seed of the trial order": plan["seed"],
        "repeats, fresh machine state": f"{plan.get('repeats')}, {plan.get('fresh')}",
        "pagecage": f"{harness.get('version')}, revision {harness.get('git_revision')}"
        + (" with uncommitted changes" if harness.get("git_dirty") else ""),
        "plan, SHA-256": plan.get("plan_sha256"),
        "definition, SHA-256": plan.get("definition_sha256"),
        **_data_rows(run),
    }
    return pd.DataFrame(
        [(key, str(value)) for key, value in rows.items()], columns=["what", "value"]
    )


def _data_rows(run: Run) -> dict[str, str]:
    """Return the prepared or copied data of the trials, and how they were restored."""
    found = [t.record.data for t in run.trials if t.record.data.manifest_sha256 is not None]
    if not found:
        return {}
    restored = [one.restored for one in found if one.restored is not None]
    methods = " and ".join(sorted({one["method"] for one in restored}))
    again = [one["copied_bytes"] for one in restored[1:]]
    most = f", later with at most {format_bytes(max(again))} written" if again else ""
    how = f", restored before {len(restored)} trials by {methods}{most}" if restored else ""
    return {
        "data": f"{format_bytes(found[0].size_bytes or 0)} in {found[0].entries} entries{how}",
        "data, SHA-256 of the manifest": ", ".join(
            sorted({one.manifest_sha256 or "" for one in found})
        ),
    }


def fault_table(fault_df: pd.DataFrame) -> pd.DataFrame:
    """Return fault counts by treatment and by the mapping's flags.

    Advice is visible as VM_RAND_READ or VM_SEQ_READ.
    """
    if fault_df.empty:
        return pd.DataFrame()
    summed = (
        fault_df.groupby(["treatment", "vm_flags"], sort=False)["count"]
        .agg(["sum", "size"])
        .reset_index()
    )
    summed["sum"] = summed["sum"].map("{:,}".format)
    summed.columns = pd.Index(
        ["treatment", "flags of the mapping", "faults in all trials", "trials"]
    )
    return summed
