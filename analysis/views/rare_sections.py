"""Sections of a report that few runs have: published minima, volumes, searches for memory."""

from __future__ import annotations

from collections.abc import Iterator

from analysis.data.load import Run
from analysis.formatting import format_published, format_quantity, treatment_label
from analysis.summaries.memory import memory_run, step_rows
from analysis.summaries.minima import minima
from analysis.summaries.volumes import VolumeSummary, volume_summaries
from pagecage.report.model import Block, Heading, Paragraph, make_table

LEAST_SHARE = 0.005
"""Limits that were met for less than this share of the time are left out."""
_COLUMNS = (
    "waited for: limits of the volume or its instance, with the share of the time in which requests"
    " waited; read, write: mean latency by the volume's clock; late: replies later than the model"
    " decided; path: the way to the volume, with its latency, which was taken off; witnesses: the"
    " diagnosis and the volume's account"
)
_STEP_COLUMNS = (
    "medians of the trials that count; loss: of time, against all of the memory; refaults,"
    " anonymous, major faults: pages of the measured part; in brackets: no trial counts"
)
_DILATED = (
    "The volume was slowed down by the factor in the table: its rates were divided and its"
    " latencies multiplied. Times at full speed are the measured ones divided by it."
)


def minima_section(run: Run) -> Iterator[Block]:
    """Yield a table of the least figure per treatment; nothing without a published minimum."""
    found = minima(run)
    if not found:
        return
    yield Heading("Minima")
    yield Paragraph("The article publishes the minimum of its trials, so that minima are compared.")
    rows = [
        [
            one.label,
            format_quantity(one.response, one.minimum),
            str(one.n),
            ", ".join(
                f"{format_published(value, unit)} ({id_})"
                for id_, (value, unit) in one.published.items()
            ),
        ]
        for one in found
    ]
    yield make_table(["treatment", "minimum", "trials", "published"], rows)


def memory_section(run: Run) -> Iterator[Block]:
    """Yield the answer of a search for memory and a table of its steps; nothing for other runs."""
    found = memory_run(run)
    if found is None:
        return
    answer, *others = found.sentences
    yield Paragraph(answer, tone="strong", marker="•")
    yield from (Paragraph(sentence, marker="•") for sentence in others)
    rows = step_rows(found)
    if rows:
        yield Heading("Memory and time")
        yield make_table(list(rows[0]), [list(row.values()) for row in rows], _STEP_COLUMNS)


def volume_section(run: Run) -> Iterator[Block]:
    """Yield a table of the simulated volumes; nothing if a cgroup enforces all limits."""
    found = volume_summaries(run)
    if not found:
        return
    is_dilated = any(one.dilation != 1 for one in found)
    yield Heading("Simulated volumes")
    if is_dilated:
        yield Paragraph(_DILATED, tone="soft")
    titles = ["treatment", *(["slowed down", "at full speed"] if is_dilated else [])]
    titles += ["waited for", "read", "write", "late", "path", "witnesses"]
    rows = [_row(run, one, is_dilated=is_dilated) for one in found]
    yield make_table(titles, rows, _COLUMNS)


def _row(run: Run, one: VolumeSummary, *, is_dilated: bool) -> list[str]:
    speed = format_quantity(run.response, one.undilated) if one.undilated is not None else ""
    dilation = [f"{one.dilation:g}x", speed] if is_dilated else []
    shares = (f"{name} {share:.0%}" for name, share in one.met.items() if share >= LEAST_SHARE)
    met = ", ".join(shares) or "no limit"
    agreeing = one.trials - one.disagreeing
    disk = "" if one.disk is None else f", disk {one.disk}"
    return [
        treatment_label(one.treatment) + disk,
        *dilation,
        met,
        *(_latency(mean_us) for mean_us in one.latencies_us),
        f"{one.late_share:.1%}",
        ", ".join(one.paths) + ("" if one.path_us is None else f", {one.path_us:.0f} us"),
        f"agree {agreeing}/{one.trials}",
    ]


def _latency(mean_us: float | None) -> str:
    return "" if mean_us is None else f"{mean_us / 1000:.2f} ms"
