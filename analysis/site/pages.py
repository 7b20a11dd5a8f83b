"""The site's own pages, as Markdown with the HTML that Markdown cannot say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

from analysis.claims.findings import Finding, find
from analysis.claims.scorecard import VERDICTS, Scorecard, ScoredClaim, count
from analysis.data.load import Run
from analysis.formatting import MARKS, published_figure, words_of
from analysis.views.scorecard import measured_figure

_MEANS = {
    "held": "measured, and as published by a rule that was fixed before the first run",
    "not_held": "measured, and not so here",
    "not_comparable": "measured, but not at the published size, or on an emulated CPU",
    "no_data": "the newest run has no trial for it that counts",
    "untestable": "no run here could test it; the reason stands with it",
    "not_run": "its experiment has not been run here at a size that counts",
}


def index(runs: Mapping[str, Run], card: Scorecard, documents: Iterable[str]) -> str:
    """The first page: what this is, the published figures by what became of them, a card for each report."""
    cards = "\n".join(_card(name, run) for name, run in runs.items())
    reports, told = "\n".join(f"reports/{name}" for name in runs), "\n".join([*documents, "docs/decisions/index"])
    return f"""# What a customer's disk makes of your reads

Experiments on storage, the page cache and mapped files, under limits that were read back from the kernel and driven
against. Every figure here can be made again from the raw records beside its report.

{_tally(card)}

```{{raw}} html
<div class="cards">
{cards}
</div>
```

```{{toctree}}
:hidden:
:caption: Results

scorecard
answers
```

```{{toctree}}
:hidden:
:caption: Reports

{reports}
```

```{{toctree}}
:hidden:
:caption: How it is done

{told}
```
"""


def _card(name: str, run: Run) -> str:
    counted = sum(trial.is_included for trial in run.trials)
    emulated = ", emulated" if run.is_emulated else ""
    about = f"{counted} of {len(run.plan['trials'])} trials count, size {run.plan['size']}{emulated}"
    return (
        f'<a class="card" href="reports/{name}.html"><span class="thumbnail">'
        f'<img src="_static/{name}.svg" alt="" loading="lazy"></span>'
        f"<strong>{escape(name)}</strong><span>{escape(run.definition['question'])}</span>"
        f"{_said(find(run))}<small>{escape(about)}</small></a>"
    )


def _said(findings: Iterable[Finding]) -> str:
    """The first sentence that a run proves."""
    proven = next((finding for finding in findings if finding.is_proven), None)
    return f'<span class="said">{escape(proven.sentence)}</span>' if proven else ""


def _tally(card: Scorecard) -> str:
    told = count(card.rows)
    parts = (f'<b class="{verdict}">{told[verdict]}</b> {_name(verdict)}' for verdict in VERDICTS if told[verdict])
    line = " · ".join(parts)
    return f'<p class="tally"><a href="scorecard.html">{told["all"]} published figures</a>: {line}</p>'


def _name(verdict: str) -> str:
    return verdict.replace("_", " ")


def scorecard_page(card: Scorecard, reports: Iterable[str]) -> str:
    """Every published figure in one table that can be sorted and narrowed down."""
    known = set(reports)
    rows = "\n".join(_row(row, known) for row in card.rows)
    told = count(card.rows)
    chips = "".join(
        f'<button type="button" data-verdict="{v}" aria-pressed="false" title="{_MEANS[v]}">'
        f'<b class="{v}">{MARKS[v]}</b> {told[v]}</button>'
        for v in VERDICTS
        if told[v]
    )
    heads = "".join(f"<th>{name}</th>" for name in ("figure", "experiment", "says", "published", "measured", "verdict"))
    return f"""# Every published figure

The experiments retrace five articles. Each of their figures stands here with what the newest run measured for it.
A heading sorts; the buttons narrow the table down.

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
    verdict = f'<b class="{row.verdict}">{_name(row.verdict)}</b><small>{escape(row.reason)}</small>'
    cells = (
        escape(row.id), link, escape(words_of(row.says)), escape(published_figure(row.published, row.unit)),
        escape(measured_figure(row)), verdict,
    )  # fmt: skip
    return f'<tr data-verdict="{row.verdict}">' + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def decisions(documents: Iterable[str]) -> str:
    """The page above the decisions; `documents` are their names beside it."""
    head = "# What was decided, and why\n\nHalf a page each, with what was decided against.\n"
    return "\n".join([head, "```{toctree}", *documents, "```", ""])


def downloads(run: Run, name: str, files: Mapping[str, str]) -> str:
    """A line below a report's title: where it comes from, and what can be taken away; `files` by the words for them."""
    links = " · ".join(f'<a href="../runs/{name}/{file}">{words}</a>' for words, file in files.items())
    return f'<p class="source">Run {run.plan["run_id"]} · {links}</p>'
