"""The scorecard as a document: totals, runs, and every published figure by article."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analysis.claims.deviations import Deviation, unexplained, with_figures
from analysis.claims.hosts import HOST_CLASSES, WITHOUT_RUN, HostedScorecard, host_class
from analysis.claims.scorecard import VERDICTS, ScoredClaim, count_verdicts
from analysis.data.load import Run
from analysis.views.scorecard import format_scored_measurement, verdict_words
from analysis.views.scorecard_columns import MEANINGS, columns
from pagecage.report.model import Block, Heading, Paragraph, Report, Table, make_table

_INTRODUCTION = (
    "Each row is a figure, a ratio or an observation of one of five articles, with the result of"
    " a rule in an experiment's definition (`[[claims]]`). Runs are compared separately for hosts"
    " with a real CPU and for emulated guests. A decided row is shown rather than an undecided"
    " one, and a real CPU rather than an emulated one; the reason names another verdict."
)
_ORIGIN = (
    "The page in the documents is generated from the bundles in `docs/runs`, by"
    " `pagecage claims --bundles docs/runs --markdown`."
)


def scorecard_page(scored: HostedScorecard, deviations: Sequence[Deviation] = ()) -> Report:
    """Return the document: totals, the runs, explanations of what does not hold, then all rows."""
    rows = scored.card.rows
    blocks: list[Block] = [Paragraph(_INTRODUCTION), Paragraph(_ORIGIN), coverage(scored)]
    blocks += [Heading("Totals"), verdict_table(rows)]
    blocks += [Heading("By article"), article_table(scored)]
    blocks += [Heading("By host"), host_table(scored)]
    blocks += [Heading("Runs"), *_runs(scored)]
    blocks += _deviations(rows, deviations)
    for article in _articles(rows):
        blocks += _article(scored, article)
    return Report("Scorecard of the published figures", tuple(blocks))


def coverage(scored: HostedScorecard) -> Paragraph:
    """Return how many rows have a measured figure, from how many runs, and how many need none."""
    measured, rows, runs = len(scored.with_figure()), scored.card.rows, len(scored.runs)
    fixed = sum(row.run is None and row.measured is not None for row in rows)
    untestable = count_verdicts(rows)["untestable"]
    return Paragraph(
        f"{measured} of {len(rows)} rows have a measured figure, from {runs}"
        f" {'run' if runs == 1 else 'runs'}. {fixed} more describe the set-up and are compared with"
        f" the definitions. {untestable} cannot be tested. A figure in brackets (†) rests on"
        " excluded trials alone."
    )


def verdict_table(rows: Sequence[ScoredClaim]) -> Table:
    """Return the number of rows with each verdict, and the verdicts' meanings."""
    counts = count_verdicts(rows)
    lines = [
        [verdict_words(verdict), str(counts[verdict]), MEANINGS.get(verdict, "")]
        for verdict in VERDICTS
    ]
    return make_table(["verdict", "rows", "meaning"], [*lines, ["all", str(counts["all"]), ""]])


def article_table(scored: HostedScorecard) -> Table:
    """Return the number of rows with each verdict, by article."""
    rows = scored.card.rows
    return _count_table(
        ["article", "title"],
        [
            ([article, scored.card.articles[article]["title"]], _of(rows, article))
            for article in _articles(rows)
        ],
    )


def host_table(scored: HostedScorecard) -> Table:
    """Return the number of rows with each verdict, by the class of the measuring host."""
    return _count_table(
        ["host"],
        [
            ([name], [row for row in scored.card.rows if scored.host_class(row) == name])
            for name in (*HOST_CLASSES, WITHOUT_RUN)
        ],
    )


def _count_table(
    heads: Sequence[str], groups: Sequence[tuple[list[str], Sequence[ScoredClaim]]]
) -> Table:
    lines = []
    for labels, rows in groups:
        counts = count_verdicts(rows)
        lines.append([*labels, *(str(counts[verdict]) for verdict in (*VERDICTS, "all"))])
    return make_table([*heads, *map(verdict_words, VERDICTS), "all"], lines)


def _articles(rows: Sequence[ScoredClaim]) -> list[str]:
    return sorted({_article_of(row) for row in rows})


def _of(rows: Sequence[ScoredClaim], article: str) -> list[ScoredClaim]:
    return [row for row in rows if _article_of(row) == article]


def _article_of(row: ScoredClaim) -> str:
    return row.id.partition("-")[0]


def _runs(scored: HostedScorecard) -> Iterator[Block]:
    measured = [row.run for row in scored.with_figure()]
    rows = [[*run_row(run), str(measured.count(name))] for name, run in sorted(scored.runs.items())]
    if rows:
        yield make_table([*RUN_COLUMNS, "rows with a figure"], rows)
    else:
        yield Paragraph("There is no bundle of a run yet.")


def _deviations(rows: Sequence[ScoredClaim], deviations: Sequence[Deviation]) -> Iterator[Block]:
    if not deviations:
        return
    figures = {row.id: format_scored_measurement(row) for row in rows if row.measured is not None}
    yield Heading("Deviations")
    yield Paragraph("Explanations of the rows that do not hold on these runs.")
    yield make_table(
        ["figures", "cause", "evidence"],
        [
            [
                ", ".join(one.claims),
                with_figures(one.cause, figures),
                ", ".join(source if "://" in source else f"`{source}`" for source in one.evidence),
            ]
            for one in deviations
        ],
    )
    if left := unexplained(rows, deviations):
        yield Paragraph(f"Without an explanation so far: {', '.join(left)}.")


RUN_COLUMNS = ("experiment", "run", "size", "host", "kernel")


def run_row(run: Run) -> list[str]:
    """Return a run's row for RUN_COLUMNS."""
    kernels = sorted({str(facts.get("kernel", "?")) for facts in run.facts})
    plan = run.plan
    return [plan["experiment"], plan["run_id"], plan["size"], host_class(run), ", ".join(kernels)]


def _article(scored: HostedScorecard, article: str) -> Iterator[Block]:
    about = scored.card.articles[article]
    shown = columns(scored)
    yield Heading(f"{article}: {about['title']}")
    if remark := about.get("remark"):
        yield Paragraph(remark)
    lines = [[column.text(row) for column in shown] for row in _of(scored.card.rows, article)]
    yield make_table([column.heading for column in shown], lines)
