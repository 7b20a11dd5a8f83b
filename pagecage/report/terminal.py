"""Reports on a terminal."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from io import StringIO

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from pagecage.report.model import Block, Heading, Paragraph, Report, Table, Tone

_STYLES: dict[Tone, str] = {
    "plain": "",
    "strong": "bold",
    "soft": "dim",
    "good": "green",
    "bad": "red",
    "warning": "yellow",
}


def terminal_text(report: Report) -> str:
    """Return a report as this terminal shows it: with its width, and its colours if it has any."""
    has_colours = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    console = Console(
        file=(text := StringIO()),
        width=shutil.get_terminal_size().columns,
        force_terminal=has_colours or None,
    )
    print_report(report, console)
    return text.getvalue()


def print_report(report: Report, console: Console) -> None:
    """Print a report; images and folded blocks are left out."""
    console.print(Text(report.title, "bold"))
    for block in report.blocks:
        for part in _parts(block):
            console.print(part)


def _parts(block: Block) -> Iterator[RenderableType]:
    match block:
        case Heading(title):
            yield ""
            yield Text(title, "bold")
        case Paragraph():
            text = Text(block.text, _STYLES[block.tone])
            if block.detail:
                text.append(f" ({block.detail})", "dim")
            if not block.marker:
                yield text
                return
            item = RichTable.grid(padding=(0, 1, 0, 0))
            item.add_row(Text(block.marker, _STYLES[block.tone]), text)
            yield Padding(item, (0, 0, 0, 2), expand=False)
        case Table() if block.rows:
            yield _table(block)
            if block.caption:
                yield Text(block.caption, "dim")
        case _:
            pass


def _table(block: Table) -> RichTable:
    table = RichTable(
        box=None, pad_edge=False, header_style="bold", show_edge=False, padding=(0, 2, 0, 0)
    )
    for name in block.columns:
        table.add_column(Text(name), overflow="fold")
    for row in block.rows:
        texts = [Text(cell.text, _STYLES[cell.tone]) for cell in row]
        for text, cell in zip(texts, row, strict=True):
            if cell.detail:
                text.append(f"\n{cell.detail}", "dim")
        table.add_row(*texts)
    return table
