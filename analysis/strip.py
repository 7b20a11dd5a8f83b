"""The top strip of a run's report: its result, the binding limit, its validity and a picture."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from analysis.articles.findings import Finding, evaluate_findings
from analysis.cells import MARK, TreatmentCell, causes, main_cells, make_cell, treatments
from analysis.data.load import Run, Treatment, included_by_name
from analysis.formatting import format_interval, format_quantity, response_title, treatment_label
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


def run_strip(run: Run) -> Strip:
    """Return the strip of a run of any kind."""
    cells = main_cells(run)
    if search := memory_run(run):
        steps = [one for one in search.steps if one.seconds is not None]
        times = BarChart(
            "time by MemoryMax",
            tuple(format_bytes(one.limit_bytes) if one.limit_bytes else "all" for one in steps),
            tuple(one.seconds or 0.0 for one in steps),
            tuple(format_seconds(one.seconds or 0.0) for one in steps),
        )
        is_answered = search.answer is not None
        return _strip(run, cells, search.sentences[0], (), times, is_proven=is_answered)
    if sweep := sweep_of(run):
        counted = any(point.is_counted and point.measured for point in sweep.points)
        return _strip(run, cells, _sweep_text(sweep), (), _sweep_chart(sweep), is_proven=counted)
    tables = headline_tables(run)
    sides = [side for one in tables for side in (one["where"], one.get("over")) if side is not None]
    chart = _chart(run, cells, sides)
    found = [one for one in _evaluated(run, tables) if one[1].value is not None]
    proven = [one for one in found if one[1].is_proven]
    if not found:
        has_figure = any(cell.summary and not cell.is_all_excluded for cell in cells)
        return _strip(run, cells, _extremes(run, cells), sides, chart, is_proven=has_figure)
    text = "; ".join(_said(table, finding) for table, finding in proven or found)
    return _strip(run, cells, text[:1].upper() + text[1:], sides, chart, is_proven=bool(proven))


def headline_tables(run: Run) -> list[dict[str, Any]]:
    """Return the parts of the run's headline, as tables with the keys of findings.

    They are those of its definition; of a replay those of its cage and its control; else the
    first finding that compares. A run from before the key gets those of the present definition.
    """
    definition = run.definition
    if run.plan.get("replay") is not None:
        return list(_replay_tables(run))
    found = definition.get("headline")
    if found is None:
        found = _present_headline(str(run.plan["experiment"]))
    found = [{"where": {}, **table} for table in found if _is_about(run, table)]
    findings = [{"where": {}, **one} for one in definition.get("findings") or ()]
    return found or [one for one in findings if one.get("over")][:1] or findings[:1]


def _present_headline(name: str) -> Sequence[Mapping[str, Any]]:
    try:  # the name is an identifier
        text = (TOP / "experiments" / f"{name}.toml").read_text(encoding="utf-8")
        tables = tomllib.loads(text).get("headline")
    except UNREADABLE:
        return ()
    return tables if isinstance(tables, list) else ()


def _is_about(run: Run, table: Mapping[str, Any]) -> bool:
    """Return whether the run has the treatments of both sides."""
    sides = (table.get("where") or {}, table.get("over") or {})
    planned = list(treatments(run))
    return all(any(side.items() <= one.items() for one in planned) for side in sides)


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


def _evaluated(run: Run, tables: Sequence[dict[str, Any]]) -> list[tuple[dict[str, Any], Finding]]:
    asked = {**run.definition, "findings": tables}
    found = evaluate_findings(replace(run, plan={**run.plan, "definition": asked}))
    return list(zip(tables, found, strict=True))


def _said(table: Mapping[str, Any], finding: Finding) -> str:
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
    known = [(cell.summary.middle, cell) for cell in cells if cell.summary]
    if not known:
        return "No trial has a figure"
    title = response_title(run.response)
    (low, least), (high, most) = min(known, key=_first), max(known, key=_first)
    if len(known) == 1:
        return f"{title[:1].upper()}{title[1:]}: {_with_interval(least)}"
    ends = f"{_with_interval(least)} ({label_of(run, least)}) to {_with_interval(most)}"
    times = f", {format_quantity('amplification', high / low)}" if low > 0 else ""
    return f"{title[:1].upper()}{title[1:]}: {ends} ({label_of(run, most)}){times}"


def _first(pair: tuple[float, TreatmentCell]) -> float:
    return pair[0]


def _plain(cell: TreatmentCell) -> str:
    """Return a figure without the mark for a missing proof, which the strip states once."""
    return cell.text.replace(f" {MARK}", "")


def _with_interval(cell: TreatmentCell) -> str:
    text = _plain(cell)
    interval = format_interval(cell.response, cell.summary)[1] if cell.summary else ""
    return f"{text} ({interval})" if interval else text


def label_of(run: Run, cell: TreatmentCell) -> str:
    """Return a treatment without the factors that do not vary."""
    constant = run.layout.constant
    return treatment_label({k: v for k, v in cell.treatment.items() if k not in constant})


def _strip(
    run: Run,
    cells: Sequence[TreatmentCell],
    result: str,
    sides: Sequence[Treatment],
    chart: BarChart | None,
    *,
    is_proven: bool = True,
) -> Strip:
    return Strip(result.rstrip("."), _limit(run, sides), _trust(run, cells), chart, is_proven)


def _limit(run: Run, sides: Sequence[Treatment]) -> str:
    """Return the binding limits of the headline's first treatment, or else of all treatments."""
    found = causes(run)
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
    """Return how many trials count, how often each treatment was measured, and on which CPU."""
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
    return BarChart(
        response_title(run.response),
        tuple(label_of(run, cell) for cell in chosen),
        tuple(cell.summary.middle for cell in chosen if cell.summary),
        tuple(map(_plain, chosen)),
    )


def _sweep_text(sweep: Sweep) -> str:
    """Return the knee, and the figures at both ends of the sweep."""
    known = [(one.name, one.measured) for one in sweep.points if one.measured is not None]
    ends = [f"{sweep.format(value)} at {name}" for name, value in (known[:1] + known[-1:])]
    return "; ".join([sweep_sentences(sweep)[0].rstrip("."), ", ".join(ends)])


def _sweep_chart(sweep: Sweep) -> BarChart:
    points = [one for one in sweep.points if one.measured is not None]
    title = response_title(sweep.response) if sweep.response else "time"
    return BarChart(
        f"{title} by {sweep.property}",
        tuple(one.name for one in points),
        tuple(one.measured or 0.0 for one in points),
        tuple(sweep.format(one.measured or 0.0) for one in points),
    )
