"""Section of a run's report: the minima that its article publishes, beside the measured ones."""

from __future__ import annotations

from collections.abc import Iterator

from analysis.data.load import Run
from analysis.formatting import format_published, format_quantity
from analysis.summaries.minima import minima
from pagecage.report.model import Block, Heading, Paragraph, make_table


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
