"""Pages of the site other than reports, as Markdown with embedded HTML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape

from analysis.claims.evaluate import evaluate_claims
from analysis.claims.findings import Finding, evaluate_findings
from analysis.claims.published_ratios import published_ratios
from analysis.claims.scorecard import VERDICTS, Scorecard, count_verdicts
from analysis.data.load import Run
from analysis.formatting import format_quantity
from analysis.views.contradictions import contradiction_sentence
from analysis.views.scorecard import verdict_words


def index(runs: Mapping[str, Run], card: Scorecard, documents: Iterable[str]) -> str:
    """Return the first page: a summary of the published figures, and a card per report."""
    cards = "\n".join(_card(name, run) for name, run in runs.items())
    return f"""# Disk reads under a customer's limits

Experiments on storage, the page cache and mapped files, under limits that were read back from the
kernel and over-driven to verify them. Every figure can be reproduced from the raw records beside
its report.

{_tally(card)}

{raw_html(f'<div class="cards">{cards}</div>')}
{_contents("Results", ["scorecard", "answers"])}
{_contents("Reports", [f"reports/{name}" for name in runs])}
{_contents("Method", [*documents, "docs/decisions/index"])}"""


def raw_html(text: str) -> str:
    """Return HTML as a directive of MyST; a fence within the text does not end it."""
    return f"```{{raw}} html\n{text.replace('`', '&#96;')}\n```\n"


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
        f'<img src="_static/{name}.svg" width="480" height="270" alt="" loading="lazy"></span>'
        f"<strong>{escape(name)}</strong><span>{escape(run.definition['question'])}</span>"
        f"{_said(run)}{_contradicted(run)}<small>{escape(about)}</small></a>"
    )


def _contradicted(run: Run) -> str:
    sentence = contradiction_sentence(evaluate_claims(run)).partition(":")[0]
    return f'<span class="contradicts">{escape(sentence)}</span>' if sentence else ""


def headline(run: Run) -> tuple[str, str]:
    """Return the ratio in the card's sentence and the published one; empty if there is none."""
    found = _sentence(run)
    if found is None or found.finding.middle is None or not found.is_ratio:
        return "", ""
    published = found.published.partition(" (")[0]
    return format_quantity("amplification", found.finding.middle), published


@dataclass(frozen=True)
class CardSentence:
    """The finding that a card shows, whether it is a ratio, and the published ratio."""

    finding: Finding
    is_ratio: bool
    published: str


def _sentence(run: Run) -> CardSentence | None:
    """Return the first proven ratio; without one the first proven finding."""
    tables = run.definition.get("findings", [])
    proven = [
        CardSentence(finding, bool(table.get("over")), published)
        for table, finding, published in zip(
            tables, evaluate_findings(run), published_ratios(run), strict=True
        )
        if finding.is_proven
    ]
    return next((one for one in proven if one.is_ratio), proven[0] if proven else None)


def _said(run: Run) -> str:
    found = _sentence(run)
    return f'<span class="said">{escape(found.finding.sentence)}</span>' if found else ""


def _tally(card: Scorecard) -> str:
    counts = count_verdicts(card.rows)
    parts = (
        f'<b class="{verdict}">{counts[verdict]}</b> {verdict_words(verdict)}'
        for verdict in VERDICTS
        if counts[verdict]
    )
    line = " · ".join(parts)
    return (
        f'<p class="tally"><a href="scorecard.html">{counts["all"]} published figures</a>:'
        f" {line}</p>"
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
