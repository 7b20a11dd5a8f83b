"""The top strip of a run's report: its result, the binding limit, its validity and a picture."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from analysis.articles.findings import Finding, evaluate_findings
from analysis.cells import (
    MARK,
    BindingCause,
    TreatmentCell,
    causes,
    main_cells,
    make_cell,
    treatments,
    varying_label,
)
from analysis.data.load import Claim, Run, Treatment, included_by_name
from analysis.formatting import format_interval, format_quantity, response_title, sentence_case
from analysis.memory import memory_run
from analysis.stats import MedianSummary
from analysis.sweep import Sweep, sweep_of, sweep_sentences
from pagecage.checkout import TOP
from pagecage.errors import UNREADABLE
from pagecage.model.cage import UNCAGED
from pagecage.report.model import BarChart, Strip
from pagecage.units import format_bytes, format_seconds

MOST_BARS = 8
_MOST_CAUSES = 2


def run_strip(run: Run, limits: Sequence[BindingCause] | None = None) -> Strip:
    """Return the strip of a run of any kind; `limits` are its causes, if they are known."""
    cells, sides = main_cells(run), list[Treatment]()
    if search := memory_run(run):
        text, is_proven = search.sentences[0], search.answer is not None
        steps = [(one.limit_bytes, one.seconds) for one in search.steps if one.seconds is not None]
        chart: BarChart | None = bar_chart(
            "time by MemoryMax",
            ((format_bytes(of) if of else "all", time, format_seconds(time)) for of, time in steps),
        )
    elif sweep := sweep_of(run):
        text, chart = _sweep(sweep)
        is_proven = any(point.is_counted and point.measured for point in sweep.points)
    else:
        tables = headline_tables(run)
        sides = [s for one in tables for s in (one["where"], one.get("over")) if s is not None]
        chart = _chart(run, cells, sides)
        asked = {**run.definition, "findings": tables}
        findings = evaluate_findings(replace(run, plan={**run.plan, "definition": asked}))
        found = [one for one in zip(tables, findings, strict=True) if one[1].value is not None]
        proven = [one for one in found if one[1].is_proven]
        text, is_proven = "; ".join(_said(*one) for one in proven or found), bool(proven)
        text = sentence_case(text)
        if not found:
            text = _extremes(run, cells)
            is_proven = any(cell.summary and not cell.is_all_excluded for cell in cells)
    limit = _limit(causes(run) if limits is None else limits, sides)
    return Strip(text.rstrip("."), limit, _trust(run, cells), chart, is_proven)


def bar_chart(title: str, rows: Iterable[tuple[str, float, str]]) -> BarChart:
    """Return a chart of rows: their label, their value, and the value as text."""
    bars = list(rows)
    return BarChart(
        title,
        tuple(label for label, _, _ in bars),
        tuple(value for _, value, _ in bars),
        tuple(text for _, _, text in bars),
    )


def headline_tables(run: Run) -> list[dict[str, Any]]:
    """Return the parts of the run's headline, as tables with the keys of findings.

    They are those of its definition; of a replay those of its cage and its control; else the first
    finding that compares. A run from before the key gets those of the present definition.
    """
    definition, planned = run.definition, list(treatments(run))
    if run.plan.get("replay") is not None:
        return list(_replay_tables(run))
    found = definition.get("headline")
    if found is None:
        path = TOP / "experiments" / f"{run.experiment}.toml"
        with suppress(*UNREADABLE):
            found = tomllib.loads(path.read_text(encoding="utf-8")).get("headline")

    def has_treatments(side: Treatment) -> bool:
        return any(side.items() <= one.items() for one in planned)

    found = [
        {"where": {}, **table}
        for table in (found if isinstance(found, list) else ())
        if has_treatments(table.get("where") or {}) and has_treatments(table.get("over") or {})
    ]
    findings = [{"where": {}, **one} for one in definition.get("findings") or ()]
    return found or [one for one in findings if one.get("over")][:1] or findings[:1]


def _replay_tables(run: Run) -> Iterator[dict[str, Any]]:
    """Yield the figure in the first cage, and its ratio to the figure without limits."""
    cages = [levels["cage"] for levels in treatments(run)]
    cage = next((name for name in cages if name != UNCAGED), cages[0])
    where, response = {"cage": cage}, run.response
    words = {"ready_seconds": " until it serves", "wall_seconds": ""}.get(response, "")
    yield {"says": f"{{value}}{words} in {cage}", "response": response, "where": where}
    if cage != UNCAGED and UNCAGED in cages:
        free = make_cell(run, {"cage": UNCAGED}, response)
        says = f"{{value}} the {_plain(free)} without limits"
        yield {"says": says, "response": response, "where": where, "over": {"cage": UNCAGED}}


def _said(table: Claim, finding: Finding) -> str:
    """Return the sentence with its figure and interval; the strip states `n` once."""
    text = finding.value or ""
    if finding.middle is not None and finding.low is not None and finding.high is not None:
        is_ratio = table.get("over") is not None
        name = "amplification" if is_ratio else table["response"]
        summary = MedianSummary(finding.n, finding.middle, finding.low, finding.high, "")
        middle, interval = format_interval(name, summary)
        text = f"{middle} ({interval})" if interval and finding.is_proven else middle
        if "{value} times" in table["says"]:
            text = text.replace("×", "")
        text = text if finding.is_proven else f"({text}) †"
    return str(table["says"]).replace("{value}", text).strip().rstrip(".")


def _extremes(run: Run, cells: Sequence[TreatmentCell]) -> str:
    """Return the least and the greatest figure, of a run whose definition names no headline."""
    known = [cell for cell in cells if cell.summary]
    if not known:
        return "No trial has a figure"

    def middle(cell: TreatmentCell) -> float:
        return cell.summary.middle if cell.summary else 0.0

    def with_interval(cell: TreatmentCell) -> str:
        interval = format_interval(cell.response, cell.summary)[1] if cell.summary else ""
        return f"{_plain(cell)} ({interval})" if interval else _plain(cell)

    least, most, name = min(known, key=middle), max(known, key=middle), response_title(run.response)
    title = f"{sentence_case(name)}: {with_interval(least)}"
    if len(known) == 1:
        return title
    ratio = middle(most) / middle(least) if middle(least) > 0 else None
    times = f", {format_quantity('amplification', ratio)}" if ratio is not None else ""
    low, high = (varying_label(run, cell.treatment) for cell in (least, most))
    ends = f"({low}) to {with_interval(most)} ({high})"
    return f"{title} {ends}{times}"


def _plain(cell: TreatmentCell) -> str:
    """Return a figure without the mark for a missing proof, which the strip states once."""
    return cell.text.replace(f" {MARK}", "")


def _limit(found: Sequence[BindingCause], sides: Sequence[Treatment]) -> str:
    about = [
        replace(one, diagnoses=named)
        for one in found
        if (named := tuple(d for d in one.diagnoses if sides and sides[0].items() <= d[0].items()))
    ]
    parts = []
    for one in (shown := about or found)[:_MOST_CAUSES]:
        count = len(one.diagnoses)
        parts.append(f"{one.text} ({count} treatments)" if count > 1 else one.text)
    more = len(shown) - len(parts)
    return "; ".join([*parts, *([f"{more} other"] if more else [])])


def _trust(run: Run, cells: Sequence[TreatmentCell]) -> str:
    included = [trial for trial in run.trials if trial.is_included]
    counts = sorted({cell.summary.n for cell in cells if cell.summary and not cell.is_all_excluded})
    parts = [f"{len(included)} of {len(run.plan['trials'])} trials"]
    if counts:
        parts.append(f"n {counts[0]}" + (f" to {counts[-1]}" if counts[1:] else ""))
    parts.append("emulated CPU (times not comparable)" if run.is_emulated else "real CPU")
    if unproven := sum(trial.lacks_proof for trial in included):
        parts.append(f"{unproven} without full proof")
    if named := included_by_name(run):
        parts.append(f"included by name: {', '.join(named)}")
    return ", ".join(parts)


def _chart(run: Run, cells: Sequence[TreatmentCell], sides: Sequence[Treatment]) -> BarChart | None:
    """Return bars of the headline's treatments, or of some between the least and the greatest."""
    known = [cell for cell in cells if cell.summary]
    chosen = [
        c for c in known if any(side and side.items() <= c.treatment.items() for side in sides)
    ]
    if not 2 <= len(chosen) <= MOST_BARS:
        chosen = known
    if len(chosen) > MOST_BARS:
        ranked = sorted(chosen, key=lambda cell: cell.summary.middle if cell.summary else 0.0)
        last = len(ranked) - 1
        picked = {round(step * last / (MOST_BARS - 1)) for step in range(MOST_BARS)}
        chosen = [cell for cell in chosen if ranked.index(cell) in picked]
    if len(chosen) < 2:
        return None
    rows = ((varying_label(run, c.treatment), c.summary, _plain(c)) for c in chosen)
    return bar_chart(
        response_title(run.response), ((name, one.middle, text) for name, one, text in rows if one)
    )


def _sweep(sweep: Sweep) -> tuple[str, BarChart]:
    """Return the knee with the figures at both ends of the sweep, and bars of all figures."""
    known = [(one.name, one.measured) for one in sweep.points if one.measured is not None]
    ends = ", ".join(f"{sweep.format(value)} at {name}" for name, value in known[:1] + known[-1:])
    title = response_title(sweep.response) if sweep.response else "time"
    rows = ((name, value, sweep.format(value)) for name, value in known)
    chart = bar_chart(f"{title} by {sweep.property}", rows)
    return "; ".join([sweep_sentences(sweep)[0].rstrip("."), ends]), chart
