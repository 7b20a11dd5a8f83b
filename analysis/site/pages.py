"""Pages of the site other than reports, as Markdown with embedded HTML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

from analysis.claims.findings import Finding, evaluate_findings
from analysis.claims.scorecard import VERDICTS, Scorecard, ScoredClaim, count_verdicts
from analysis.data.load import Run
from analysis.formatting import MARKS, break_at_semicolons, format_published
from analysis.views.scorecard import format_scored_measurement

_MEANS = {
    "held": "as published, by the rule of its row",
    "not_held": "measured, but not as published",
    "undecided": "measured, but too few trials or overlapping ranges to decide",
    "not_comparable": "measured, but not at the published size, or on an emulated CPU",
    "requirement_missed": "the host lacks something that the measurement needs",
    "no_data": "the newest run has no included trial for it",
    "untestable": "no run can test it here; the row states the reason",
    "not_run": "its experiment has not been run here above size smoke",
}


def index(runs: Mapping[str, Run], card: Scorecard, documents: Iterable[str]) -> str:
    """Return the first page: a summary of the published figures, and a card per report."""
    cards = "\n".join(_card(name, run) for name, run in runs.items())
    return f"""# Disk reads under a customer's limits

Experiments on storage, the page cache and mapped files, under limits that were read back from the
kernel and over-driven to verify them. Every figure can be reproduced from the raw records beside
its report.

{_tally(card)}

```{{raw}} html
<div class="cards">
{cards}
</div>
```

{_contents("Results", ["scorecard", "answers"])}
{_contents("Reports", [f"reports/{name}" for name in runs])}
{_contents("Method", [*documents, "docs/decisions/index"])}"""


def _contents(caption: str, pages: Iterable[str]) -> str:
    """Return a part of the table of contents."""
    return "\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```", ""])


def _card(name: str, run: Run) -> str:
    counted = sum(trial.is_included for trial in run.trials)
    emulated = ", emulated" if run.is_emulated else ""
    about = (
        f"{counted} of {len(run.plan['trials'])} trials included, size {run.plan['size']}{emulated}"
    )
    return (
        f'<a class="card" href="reports/{name}.html"><span class="thumbnail">'
        f'<img src="_static/{name}.svg" alt="" loading="lazy"></span>'
        f"<strong>{escape(name)}</strong><span>{escape(run.definition['question'])}</span>"
        f"{_first_proven_sentence(evaluate_findings(run))}<small>{escape(about)}</small></a>"
    )


def _first_proven_sentence(findings: Iterable[Finding]) -> str:
    """Return the first proven sentence."""
    proven = next((finding for finding in findings if finding.is_proven), None)
    return f'<span class="said">{escape(proven.sentence)}</span>' if proven else ""


def _tally(card: Scorecard) -> str:
    counts = count_verdicts(card.rows)
    parts = (
        f'<b class="{verdict}">{counts[verdict]}</b> {_verdict_words(verdict)}'
        for verdict in VERDICTS
        if counts[verdict]
    )
    line = " · ".join(parts)
    return (
        f'<p class="tally"><a href="scorecard.html">{counts["all"]} published figures</a>:'
        f" {line}</p>"
    )


def _verdict_words(verdict: str) -> str:
    return verdict.replace("_", " ")


def scorecard_page(card: Scorecard, reports: Iterable[str]) -> str:
    """Return the table of all published figures, which can be sorted and filtered."""
    known = set(reports)
    rows = "\n".join(_row(row, known) for row in card.rows)
    counts = count_verdicts(card.rows)
    chips = "".join(
        f'<button type="button" data-verdict="{v}" aria-pressed="false" title="{_MEANS[v]}">'
        f'<b class="{v}">{MARKS[v]}</b> {counts[v]}</button>'
        for v in VERDICTS
        if counts[v]
    )
    heads = "".join(
        f"<th>{name}</th>"
        for name in ("figure", "experiment", "statement", "published", "measured", "verdict")
    )
    return f"""# Every published figure

The experiments retrace five articles. Each row is one of their figures, with the measurement of the
newest run. Click a heading to sort the table, or a button to filter it.

```{{raw}} html
<div class="chips" role="group" aria-label="Show only">{chips}</div>
<div class="scroll"><table class="pagecage sortable" data-filter="verdict">
<thead><tr>{heads}</tr></thead>
<tbody>
{rows}
</tbody></table></div>
```
"""


def _row(row: ScoredClaim, reports: set[str]) -> str:
    name = escape(row.experiment)
    link = f'<a href="reports/{name}.html">{name}</a>' if row.experiment in reports else name
    verdict = f'<b class="{row.verdict}">{_verdict_words(row.verdict)}</b>'
    verdict += f"<small>{escape(row.reason)}</small>"
    cells = (
        escape(row.id),
        link,
        escape(break_at_semicolons(row.says)),
        escape(format_published(row.published, row.unit)),
        escape(format_scored_measurement(row)),
        verdict,
    )
    return (
        f'<tr data-verdict="{row.verdict}">'
        + "".join(f"<td>{cell}</td>" for cell in cells)
        + "</tr>"
    )


def decisions(documents: Iterable[str]) -> str:
    """Return the index of the decision records; `documents` are their names."""
    head = (
        "# Decisions\n\nEach page states a decision, its reason, and the alternatives that were"
        " rejected.\n"
    )
    return "\n".join([head, "```{toctree}", *documents, "```", ""])


def downloads(run: Run, name: str, files: Mapping[str, str]) -> str:
    """Return the line below a report's title with its downloads; `files` by their link texts."""
    links = " · ".join(
        f'<a href="../runs/{name}/{file}">{text}</a>' for text, file in files.items()
    )
    return f'<p class="source">Run {run.plan["run_id"]} · {links}</p>'
