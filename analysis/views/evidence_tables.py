"""Tables of the report as data frames whose cells are text."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import methodcaller
from statistics import median
from typing import Any

import pandas as pd

from analysis.articles.evaluate import ClaimResult, evaluate_claims
from analysis.articles.tables import interval_text
from analysis.cells import (
    cache_state_tally,
    make_cell,
    published_by_treatment,
    treatments,
    trials_of,
)
from analysis.data.events import UNTRACED, events_in_measured_part, traced_table
from analysis.data.load import Claim, Run, flattened
from analysis.formatting import (
    break_at_semicolons,
    format_measured,
    format_published,
    format_quantity,
    format_verdict,
    response_title,
    tally,
    treatment_label,
)
from pagecage.model.published_figures import PublishedFigure
from pagecage.units import format_bytes, format_rate, format_seconds
from pagecage.verdicts.limits import amount
from pagecage.verdicts.verdict import limit_title


def counts_table(run: Run) -> pd.DataFrame:
    points = [t for t in run.trials if t.verdicts.is_data_point]
    excluded = [t for t in points if not t.is_included]
    planned = len(run.plan["trials"])
    unanswered = [t.record.outcome for t in run.trials if not t.verdicts.is_data_point]
    unanswered += ["not run yet"] * (planned - len(run.trials))
    reasons = tally(r.split(":")[0] for t in excluded for r in t.verdicts.reasons)
    rows = [
        ("planned", planned, ""),
        ("with an answer", len(points), tally(t.record.outcome for t in points)),
        ("included", len(points) - len(excluded), ""),
        ("excluded", len(excluded), reasons),
        ("without an answer", planned - len(points), tally(unanswered)),
        ("tried again", run.attempts - len(run.trials), ""),
    ]
    return pd.DataFrame(rows, columns=["trials", "number", "of which"])


def excluded_table(run: Run) -> pd.DataFrame:
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
    found: dict[tuple[str, str], list[Any]] = {}
    for trial in run.trials:
        for limit in trial.verdicts.limits:
            key = (trial.record.cage.name or "", limit_title(limit))
            found.setdefault(key, []).append(limit)
    rows = []
    for (cage, name), limits in found.items():
        prop, last = limits[0].property, limits[-1]
        cap = next((limit.cap for limit in limits if limit.cap is not None), None)
        driven, observed = (
            [value for limit in limits if (value := getattr(limit, key)) is not None]
            for key in ("calibrated", "observed")
        )
        row = {
            "cage": cage,
            "limit": name,
            "cap": "not requested" if cap is None else amount(prop, cap),
            "over-driven to": amount(prop, max(driven)) if driven else "–",
            "highest observed": amount(prop, max(observed)) if observed else "–",
            "verdicts": tally(limit.verdict.replace("_", " ") for limit in limits),
            "example": last.reason,
        }
        rows.append(row)
    return pd.DataFrame(rows)


def proof_table(run: Run) -> pd.DataFrame:
    """Return for each treatment the verdicts on cache state, host and binding limit."""
    rows = []
    for treatment in treatments(run):
        trials = trials_of(run.trials, treatment)
        verdicts = [t.verdicts for t in trials]
        figures = (v.amplification.per_distinct_byte for v in verdicts)
        amplified = sorted(one for one in figures if one is not None)
        middle = amplified[len(amplified) // 2] if amplified else None
        row = {
            "treatment": treatment_label(treatment),
            "outcome": tally(t.record.outcome.replace("_", " ") for t in trials),
            "cache state": cache_state_tally(trials),
            "host": tally(v.host_quiet.verdict.replace("_", " ") for v in verdicts),
            "binding limit": tally(v.binding_limit.verdict for v in verdicts),
            "amplification": "–" if middle is None else format_quantity("amplification", middle),
            "example": verdicts[-1].binding_limit.reason if verdicts else "",
        }
        rows.append(row)
    return pd.DataFrame(rows)


def trial_table(run: Run) -> pd.DataFrame:
    titles, rows = {run.response: response_title(run.response), **_SHORT}, []
    for trial in run.trials:
        record, verdicts, collectors = trial.record, trial.verdicts, trial.record.collectors
        responses = {}
        for name, title in titles.items():
            value = record.response.get(name)
            responses[title] = "–" if value is None else format_quantity(name, value)
        bad = [f"{name} {c['status']}" for name, c in collectors.items() if c["status"] != "ok"]
        row = {
            "#": record.position,
            "trial": treatment_label(record.treatment),
            "repeat": record.repeat,
            "outcome": record.outcome.replace("_", " "),
            **responses,
            "binding limit": verdicts.binding_limit.verdict,
            "host": verdicts.host_quiet.verdict.replace("_", " "),
            "included": "yes" if trial.is_included else "no",
            "collectors": ", ".join(bad) or ("complete" if collectors else "–"),
        }
        rows.append(row)
    frame = pd.DataFrame(rows)
    shown = [one for one in frame if one not in _SHORT.values() or (frame[one] != "–").any()]
    return frame[shown]


_SHORT = {
    "read_seconds": "measured",
    "covered_fraction": "covered",
    "full_pass_seconds": "whole pass",
    "device_read_bytes": "disk bytes",
    "device_reads": "disk reads",
    "amplification": "per byte",
    "major_faults": "major faults",
}


def facts_table(run: Run) -> pd.DataFrame:
    flat = [dict(flattened(facts)) for facts in run.facts]
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
    plan = run.plan
    harness = plan.get("harness") or {}
    size = (run.definition.get("sizes") or {}).get(plan["size"]) or {}
    changed = " with uncommitted changes" if harness.get("git_dirty") else ""
    rows = {
        "command": plan["command"],
        "run": plan["run_id"],
        "host": plan["host"],
        "size": f"{plan['size']}: {', '.join(f'{k} {v}' for k, v in size.items())}",
        "reason for the size": plan.get("size_reason") or "as requested",
        "seed of the trial order": plan["seed"],
        "repeats, fresh machine state": f"{plan.get('repeats')}, {plan.get('fresh')}",
        "pagecage": f"{harness.get('version')}, revision {harness.get('git_revision')}{changed}",
        "plan, SHA-256": plan.get("plan_sha256"),
        "definition, SHA-256": plan.get("definition_sha256"),
    }
    found = [t.record.data for t in run.trials if t.record.data.manifest_sha256 is not None]
    if found:
        restored = [one.restored for one in found if one.restored is not None]
        methods = " and ".join(sorted({one["method"] for one in restored}))
        again = [one["copied_bytes"] for one in restored[1:]]
        most = f", later with at most {format_bytes(max(again))} written" if again else ""
        how = f", restored before {len(restored)} trials by {methods}{most}" if restored else ""
        copied = f"{format_bytes(found[0].size_bytes or 0)} in {found[0].entries} entries"
        rows["data"] = copied + how
        hashes = sorted({one.manifest_sha256 or "" for one in found})
        rows["data, SHA-256 of the manifest"] = ", ".join(hashes)
    lines = [(key, str(value)) for key, value in rows.items()]
    return pd.DataFrame(lines, columns=["what", "value"])


def fault_table(fault_df: pd.DataFrame) -> pd.DataFrame:
    if fault_df.empty:
        return pd.DataFrame()
    counts = fault_df.groupby(["treatment", "vm_flags"], sort=False)["count"]
    summed = counts.agg(["sum", "size"]).reset_index()
    summed["sum"] = summed["sum"].map("{:,}".format)
    titles = ["treatment", "flags of the mapping", "faults in all trials", "trials"]
    summed.columns = pd.Index(titles)
    return summed


def collectors_table(run: Run, names: Sequence[str]) -> pd.DataFrame:
    rows = []
    for name in names:
        entries = [entry for trial in run.trials if (entry := trial.record.collectors.get(name))]
        complete = sum(entry.get("status") == "ok" for entry in entries)
        lines = [count for entry in entries if isinstance(count := entry.get("lines"), int)]
        gaps = (gap for entry in entries if isinstance(gap := entry.get("gaps"), int))
        shares = []
        for entry in entries:
            used, seconds = entry.get("cpu_seconds"), entry.get("seconds")
            if isinstance(used, int | float) and isinstance(seconds, int | float) and seconds > 0:
                shares.append(used / seconds)
        row = {
            "collector": name,
            "complete": f"{complete} of {len(entries)} trials",
            "required": "yes" if any(entry.get("required") for entry in entries) else "no",
            "lines": f"{median(lines):g}" if lines else "–",
            "silent": str(sum(gaps)),
            "CPU": f"{100 * max(shares):.1f} %" if shares else "–",
        }
        rows.append(row)
    return pd.DataFrame(rows)


def response_table(run: Run, table: Claim) -> pd.DataFrame:
    """Return a further table: the treatments of its `where` down, its responses across."""
    chosen = [t for t in treatments(run) if (table.get("where") or {}).items() <= dict(t).items()]
    varying = [name for name in run.factors if len({t[name] for t in chosen}) > 1]
    rows = []
    for treatment in chosen:
        row = {(name, ""): treatment[name] for name in varying}
        for position, (heading, response) in enumerate(table["columns"].items()):
            cell = make_cell(run, treatment, response)
            published = published_by_treatment(run, response).get(treatment_label(treatment), "")
            row[heading, "published"] = published
            note = cell.note(None, has_footnote=True)
            row[heading, "measured"] = cell.text if position else f"{cell.text}\n{note}"
        rows.append(row)
    shown = [
        column
        for column in dict.fromkeys(column for row in rows for column in row)
        if column[1] != "published" or any(row.get(column) for row in rows)
    ]
    cells = [[row.get(column, "") for column in shown] for row in rows]
    if not any(below == "published" for _, below in shown):
        return pd.DataFrame(cells, columns=[heading for heading, _ in shown] if shown else None)
    return pd.DataFrame(cells, columns=pd.MultiIndex.from_tuples(shown))


_SHORT_TEXT = 24


def claims_table(run: Run) -> pd.DataFrame:
    return pd.DataFrame(_claim_row(one) for one in evaluate_claims(run) if not one.is_silent)


def silent_table(run: Run) -> pd.DataFrame:
    """Return the claims that the run has no figure for."""
    rows = [_claim_row(one) for one in evaluate_claims(run) if one.is_silent]
    shown = ["claim", "statement", "published", "reason"]
    return pd.DataFrame(rows, columns=shown if rows else None)


def _claim_row(result: ClaimResult) -> dict[str, str]:
    spread, unit = f"\nn {result.n}" if result.n else "", result.unit
    if interval := interval_text(result):
        spread = f"\n{result.kind} {interval}, n {result.n}"
    measured = format_measured(result.measured, unit, result.verdict)
    return {
        "claim": result.id,
        "statement": break_at_semicolons(result.says),
        "published": _unbroken(format_published(result.published, unit)),
        "measured": _unbroken(measured) + spread,
        "kind": result.counts_as,
        "verdict": _unbroken(format_verdict(result.verdict)),
        "reason": result.reason,
    }


def _unbroken(text: str) -> str:
    """Keep a figure next to its unit; a long list of flags may break between them."""
    short = len(text) <= _SHORT_TEXT
    return text.replace(" ", "\N{NO-BREAK SPACE}") if short else text.replace("|", " ")


def untestable_table(run: Run, rows: Sequence[PublishedFigure]) -> pd.DataFrame:
    found: dict[str, list[PublishedFigure]] = {}
    for row in rows:
        if row.untestable and run.experiment in row.experiments:
            found.setdefault(row.untestable, []).append(row)
    return pd.DataFrame(
        [
            {
                "claims": ", ".join(row.id for row in figures),
                "published": "; ".join(
                    f"{row.metric} {format_published(row.published, row.unit)}" for row in figures
                ),
                "reason": reason,
            }
            for reason, figures in found.items()
        ]
    )


_LEAST_SHARE = 0.01
"""Values in a smaller share of events come from a thread's start or end, and are left out."""


