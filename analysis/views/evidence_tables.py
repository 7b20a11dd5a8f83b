"""Tables of the report: frame or run in, frame out; every cell is text that a person can read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.claims.evaluate import ClaimResult, evaluate_claims
from analysis.data.load import JudgedTrial, Run
from analysis.formatting import (
    MARKS,
    claim_figure,
    label,
    published_figure,
    quantity,
    span,
    title,
    unit_figure,
    words_of,
)
from analysis.summaries.cells import treatments
from analysis.summaries.diagnoses import told_by_treatment
from analysis.summaries.differences import flatten
from pagecage.model.published_figures import PublishedFigure
from pagecage.units import format_bytes, format_rate, format_seconds
from pagecage.verdicts.limits import amount


def claims_table(run: Run) -> pd.DataFrame:
    """Published, measured, held or not, and why: every claim of the definition that the run says something about."""
    return pd.DataFrame([_claim_row(result) for result in evaluate_claims(run) if not result.is_silent])


def silent_table(run: Run) -> pd.DataFrame:
    """Claims of the definition that the run says nothing about, and why."""
    silent = [_claim_row(result) for result in evaluate_claims(run) if result.is_silent]
    return pd.DataFrame(silent, columns=["claim", "says", "published", "why"] if silent else None)


def _claim_row(result: ClaimResult) -> dict[str, str]:
    spread = ""
    if result.low is not None and result.high is not None and result.n > 1:
        low, high = unit_figure(result.low, result.unit), unit_figure(result.high, result.unit)
        spread = f"\n{result.kind} {span(low, high)}, n {result.n}"
    return {
        "claim": result.id,
        "says": words_of(result.says),
        "published": _unbroken(published_figure(result.published, result.unit)),
        "measured": _unbroken(claim_figure(result.measured, result.unit, result.verdict)) + spread,
        "verdict": _unbroken(MARKS[result.verdict]),
        "why": result.reason,
    }


def _unbroken(text: str) -> str:
    """A figure stays beside its unit; a list of flags may break anywhere between them."""
    return text.replace(" ", "\N{NO-BREAK SPACE}") if len(text) <= _SHORT_TEXT else text.replace("|", " ")


_SHORT_TEXT = 24


def untestable_table(run: Run, rows: Sequence[PublishedFigure]) -> pd.DataFrame:
    """The published figures of this experiment that no run could test, and why; neighbours with one reason together."""
    found: dict[str, list[PublishedFigure]] = {}
    for row in rows:
        if row.untestable and run.plan["experiment"] in row.experiments:
            found.setdefault(row.untestable, []).append(row)
    told = [
        {"claims": ", ".join(row.id for row in some), "published": _figures(some), "why no run here tests it": reason}
        for reason, some in found.items()
    ]
    return pd.DataFrame(told)


def _figures(rows: Sequence[PublishedFigure]) -> str:
    return "; ".join(f"{row.metric} {published_figure(row.published, row.unit)}" for row in rows)


def counts_table(run: Run) -> pd.DataFrame:
    """How many trials there are, have an answer, are averaged in, and are not."""
    points = [t for t in run.trials if t.verdicts.is_data_point]
    excluded = [t for t in points if not t.is_included]
    planned = len(run.plan["trials"])
    rows = [
        ("planned", planned, ""),
        ("with an answer", len(points), _tally(t.record.outcome for t in points)),
        ("averaged in", len(points) - len(excluded), ""),
        ("excluded", len(excluded), _tally(r.split(":")[0] for t in excluded for r in t.verdicts.reasons)),
        ("without an answer", planned - len(points), _tally(_unanswered(run))),
        ("tried again", run.attempts - len(run.trials), ""),
    ]
    return pd.DataFrame(rows, columns=["trials", "number", "of which"])


def _unanswered(run: Run) -> list[str]:
    missing = len(run.plan["trials"]) - len(run.trials)
    outcomes = [t.record.outcome for t in run.trials if not t.verdicts.is_data_point]
    return [*outcomes, *["not run yet"] * missing]


def _tally(words: Any) -> str:
    return ", ".join(f"{n} {word}" for word, n in Counter(words).most_common())


def excluded_table(run: Run) -> pd.DataFrame:
    """Each trial that is not averaged in, and every reason."""
    rows = [
        {"trial": label(dict(t.record.treatment)), "repeat": t.record.repeat, "outcome": t.record.outcome,
         "reason": "; ".join(t.verdicts.reasons) or t.record.error or "it has no answer"}
        for t in run.trials if not t.is_included
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["trial", "repeat", "outcome", "reason"])


def limits_table(run: Run) -> pd.DataFrame:
    """Each limit of each cage: what it lets through by calibration, what the trials came to, and the verdicts."""
    rows: dict[tuple[str, str], list[tuple[JudgedTrial, Any]]] = {}
    for trial in run.trials:
        for limit in trial.verdicts.limits:
            rows.setdefault((trial.record.cage.name or "", limit.property), []).append((trial, limit))
    return pd.DataFrame([_limit_row(*key, found) for key, found in rows.items()])


def _limit_row(cage: str, name: str, found: Sequence[tuple[JudgedTrial, Any]]) -> dict[str, str]:
    limits = [limit for _, limit in found]
    observed = [limit.observed for limit in limits if limit.observed is not None]
    driven = [limit.calibrated for limit in limits if limit.calibrated is not None]
    cap = next((limit.cap for limit in limits if limit.cap is not None), None)
    return {
        "cage": cage,
        "limit": name,
        "cap": "not asked for" if cap is None else amount(name, cap),
        "over-driven to": amount(name, max(driven)) if driven else "–",
        "trials came to, at most": amount(name, max(observed)) if observed else "–",
        "verdicts": _tally(limit.verdict.replace("_", " ") for limit in limits),
        "for instance": limits[-1].reason,
    }


def proof_table(run: Run) -> pd.DataFrame:
    """For each treatment: was the cache in the state asked for, was the host quiet, what held the trial back."""
    return pd.DataFrame([_proof_row(run, treatment) for treatment in treatments(run)])


def _proof_row(run: Run, treatment: Mapping[str, str]) -> dict[str, str]:
    trials = [t for t in run.trials if dict(t.record.treatment) == dict(treatment)]
    verdicts = [t.verdicts for t in trials]
    amplified = [v.amplification.per_distinct_byte for v in verdicts if v.amplification.per_distinct_byte is not None]
    return {
        "treatment": label(dict(treatment)),
        "outcome": _tally(t.record.outcome.replace("_", " ") for t in trials),
        "cache state": _tally(v.cache_state_reached.verdict.replace("_", " ") for v in verdicts),
        "host": _tally(v.host_quiet.verdict.replace("_", " ") for v in verdicts),
        "held back by": _tally(v.binding_limit.verdict for v in verdicts),
        "amplification": quantity("amplification", sorted(amplified)[len(amplified) // 2]) if amplified else "–",
        "for instance": verdicts[-1].binding_limit.reason if verdicts else "",
    }


def diagnosis_table(run: Run) -> pd.DataFrame:
    """For each caged treatment the sentence that says what held it and what would help."""
    told = told_by_treatment(run)
    return pd.DataFrame([{"treatment": label(dict(name)), "what held it, what would help": why} for name, why in told])


def trial_table(run: Run) -> pd.DataFrame:
    """Every trial on one line, in the order they ran; responses that none of them has are left out."""
    frame = pd.DataFrame([_trial_row(run, trial) for trial in run.trials])
    return frame[[name for name in frame if name not in _SHORT.values() or (frame[name] != "–").any()]]


_SHORT = {
    "read_seconds": "measured", "covered_fraction": "covered", "full_pass_seconds": "whole pass",
    "device_read_bytes": "disk bytes", "device_reads": "disk reads", "amplification": "per byte",
    "major_faults": "major faults",
}  # fmt: skip


def _trial_row(run: Run, trial: JudgedTrial) -> dict[str, Any]:
    record, verdicts, response = trial.record, trial.verdicts, trial.record.response

    def said(name: str) -> str:
        value = response.get(name)
        return "–" if value is None else quantity(name, value)

    return {
        "#": record.position,
        "trial": label(dict(record.treatment)),
        "repeat": record.repeat,
        "outcome": record.outcome.replace("_", " "),
        **{column: said(name) for name, column in {run.response: title(run.response), **_SHORT}.items()},
        "held back by": verdicts.binding_limit.verdict,
        "host": verdicts.host_quiet.verdict.replace("_", " "),
        "averaged in": "yes" if trial.is_included else "no",
        "collectors": _collectors(record.collectors),
    }


def _collectors(collectors: Mapping[str, Any]) -> str:
    bad = [f"{name} {c['status']}" for name, c in collectors.items() if c["status"] != "ok"]
    return ", ".join(bad) or ("all whole" if collectors else "–")


def facts_table(run: Run) -> pd.DataFrame:
    """What the host is; one column for each machine state that the run saw."""
    flat = [dict(flatten(facts)) for facts in run.facts]
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
    """How to make this again: command, seed, sizes, order, versions and hashes."""
    plan = run.plan
    harness = plan.get("harness") or {}
    size = (run.definition.get("sizes") or {}).get(plan["size"]) or {}
    rows = {
        "command": plan["command"],
        "run": plan["run_id"],
        "host": plan["host"],
        "size": f"{plan['size']}: {', '.join(f'{k} {v}' for k, v in size.items())}",
        "why that size": plan.get("size_reason") or "it was asked for",
        "seed of the order": plan["seed"],
        "repeats, fresh machine state": f"{plan.get('repeats')}, {plan.get('fresh')}",
        "pagecage": f"{harness.get('version')}, revision {harness.get('git_revision')}"
        + (" with uncommitted changes" if harness.get("git_dirty") else ""),
        "plan, SHA-256": plan.get("plan_sha256"),
        "definition, SHA-256": plan.get("definition_sha256"),
    }
    return pd.DataFrame([(key, str(value)) for key, value in rows.items()], columns=["what", "value"])


def fault_table(fault_df: pd.DataFrame) -> pd.DataFrame:
    """How often a mapping with which flags faulted, by treatment: advice shows as VM_RAND_READ or VM_SEQ_READ."""
    if fault_df.empty:
        return pd.DataFrame()
    summed = fault_df.groupby(["treatment", "vm_flags"], sort=False)["count"].agg(["sum", "size"]).reset_index()
    summed["sum"] = summed["sum"].map("{:,}".format)
    summed.columns = pd.Index(["treatment", "flags of the mapping", "faults in all trials", "trials"])
    return summed
