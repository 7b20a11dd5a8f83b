"""Reports on a terminal."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from textwrap import shorten

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from pagecage.report.model import Block, Cell, Heading, Paragraph, Report, Strip, Table, Tone

_STYLES: dict[Tone, str] = {
    "plain": "",
    "strong": "bold",
    "soft": "dim",
    "good": "green",
    "bad": "red",
    "warning": "yellow",
}


MOST_LINES = 26
"""Lines of a report that is not asked for as a whole, on a screen of 30 with other output."""
_FEWEST_ROWS = 3
_MOST_LETTERS = 80
"""Letters of a cell on one screen; `-v` prints the rest."""
_BAR_COLUMNS = 30


def terminal_text(report: Report, *, whole: bool = False) -> str:
    """Return a report as this terminal shows it: with its width, and its colours if it has any.

    Unless `whole`, it has one screen at most: details, bars and the last rows give way.
    """
    has_colours = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    width = shutil.get_terminal_size().columns

    def text(shown: Report) -> str:
        console = Console(file=(out := StringIO()), width=width, force_terminal=has_colours or None)
        print_report(shown, console)
        return out.getvalue()

    if whole:
        return text(Report(report.title, (*report.blocks, *report.rest)))
    if report.rest:
        hint = Paragraph("-v prints the rest", tone="soft")
        report = replace(report, blocks=(*report.blocks, hint))
    shown = text(report)
    for kind in (Table, Strip):  # first the details beyond a line in each cell, then the bars
        if shown.count("\n") > MOST_LINES:
            blocks = (_shorter(one) if isinstance(one, kind) else one for one in report.blocks)
            report = replace(report, blocks=tuple(blocks))
            shown = text(report)
    while (excess := shown.count("\n") - MOST_LINES) > 0 and (
        shorter := _with_fewer_rows(report, excess)
    ):
        report, shown = shorter, text(shorter)
    return shown


def _shorter(block: Table | Strip) -> Block:
    if isinstance(block, Strip):
        return replace(block, chart=None)
    rows = ([_short_cell(cell) for cell in row] for row in block.rows)
    return replace(block, rows=tuple(map(tuple, rows)))


def _short_cell(cell: Cell) -> Cell:
    text, detail = (
        part if len(part) <= _MOST_LETTERS else shorten(part, _MOST_LETTERS, placeholder=" …")
        for part in (cell.text, cell.detail.partition("\n")[0])
    )
    return replace(cell, text=text, detail=detail)


def _with_fewer_rows(report: Report, excess: int) -> Report | None:
    """Return the report with a shorter last table; None if that is short already.

    A row has two lines at most on a terminal that is wide enough, and the note on them has one.
    """
    blocks = list(report.blocks)
    for at, block in reversed(list(enumerate(blocks))):
        if isinstance(block, Table) and len(block.rows) > _FEWEST_ROWS:
            kept = max(_FEWEST_ROWS, len(block.rows) - max(1, excess // 2))
            left_out = block.left_out + len(block.rows) - kept
            blocks[at] = replace(block, rows=block.rows[:kept], left_out=left_out)
            return replace(report, blocks=tuple(blocks))
    return None


def print_report(report: Report, console: Console) -> None:
    """Print a report's blocks; images and folded blocks are left out."""
    console.print(Text(report.title, "bold"))
    for block in report.blocks:
        for part in _parts(block):
            console.print(part)


def _parts(block: Block) -> Iterator[RenderableType]:
    match block:
        case Strip():
            yield from _strip(block)
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
            if block.left_out:
                yield Text(f"… and {block.left_out} more rows", "dim")
            if block.caption:
                yield Text(block.caption, "dim")
            yield from (Text(note, "dim") for note in block.footnotes)
        case _:
            pass


def _strip(block: Strip) -> Iterator[RenderableType]:
    yield Text(block.result, "bold" if block.is_proven else "bold yellow")
    lines = RichTable.grid(padding=(0, 1, 0, 0))
    for name, text in block.lines:
        lines.add_row(Text(name, "dim"), Text(text))
    if block.lines:
        yield lines
    if chart := block.chart:
        yield ""
        yield Text(f"{chart.title}{' (log scale)' if chart.is_logarithmic else ''}", "dim")
        bars = RichTable.grid(padding=(0, 1, 0, 0))
        for label, length, text in zip(chart.labels, chart.lengths(), chart.texts, strict=True):
            bar = "█" * max(1, round(_BAR_COLUMNS * length)) if length else ""
            bars.add_row(Text(label), Text(bar, "cyan"), Text(text))
        yield bars
    yield ""


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
