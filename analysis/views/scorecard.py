"""The scorecard in a terminal: each experiment's figures, why each holds or does not, and the totals."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from analysis.claims.scorecard import VERDICTS, Scorecard, ScoredClaim, count
from analysis.formatting import MARKS, published_figure, span, spans, unit_figure, words_of

COLOUR = {
    "held": "green", "not_held": "red", "not_comparable": "yellow", "no_data": "yellow", "untestable": "dim",
    "not_run": "dim",
}  # fmt: skip
_FOLDED = ("untestable", "not_run")
"""Verdicts that many rows share for one reason, so that the reason is told once, with the rows it stands for."""


def show_scorecard(card: Scorecard, console: Console) -> None:
    """Print every row; those without a figure by their reason; then the totals."""
    for name in card.totals():
        rows = [row for row in card.rows if row.experiment == name]
        console.print(Text(name, "bold"), _tally(rows))
        console.print(*_experiment(rows), sep="\n")
        console.print()
    console.print(_totals(card))


def _tally(rows: list[ScoredClaim]) -> Text:
    told = count(rows)
    parts = [Text(f"{told[v]} {v.replace('_', ' ')}", COLOUR[v]) for v in VERDICTS if told[v]]
    return Text(" · ").join(parts)


def _experiment(rows: list[ScoredClaim]) -> Iterator[RenderableType]:
    measured = [row for row in rows if row.verdict not in _FOLDED]
    if measured:
        yield _table(measured)
    reasons = dict.fromkeys((row.verdict, row.reason) for row in rows if row.verdict in _FOLDED)
    for verdict, why in reasons:
        ids = [row.id for row in rows if (row.verdict, row.reason) == (verdict, why)]
        yield Text(f"  {verdict.replace('_', ' ')}: {spans(ids)}: {why}", "dim")


def _table(rows: list[ScoredClaim]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for name in ("  claim", "says", "published", "measured", "verdict and why"):
        table.add_column(name, overflow="fold", ratio=None if name in ("  claim",) else 1, no_wrap=name == "  claim")
    for row in rows:
        verdict = Text.assemble((MARKS[row.verdict], COLOUR[row.verdict]), "  ", (row.reason, "dim"))
        table.add_row(
            f"  {row.id}", escape(words_of(row.says)), escape(published_figure(row.published, row.unit)),
            escape(measured_figure(row)), verdict,
        )  # fmt: skip
    return table


def measured_figure(row: ScoredClaim) -> str:
    """What was measured, and the interval where there is more than one trial."""
    text = unit_figure(row.measured, row.unit)
    if row.low is None or row.high is None or row.n < 2:
        return text
    return f"{text} ({span(unit_figure(row.low, row.unit), unit_figure(row.high, row.unit))})"


def _totals(card: Scorecard) -> Group:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("figures of", no_wrap=True)
    for verdict in (*VERDICTS, "all"):
        table.add_column(verdict.replace("_", "\n"), justify="right", no_wrap=True, vertical="bottom")
    for name, told in card.totals().items():
        table.add_row(name, *(_number(told, verdict) for verdict in (*VERDICTS, "all")))
    told = count(card.rows)
    table.add_row("[bold]in all[/]", *(f"[bold]{told[verdict]}[/]" for verdict in (*VERDICTS, "all")))
    return Group(table)


def _number(told: dict[str, int], verdict: str) -> str:
    colour = COLOUR.get(verdict, "default")
    return f"[{colour}]{told[verdict]}[/]" if told[verdict] else "[dim]·[/]"
