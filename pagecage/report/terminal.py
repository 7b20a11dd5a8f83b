"""Reports on a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from pagecage.report.model import Block, Cell, Heading, Paragraph, Report, Table, Tone

_STYLES: dict[Tone, str] = {
    "plain": "",
    "strong": "bold",
    "soft": "dim",
    "good": "green",
    "bad": "red",
    "warning": "yellow",
}


def print_report(report: Report, console: Console) -> None:
    """Print a report; images and folded blocks are left out."""
    console.print(Text(report.title, "bold"))
    for block in report.blocks:
        for part in _parts(block):
            console.print(part)


def _parts(block: Block) -> Iterator[RenderableType]:
    match block:
        case Heading(text):
            yield ""
            yield Text(text, "bold")
        case Paragraph():
            yield _paragraph(block)
        case Table() if block.rows:
            yield _table(block)
            if block.caption:
                yield Text(block.caption, "dim")
        case _:
            pass


def _paragraph(block: Paragraph) -> RenderableType:
    text = Text(block.text, _STYLES[block.tone])
    if block.detail:
        text.append(f" ({block.detail})", "dim")
    if not block.marker:
        return text
    item = RichTable.grid(padding=(0, 1, 0, 0))
    item.add_row(Text(block.marker, _STYLES[block.tone]), text)
    return Padding(item, (0, 0, 0, 2), expand=False)


def _table(block: Table) -> RichTable:
    table = RichTable(
        box=None, pad_edge=False, header_style="bold", show_edge=False, padding=(0, 2, 0, 0)
    )
    for name in block.columns:
        table.add_column(Text(name), overflow="fold")
    for row in block.rows:
        table.add_row(*map(_cell, row))
    return table


def _cell(cell: Cell) -> Text:
    text = Text(cell.text, _STYLES[cell.tone])
    return text.append(f"\n{cell.detail}", "dim") if cell.detail else text
