"""Pages on the articles: answers, fidelity and scorecard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from analysis.articles.evaluate import ABSOLUTE, CONSTRUCTION, MECHANISM
from analysis.articles.findings import OpenQuestions
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
    Scorecard,
    ScoredClaim,
    count_verdicts,
    totals_by,
    unexplained,
    with_figures,
)
from analysis.articles.tables import (
    MEANINGS,
    count_table,
    format_scored_measurement,
    other_machines,
    verdict_words,
)
from analysis.cells import make_cell, treatments
from analysis.data.load import Run
from analysis.formatting import format_id_ranges, treatment_label
from analysis.volumes import VolumeCheck, volume_summaries
from pagecage.report.model import Block, Heading, Paragraph, Report, Table, make_table

_INTRODUCTION = (
    'A simulated volume (`enforced_by = "volume"`) computes the completion time of each request in'
    " continuous time. This page compares the volume with its model, with the kernel's io.max, and"
    " with published measurements. It is generated from the checks in `docs/fidelity` and the"
    " bundles in `docs/runs` by `pagecage articles fidelity --markdown`."
)
_RATES = (
    "fio drives each volume on a block device of a real CPU, without a guest, with empty credit"
    " buckets. The model's rate follows from the limits, or from the mean latency if few requests"
    " are in flight. The path between fio and the volume adds latency. Its median is taken off each"
    " request; the rest keeps one request in flight below the model's rate."
)
_LATENCY = (
    "The tables show quantiles of reads and writes below the limits, as configured and as measured"
    " by fio. The rest of the path's latency, beyond its median, is the difference."
)
_LITTLE = (
    "At a limit, queueing determines the latency. By Little's law, rate times mean latency is the"
    " number of requests in flight."
)
_CREDITS = (
    "Each bucket was tested alone, and made small enough to drain in a few seconds at unchanged"
    " rates. A bucket drains in credits / (burst - base) seconds and refills at the base rate."
)
_HOSTS = (
    "The table compares experiments without limits on a real CPU and in the emulated guest, at the"
    " same size. A ratio of 1 means that the figure is the same on both. Counts of bytes, I/Os and"
    " faults are the same; times are not, because QEMU translates every instruction of the guest."
)
_TAILS = (
    "One limit of 500 reads per second was enforced in three ways, in the guest. For gp3 at its"
    " cap of 3,000 IOPS with 1,024 reads in flight, published latencies are a median of 338 ms, and"
    " 405 ms at the 99.99th percentile, which is 1.2 times the median. For a throttle that refills"
    " every 100 ms, the published distribution has two peaks."
)
_CAPPED = {"volume IOPS", "volume bandwidth", "instance IOPS", "instance bandwidth"}


def fidelity_page(checks: Sequence[VolumeCheck], runs: Sequence[Run]) -> Report:
    hosts = [
        [
            experiment,
            response.replace("_", " "),
            f"{median(ratios):.3g}",
            f"{min(ratios):.3g} to {max(ratios):.3g}",
            str(len(ratios)),
        ]
        for experiment, response, ratios in guest_ratios(runs)
    ]
    titles = ["experiment", "response", "guest / native", "range", "treatments"]
    blocks: list[Block] = [Paragraph(_INTRODUCTION)]
    buckets = [
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
    heads = ["volume", "bucket", "drains in", "measured", "refills at, 1/s", "measured, 1/s"]
    blocks += [*_loads(checks), Heading("3. Credits"), Paragraph(_CREDITS)]
    blocks += [make_table(heads, buckets)]
    blocks += [Heading("4. The emulated guest beside a real CPU"), Paragraph(_HOSTS)]
    blocks += [make_table(titles, hosts)]
    blocks += [Heading("5. Tails at the cap"), Paragraph(_TAILS), *_tails(runs)]
    return Report("Fidelity of simulated volumes", tuple(blocks))


def _loads(checks: Sequence[VolumeCheck]) -> Iterator[Block]:
    rates, latencies, little, errors = [], [], [], []
    for check in checks:
        for load in check.loads:
            what, rate = load["load"], load["per_second"]
            size = f"{what['block_bytes'] // 1024:,} KiB"
            about = [check.name, what["pattern"], size, str(what["depth"])]
            if (model := load["expected_per_second"]) is not None:
                error = f"{100 * load['rate_error']:+.2f} %"
                limit = load["limit"] or "latency"
                rates.append([*about, limit, f"{model:,.1f}", f"{rate:,.1f}", error])
            expected, found = load["expected_percentiles_us"], load["percentiles_us"]
            if expected:
                cells = [f"{float(found[p]):,.0f} ({float(expected[p]):,.0f})" for p in expected]
                latencies.append([*about, *cells])
            if load["limit"] in _CAPPED and what["depth"] >= 16:
                if model is not None:
                    errors.append(abs(load["rate_error"]))
                mean = load["mean_us"]
                product, error = rate * mean / 1e6, f"{100 * load['littles_error']:+.2f} %"
                little.append([*about, f"{mean / 1000:,.2f} ms", f"{product:,.2f}", error])
    titles = ["volume", "pattern", "size", "in flight"]
    yield from (Heading("1. Rates"), Paragraph(_RATES), Paragraph(_origin(checks)))
    yield make_table([*titles, "decided by", "model, 1/s", "measured, 1/s", "error"], rates)
    if errors:
        within = sum(error <= 0.01 for error in errors)
        yield Paragraph(
            f"Of {len(errors)} loads with at least 16 requests in flight at a limit,"
            f" {within} are within 1 % of the model; the largest error is {max(errors):.2%}."
        )
    yield from (Heading("2. Latency"), Paragraph(_LATENCY))
    quantiles = [*titles, "p50", "p95", "p99", "p99.9"]
    yield make_table(quantiles, latencies, "microseconds; in brackets: as configured")
    yield Paragraph(_LITTLE)
    yield make_table([*titles, "mean latency", "rate x latency", "error"], little)


def _origin(checks: Sequence[VolumeCheck]) -> str:
    by_commit: dict[str, list[str]] = {}
    for check in checks:
        by_commit.setdefault((check.commit or "unknown")[:8], []).append(check.name)
    listed = "; ".join(f"`{commit}`: {', '.join(names)}" for commit, names in by_commit.items())
    return f"Commits of the checked volumes: {listed or 'none'}."


def _tails(runs: Sequence[Run]) -> Iterator[Block]:
    for run in [run for run in runs if run.experiment == "cap-latency"][-1:]:
        names = ("fio_reads_per_second", "fio_p50_us", "fio_p99_us", "fio_p999_us")
        rows = [
            [*one.values(), *(make_cell(run, one, name).text for name in names)]
            for one in sorted(treatments(run), key=lambda one: tuple(one.values()))
        ]
        yield make_table([*run.factors, "reads a second", "p50", "p99", "p99.9"], rows)
        for volume in volume_summaries(run):
            waited = (f"{name} for {share:.0%} of the time" for name, share in volume.met.items())
            disk = "" if volume.disk is None else f", disk {volume.disk}"
            yield Paragraph(
                f"{treatment_label(volume.treatment)}{disk}: by the volume's account, requests"
                f" waited for {', '.join(waited) or 'no limit'}; both witnesses"
                f" {'disagree' if volume.disagreeing else 'agree'}.",
                tone="soft",
                marker="•",
            )


_SCORECARD_INTRODUCTION = (
    "A row is a figure, a ratio or an observation from one of five articles, with a dated rule in"
    " an experiment's definition (`[[claims]]`). A mechanism is a ratio, a count, an order or an"
    " outcome, which should be the same on another machine. An absolute figure is a time or a rate"
    " of the author's machine; it holds within a factor. A construction is determined by the"
    " definition or the set-up, so no run can refute it. A figure is decided if its whole interval"
    " is on one side of the bound, and undecided if it rests on one trial."
)
_ORIGIN = (
    "`pagecage articles claims` prints all rows with their intervals, numbers of trials and"
    " reasons. The site made by `make publish` has them in a table. If a rule was corrected after a"
    " run, its row has the date and the reason. `pagecage articles claims --bundles docs/runs"
    " --markdown` generates this page. With `--from BUNDLE`, the page also has runs of other"
    " machines."
)


def scorecard_page(scored: HostedScorecard, deviations: Sequence[Deviation] = ()) -> Report:
    card, counts = scored.card, count_verdicts(scored.card.rows)
    blocks: list[Block] = [Paragraph(card.headline()), Paragraph(_SCORECARD_INTRODUCTION)]
    blocks += [Paragraph(_ORIGIN), coverage(scored), Heading("Totals")]
    blocks.append(count_table("kind", {**card.totals_by_kind(), "all": counts}))
    for verdict in VERDICTS:
        if counts[verdict]:
            text = f"{verdict_words(verdict)}: {MEANINGS[verdict]}"
            blocks.append(Paragraph(text, marker="•"))
    blocks += [Heading("By article"), article_table(scored)]
    articles = sorted(card.articles.items())
    remarks = ((article, about.get("remark")) for article, about in articles)
    blocks += [Paragraph(f"{name}: {text}", marker="•") for name, text in remarks if text]
    blocks += [Heading("By host"), host_table(scored), *other_machines(scored)]
    blocks += [*causes_and_needs(card, deviations), Heading("Runs")]
    measured, runs = [row.run for row in scored.with_figure()], sorted(scored.runs.items())
    nothing = Paragraph("There is no bundle of a run yet.")
    blocks.append(_run_table([run for _, run in runs], measured) if runs else nothing)
    return Report("Scorecard of the published figures", tuple(blocks))


def _run_table(runs: Sequence[Run], measured: Sequence[str | None] | None = None) -> Table:
    rows = []
    for run in runs:
        kernels = ", ".join(sorted({str(facts.get("kernel", "?")) for facts in run.facts}))
        names = (run.experiment, run.run_id, run.size)
        count = [] if measured is None else [str(measured.count(run.run_id))]
        rows.append([*names, host_class(run), kernels, *count])
    more = [] if measured is None else ["rows with a figure"]
    return make_table(["experiment", "run", "size", "host", "kernel", *more], rows)


def causes_and_needs(card: Scorecard, deviations: Sequence[Deviation]) -> Iterator[Block]:
    yield from _not_held(card.rows, deviations)
    needed: dict[tuple[str, str], list[str]] = {}
    untestable: dict[str, list[str]] = {}
    for row in card.rows:
        if row.machine is not None and row.command is not None:
            needed.setdefault((row.machine, row.command), []).append(row.id)
        elif row.verdict == "untestable":
            untestable.setdefault(row.reason, []).append(row.id)
    if needed:
        yield Heading("Undecided, and what would decide it")
        lines = [
            [format_id_ranges(ids), str(len(ids)), machine, f"`{command}`"]
            for (machine, command), ids in sorted(needed.items())
        ]
        yield make_table(["figures", "rows", "machine", "command"], lines)
    if untestable:
        yield Heading("Untestable")
        lines = [[format_id_ranges(ids), reason] for reason, ids in untestable.items()]
        yield make_table(["figures", "reason"], lines)


def _not_held(rows: Sequence[ScoredClaim], deviations: Sequence[Deviation]) -> Iterator[Block]:
    figures = {row.id: format_scored_measurement(row) for row in rows if row.measured is not None}
    failed = {row.id for row in rows if row.verdict == "not_held"}
    shown = [one for one in deviations if failed.intersection(one.claims)]
    if not failed:
        return
    yield Heading("Not held, by cause")
    groups = {
        "Causes tested by a measurement that could have refuted them.": [
            (one, with_figures(one.tested, figures)) for one in shown if one.tested
        ],
        "Plausible causes, not tested. The last column states a test.": [
            (one, one.untested) for one in shown if one.untested
        ],
    }
    for text, found in groups.items():
        lines = []
        for one, test in found:
            ids = [id_ for id_ in one.claims if id_ in failed]
            sources = (source if "://" in source else f"`{source}`" for source in one.evidence)
            cause = f"{with_figures(one.cause, figures)} ({', '.join(sources)})"
            lines.append([format_id_ranges(ids), str(len(ids)), cause, test])
        if lines:
            yield Paragraph(text)
            yield make_table(["figures", "rows", "cause", "test"], lines)
    if left := unexplained(rows, deviations):
        yield Paragraph(f"Without a cause so far: {format_id_ranges(left)}.")


def coverage(scored: HostedScorecard) -> Paragraph:
    measured, rows, runs = len(scored.with_figure()), scored.card.rows, len(scored.runs)
    fixed = sum(row.run is None and row.measured is not None for row in rows)
    untestable = count_verdicts(rows)["untestable"]
    return Paragraph(
        f"{measured} of {len(rows)} rows have a measured figure, from {runs}"
        f" {'run' if runs == 1 else 'runs'}. {fixed} more are compared with the definitions."
        f" {untestable} cannot be tested."
    )


def article_table(scored: HostedScorecard) -> Table:
    lines = []
    for article in dict.fromkeys(row.article for row in scored.card.rows):
        rows = [row for row in scored.card.rows if row.article == article]
        cells = []
        for kind in (MECHANISM, ABSOLUTE):
            counts = count_verdicts(row for row in rows if row.counts_as == kind)
            decided = [counts[verdict] for verdict in ("held", "not_held")]
            cells += [*map(str, decided), str(counts["all"] - sum(decided))]
        constructions = sum(row.counts_as == CONSTRUCTION for row in rows)
        title = scored.card.articles[article]["title"]
        lines.append([article, title, *cells, str(constructions), str(len(rows))])
    heads = [f"{kind}s {w}" for kind in ("mechanism", "figure") for w in ("held", "not", "open")]
    return make_table(["article", "title", *heads, "constructions", "all"], sorted(lines))


def host_table(scored: HostedScorecard) -> Table:
    classes = (*HOST_CLASSES, WITHOUT_RUN)
    return count_table("host", totals_by(scored.card.rows, scored.host_class, classes))


_ANSWERS_INTRODUCTION = (
    (
        "The articles that the experiments retrace raise more questions than they answer. Each"
        " question has a number, and one or more experiments define sentences for it with a place"
        " for a measured figure (`[[findings]]`). The page in the documents is generated by"
        " `pagecage articles answers --bundles docs/runs --markdown`."
    ),
    (
        "Each figure names the experiment that measured it; the runs, with their hosts, kernels and"
        " sizes, are listed at the end. A ratio has the interval of a rank test, or the range if"
        " there are too few trials. Figures of excluded trials do not answer a question."
    ),
)


def answers_report(found: OpenQuestions, *, with_unproven: bool = False) -> Report:
    """Return the report; `with_unproven` adds findings that rest on excluded trials alone."""
    blocks: list[Block] = [Paragraph(text) for text in _ANSWERS_INTRODUCTION]
    proven = set()
    for question in found.questions:
        blocks.append(Heading(f"{question.id}: {question.question}"))
        if question.known:
            blocks.append(Paragraph(question.known, tone="soft"))
        for run, one in question.findings:
            note = f" ({one.note})" if one.note else ""
            text = f"{one.sentence.rstrip('.')}{note}. `{run.experiment}`, {host_class(run)}"
            if one.is_proven:
                proven.add(run.run_id)
                blocks.append(Paragraph(text, marker="•"))
            elif with_unproven:
                blocks.append(Paragraph(text, tone="soft", marker="?"))
        if question.is_open:
            blocks.append(Paragraph("Open: no run here has answered it.", tone="warning"))
    answered = sum(not question.is_open for question in found.questions)
    text = f"{answered} of {len(found.questions)} questions are answered by these runs."
    runs = [run for run in found.runs.values() if run.run_id in proven]
    blocks += [Heading("Runs"), Paragraph(text), _run_table(runs)]
    return Report("Open questions of the articles, and answers", tuple(blocks))