@dataclass(frozen=True)
class EventColumn:
    """A column: the probe, the key of its events, and the format of a value."""

    title: str
    probe: str
    key: str
    text: Callable[[int], str] = str


_EVENT_COLUMNS = (
    EventColumn("vm_flags", "filemap_fault", "vm_flags", "{:X}".format),
    EventColumn("fault_flags", "filemap_fault", "fault_flags", "{:X}".format),
    EventColumn("pages", "filemap_fault", "ra_pages"),
    EventColumn("returned", "filemap_fault_return", "returned"),
    EventColumn("read-ahead pages", "page_cache_ra_order", "pages"),
    EventColumn("read-ahead order", "page_cache_ra_order", "order"),
)


def fault_event_table(run: Run) -> pd.DataFrame:
    """Return one row per treatment with a traced fault, and each column's frequent values.

    Flags are hexadecimal, as bpftrace prints them with %x. A cell without an event is empty. Where
    the attached probes could not tell, the cell says so.
    """
    counts, untraced = defaultdict[tuple[str, str], Counter[Any]](Counter), set[tuple[str, str]]()
    for trial in run.trials:
        for column in _EVENT_COLUMNS:
            place = treatment_label(trial.record.treatment), column.title
            if (table := traced_table(trial, column.probe, column.key)) is None:
                untraced.add(place)
                continue
            found = events_in_measured_part(run, trial, table, methodcaller("get", column.key))
            found.pop(None, None)
            counts[place].update(found)
    rows = []
    for name in dict.fromkeys(treatment_label(trial.record.treatment) for trial in run.trials):
        row = {"treatment": name}
        for column in _EVENT_COLUMNS:
            counter = counts[name, column.title]
            least = _LEAST_SHARE * counter.total()
            values = (value for value, n in counter.most_common() if n >= least)
            none = UNTRACED if (name, column.title) in untraced else ""
            row[column.title] = ", ".join(map(column.text, values)) or none
        if any(counts[name, column.title] for column in _EVENT_COLUMNS):
            rows.append(row)
    return pd.DataFrame(rows, columns=["treatment", *(one.title for one in _EVENT_COLUMNS)])
