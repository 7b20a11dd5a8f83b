"""Pages on the articles: answers, fidelity and scorecard."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from analysis.articles.findings import OpenQuestion, OpenQuestions, QuestionFinding
from analysis.articles.ratios import (
    HOST_CLASSES,
    WITHOUT_RUN,
    HostedScorecard,
    guest_ratios,
    host_class,
)
from analysis.articles.scorecard import (
    VERDICTS,
    Deviation,
    ScoredClaim,
    count_verdicts,
    unexplained,
    with_figures,
)
from analysis.articles.tables import MEANINGS, columns, format_scored_measurement, verdict_words
from analysis.cells import make_cell, treatments
from analysis.data.load import Run
from analysis.formatting import treatment_label
from analysis.volumes import VolumeCheck, VolumeSummary, volume_summaries
from pagecage.report.model import Block, Heading, Paragraph, Report, Table, make_table

_INTRODUCTION = (
    'A simulated volume (`enforced_by = "volume"`) decides in continuous time when each request'
    " is answered. This page compares it with its own arithmetic, with the kernel's io.max, and"
    " with published measurements. It is generated from the checks and bundles in `docs/fidelity`"
    " and `docs/runs`, by `pagecage fidelity --markdown`."
)
_RATES = (
    "fio drives each volume over its socket on a real CPU, without a guest, with empty credit"
    " buckets. The model allows a rate by its limits, or by its mean latency where few requests are"
    " in flight. The path between fio and the volume adds a latency of its own, so that one request"
    " in flight stays below the rate."
)
_LATENCY = (
    "Quantiles of reads and writes below the limits, as they were set and as fio measured them. The"
    " difference is what the path adds: two context switches, a socket and fio itself."
)
_LITTLE = (
    "At a limit the latency is a consequence of the queue. By Little's law, rate times mean latency"
    " is the number of requests in flight."
)
_CREDITS = (
    "Each bucket alone, made small enough to drain in a few seconds at unchanged rates. A bucket"
    " drains in credits / (burst - base) seconds and refills at the base rate."
)
_HOSTS = (
    "The same experiments of the same size without limits, natively and in the emulated guest. A"
    " ratio of 1 carries over. Counts of bytes, I/Os and faults do; times do not, because every"
    " instruction of the guest is translated."
)
_TAILS = (
    "One limit of 500 reads per second, enforced in three ways, in the guest. On gp3 at its cap of"
    " 3,000 IOPS with 1,024 reads in flight, a median of 338 ms and 405 ms for all but one read in"
    " ten thousand were published: 1.2 times the median. A throttle that refills every 100 ms was"
    " published with two humps."
)
_TAIL_EXPERIMENT = "cap-latency"
_CAPPED = {"volume IOPS", "volume bandwidth", "instance IOPS", "instance bandwidth"}


def fidelity_page(checks: Sequence[VolumeCheck], runs: Sequence[Run]) -> Report:
    """Return the document, in five parts."""
    blocks: list[Block] = [Paragraph(_INTRODUCTION)]
    blocks += [Heading("1. Rates"), Paragraph(_RATES), *_rates(checks)]
    blocks += [Heading("2. Latency"), Paragraph(_LATENCY), *_latencies(checks)]
    blocks += [Paragraph(_LITTLE), *_little(checks)]
    blocks += [Heading("3. Credits"), Paragraph(_CREDITS), *_credits(checks)]
    blocks += [Heading("4. The emulated guest beside a real CPU"), Paragraph(_HOSTS), *_hosts(runs)]
    blocks += [Heading("5. Tails at the cap"), Paragraph(_TAILS), *_tails(runs)]
    return Report("Fidelity of simulated volumes", tuple(blocks))


def _loads(checks: Sequence[VolumeCheck]) -> Iterator[tuple[VolumeCheck, Mapping[str, Any]]]:
    return ((check, load) for check in checks for load in check.loads)


def _describe(load: Mapping[str, Any]) -> list[str]:
    what = load["load"]
    return [what["pattern"], f"{what['block_bytes'] // 1024:,} KiB", str(what["depth"])]


_LOAD_TITLES = ["volume", "pattern", "size", "in flight"]


def _rates(checks: Sequence[VolumeCheck]) -> Iterator[Block]:
    rows = [
        [
            check.name,
            *_describe(load),
            load["limit"] or "latency",
            f"{load['expected_per_second']:,.1f}",
            f"{load['per_second']:,.1f}",
            f"{100 * load['rate_error']:+.2f} %",
        ]
        for check, load in _loads(checks)
        if load["expected_per_second"] is not None
    ]
    yield make_table([*_LOAD_TITLES, "decided by", "model, 1/s", "measured, 1/s", "error"], rows)
    errors = [
        abs(load["rate_error"])
        for _, load in _loads(checks)
        if load["limit"] in _CAPPED and load["load"]["depth"] >= 16
    ]
    if errors:
        within = sum(error <= 0.01 for error in errors)
        yield Paragraph(
            f"Of {len(errors)} loads with at least 16 requests in flight that a limit decides,"
            f" {within} are within 1 % of the model; the largest error is {max(errors):.2%}."
        )


def _latencies(checks: Sequence[VolumeCheck]) -> Iterator[Block]:
    rows = []
    for check, load in _loads(checks):
        expected, found = load["expected_percentiles_us"], load["percentiles_us"]
        if expected:
            cells = [f"{float(found[p]):,.0f} ({float(expected[p]):,.0f})" for p in expected]
            rows.append([check.name, *_describe(load), *cells])
    titles = ["p50", "p95", "p99", "p99.9"]
    yield make_table([*_LOAD_TITLES, *titles], rows, "microseconds; in brackets: as set")


def _little(checks: Sequence[VolumeCheck]) -> Iterator[Block]:
    rows = [
        [
            check.name,
            *_describe(load),
            f"{load['mean_us'] / 1000:,.2f} ms",
            f"{load['per_second'] * load['mean_us'] / 1e6:,.2f}",
            f"{100 * load['littles_error']:+.2f} %",
        ]
        for check, load in _loads(checks)
        if load["limit"] in _CAPPED and load["load"]["depth"] >= 16
    ]
    yield make_table([*_LOAD_TITLES, "mean latency", "rate x latency", "error"], rows)


def _credits(checks: Sequence[VolumeCheck]) -> Iterator[Block]:
    rows = [
        [
            check.name,
            one["limit"],
            f"{one['expected_drain_seconds']:.2f} s",
            "not reached" if one["drain_seconds"] is None else f"{one['drain_seconds']:.2f} s",
            f"{one['base_per_second']:,.0f}",
            "" if one["refill_per_second"] is None else f"{one['refill_per_second']:,.0f}",
        ]
        for check in checks
        for one in check.credits
    ]
    yield make_table(
        ["volume", "bucket", "drains in", "measured", "refills at, 1/s", "measured, 1/s"], rows
    )


def _hosts(runs: Sequence[Run]) -> Iterator[Block]:
    rows = [
        [
            one.experiment,
            one.response.replace("_", " "),
            f"{one.median:.3g}",
            f"{min(one.ratios):.3g} to {max(one.ratios):.3g}",
            str(len(one.ratios)),
        ]
        for one in guest_ratios(runs)
    ]
    yield make_table(["experiment", "response", "guest / native", "range", "treatments"], rows)


def _tails(runs: Sequence[Run]) -> Iterator[Block]:
    found = [run for run in runs if run.plan["experiment"] == _TAIL_EXPERIMENT]
    for run in found[-1:]:
        rows = [
            [*treatment.values(), *(_cell(run, treatment, name) for name in _TAIL_RESPONSES)]
            for treatment in sorted(treatments(run), key=lambda one: tuple(one.values()))
        ]
        yield make_table([*run.factors, "reads a second", "p50", "p99", "p99.9"], rows)
        yield from map(_volume_line, volume_summaries(run))


_TAIL_RESPONSES = ("fio_reads_per_second", "fio_p50_us", "fio_p99_us", "fio_p999_us")


def _cell(run: Run, treatment: Mapping[str, str], response: str) -> str:
    return make_cell(run, treatment, response).text


def _volume_line(one: VolumeSummary) -> Paragraph:
    met = ", ".join(f"{name} for {share:.0%} of the time" for name, share in one.met.items())
    agree = "agree" if not one.disagreeing else "disagree"
    disk = "" if one.disk is None else f", disk {one.disk}"
    return Paragraph(
        f"{treatment_label(one.treatment)}{disk}: by the volume's account requests waited for"
        f" {met or 'no limit'}; both witnesses {agree}.",
        tone="soft",
        marker="•",
    )


_SCORECARD_INTRODUCTION = (
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
    blocks: list[Block] = [Paragraph(_SCORECARD_INTRODUCTION), Paragraph(_ORIGIN), coverage(scored)]
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


_ANSWERS_INTRODUCTION = (
    (
        "The articles that the experiments retrace raise more questions than they answer. Each"
        " question has a number, and one or more experiments define sentences for it with a place"
        " for a measured figure (`[[findings]]`). The page in the documents is"
        " generated by `pagecage answers --bundles docs/runs --markdown`."
    ),
    (
        "Each figure names the experiment that measured it; the runs, with their hosts, kernels and"
        " sizes, are listed at the end. A ratio has the interval of a rank test, or the range"
        " if there are too few trials. Figures of excluded trials do not answer a"
        " question."
    ),
)


def answers_report(found: OpenQuestions, *, with_unproven: bool = False) -> Report:
    """Return the report; `with_unproven` adds findings that rest on excluded trials alone."""
    blocks: list[Block] = [Paragraph(text) for text in _ANSWERS_INTRODUCTION]
    hosts = {str(run.plan["run_id"]): host_class(run) for run in found.runs.values()}
    for question in found.questions:
        blocks += _question(question, hosts, with_unproven=with_unproven)
    answered = sum(not question.is_open for question in found.questions)
    blocks.append(Heading("Runs"))
    blocks.append(
        Paragraph(f"{answered} of {len(found.questions)} questions are answered by these runs.")
    )
    proven = {one.run for question in found.questions for one in question.findings if one.is_proven}
    runs = [run for run in found.runs.values() if run.plan["run_id"] in proven]
    blocks.append(make_table(RUN_COLUMNS, map(run_row, runs)))
    return Report("Open questions of the articles, and answers", tuple(blocks))


def _question(
    question: OpenQuestion, hosts: Mapping[str, str], *, with_unproven: bool
) -> Iterator[Block]:
    yield Heading(f"{question.id}: {question.question}")
    if question.known:
        yield Paragraph(question.known, tone="soft")
    for finding in question.findings:
        if finding.is_proven or with_unproven:
            yield _finding(finding, hosts[finding.run])
    if question.is_open:
        yield Paragraph("Open: no run here has answered it.", tone="warning")


def _finding(finding: QuestionFinding, host: str) -> Paragraph:
    note = f" ({finding.note})" if finding.note else ""
    text = f"{finding.sentence.rstrip('.')}{note}. `{finding.experiment}`, {host}"
    return Paragraph(
        text,
        tone="plain" if finding.is_proven else "soft",
        marker="•" if finding.is_proven else "?",
    )
