"""The fidelity of simulated volumes: rates, latencies, credits, hosts, and tails at the cap."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from analysis.data.load import Run
from analysis.data.volume_checks import VolumeCheck
from analysis.formatting import treatment_label
from analysis.summaries.cells import make_cell, treatments
from analysis.summaries.guest_ratios import guest_ratios
from analysis.summaries.volumes import VolumeSummary, volume_summaries
from pagecage.report.model import Block, Heading, Paragraph, Report, make_table

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
