"""Sections of a run's report: ratios over two factors, beside the published ratio."""

from __future__ import annotations

from collections.abc import Iterator

from analysis.claims.ratio_tables import RatioGrid, ratio_tables
from analysis.data.load import Run
from analysis.formatting import format_quantity, format_summary
from pagecage.report.model import Block, Cell, Heading, Paragraph, make_table


def ratio_sections(run: Run) -> Iterator[Block]:
    """Yield each table of ratios with its title; nothing if the definition has none."""
    for table in ratio_tables(run):
        yield Heading(table.title)
        if about := _about(table):
            yield Paragraph(about)
        yield make_table(
            [f"{table.row_factor} \\ {table.column_factor}", *table.columns],
            [[row, *(_cell(table, row, column) for column in table.columns)] for row in table.rows],
        )


def _about(table: RatioGrid) -> str:
    if table.published is None:
        return table.about
    near = sum(map(table.is_as_published, table.ratios.values()))
    published = format_quantity("amplification", table.published)
    sentence = (
        f"{near} of {len(table.ratios)} ratios are the published {published} within a factor of"
        f" {table.tolerance_factor:g}; they are marked ●."
    )
    return f"{table.about} {sentence}".strip()


def _cell(table: RatioGrid, row: str, column: str) -> Cell:
    ratio = table.ratios.get((row, column))
    if ratio is None:
        return Cell("", tone="soft")
    text = format_summary("amplification", ratio, is_ratio=True)
    is_near = table.is_as_published(ratio)
    return Cell(f"● {text}" if is_near else text, tone="good" if is_near else "plain")
