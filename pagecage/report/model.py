"""Reports as values: titles, tables and pictures, and their Markdown and CSV."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from io import StringIO
from types import MappingProxyType
from typing import Any, Literal

Tone = Literal["plain", "strong", "soft", "good", "bad", "warning"]
"""The emphasis of a text; each renderer maps it to a colour or style."""


@dataclass(frozen=True)
class Heading:
    """The heading of the blocks that follow it."""

    text: str


@dataclass(frozen=True)
class Paragraph:
    """A text with an optional remark; with a `marker` it is an item of a list.

    In `text`, as in definitions, `code` is between backticks.
    """

    text: str
    detail: str = ""
    tone: Tone = "plain"
    marker: str = ""


SHADES = 7
"""Shades of a cell on a page, which has a colour for each."""


@dataclass(frozen=True)
class Cell:
    """A table cell; `detail` is shown in small below the text.

    `shade` counts from 0, the fastest figure of the table, to SHADES - 1, the slowest.
    """

    text: str
    detail: str = ""
    tone: Tone = "plain"
    shade: int | None = None


@dataclass(frozen=True)
class Table:
    """A table; every row has one cell per column. `left_out` counts rows that it lacks.

    Each of the `footnotes` is a line below the table, and begins with the mark of its cells.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    left_out: int = 0
    footnotes: tuple[str, ...] = ()


@dataclass(frozen=True)
class BarChart:
    """One bar for each label; `texts` has the figures with units, which Markdown leaves out."""

    title: str
    labels: tuple[str, ...]
    values: tuple[float, ...]
    texts: tuple[str, ...] = ()

    @property
    def is_logarithmic(self) -> bool:
        """True if the least bar would be too short to see on a linear scale."""
        known = [value for value in self.values if value > 0]
        return bool(known) and max(known) > _MOST_LINEAR * min(known)

    def lengths(self) -> list[float]:
        """Return the bars' lengths as shares of the longest one."""
        known = [value for value in self.values if value > 0] or [1.0]
        low, high = min(known), max(known)
        if not self.is_logarithmic:
            return [max(0.0, value) / high for value in self.values]
        decades = math.log10(high / low) + _SHORTEST_DECADES
        return [
            (math.log10(value / low) + _SHORTEST_DECADES) / decades if value > 0 else 0.0
            for value in self.values
        ]


_MOST_LINEAR = 40.0
"""Ratio of the longest to the shortest bar above which the scale is logarithmic."""
_SHORTEST_DECADES = 0.3


@dataclass(frozen=True)
class Strip:
    """The top of a report: its result, the binding limit, its validity, and one picture.

    `is_proven` is False for a result without a proven figure.
    """

    result: str
    limit: str = ""
    trust: str = ""
    chart: BarChart | None = None
    is_proven: bool = True

    @property
    def lines(self) -> tuple[tuple[str, str], ...]:
        """The lines below the result, with their names; empty ones are left out."""
        named = (("limit", self.limit), ("valid", self.trust))
        return tuple((name, text) for name, text in named if text)


@dataclass(frozen=True)
class Image:
    """A figure; `svg` draws it for HTML, or returns None if there is nothing to draw.

    It is a function because drawing takes longer than everything else.
    """

    svg: Callable[[], str | None]


@dataclass(frozen=True)
class Folded:
    """Blocks that HTML collapses below a summary, and that text leaves out."""

    summary: str
    blocks: tuple[Block, ...]


Block = Strip | Heading | Paragraph | Table | Image | Folded


@dataclass(frozen=True)
class Report:
    """A title and the blocks below it; a terminal shows `rest` only if all is asked for."""

    title: str
    blocks: tuple[Block, ...]
    rest: tuple[Block, ...] = ()


def make_table(
    columns: Sequence[str], rows: Iterable[Sequence[str | Cell]], caption: str = ""
) -> Table:
    """Return a table whose cells may be given as text."""

    def cell(value: str | Cell) -> Cell:
        return value if isinstance(value, Cell) else Cell(*value.partition("\n")[::2])

    return Table(tuple(columns), tuple(tuple(map(cell, row)) for row in rows), caption)


_MOST_BARS = 16


def csv_text(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return rows as CSV (RFC 4180, but with plain newlines)."""
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(["" if value is None else value for value in row] for row in rows)
    return out.getvalue()


def to_markdown(report: Report) -> str:
    """Return a report as Markdown; folded blocks and images are left out."""
    parts = [f"# {markdown_text(report.title)}\n"]
    previous: Block | None = None
    for block in (*report.blocks, *report.rest):
        for text in _markdown(block):
            is_next_item = _is_item(block) and _is_item(previous)
            parts.append(text if is_next_item else f"\n{text}")
            previous = block
    return "".join(parts)


def _is_item(block: Block | None) -> bool:
    return isinstance(block, Paragraph) and bool(block.marker)


def _markdown(block: Block) -> Iterator[str]:
    match block:
        case Strip():
            yield f"**{markdown_text(block.result)}**\n"
            yield "".join(f"* {name}: {markdown_text(text)}\n" for name, text in block.lines)
            yield mermaid(block.chart) if block.chart else ""
        case Heading(text):
            yield f"## {markdown_text(text)}\n"
        case Paragraph():
            detail = f" ({block.detail})" if block.detail else ""
            yield f"{'* ' if block.marker else ''}{markdown_text(block.text + detail)}\n"
        case Table() if block.rows:
            texts = (
                [f"{cell.text}\n{cell.detail}" if cell.detail else cell.text for cell in row]
                for row in block.rows
            )
            below = (*([block.caption] if block.caption else []), *block.footnotes)
            yield markdown_table(block.columns, texts) + "".join(
                f"\n{markdown_text(text)}\n" for text in below
            )
        case _:
            pass


def mermaid(chart: BarChart) -> str:
    """Return a chart as a block of Mermaid, which GitHub and GitLab draw in Markdown.

    Both refuse pictures within the text (SVG, data URIs). Of long charts the first bars are drawn:
    Mermaid shrinks nothing, so that more would overlap.
    """
    labels = ", ".join(f'"{_quoted(label)}"' for label in chart.labels[:_MOST_BARS])
    # Six digits and no exponent, which Mermaid cannot read.
    values = ", ".join(format(Decimal(f"{value:.6g}"), "f") for value in chart.values[:_MOST_BARS])
    left_out = len(chart.labels) - _MOST_BARS
    note = f" (without {left_out} more)" if left_out > 0 else ""
    lines = [
        "```mermaid",
        "xychart-beta horizontal",
        f'    title "{_quoted(chart.title)}{note}"',
        f"    x-axis [{labels}]",
        f"    bar [{values}]",
        "```",
    ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """Return text for a string of Mermaid, which has no escape for a quotation mark."""
    return " ".join(text.replace('"', "'").replace("`", "'").split())


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in pipe syntax; characters that would end a cell or a line are escaped."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(map(_escape, line))} |\n" for line in lines)


def _escape(text: str) -> str:
    text = text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
    return _inert(text).replace("\n", "<br>")


def markdown_text(text: str) -> str:
    """Return text as one line of Markdown in which only code between backticks is marked up.

    HTML, links, images, and the roles and directives of MyST, which read files, become text.
    """
    line = " ".join(text.split("\n"))
    return re.sub(r"^\s*([~:]{3})", r"\\\1", _inert(line, {"<": "&lt;"}))


_CODE = re.compile(r"(`[^`]+`)")
_ACTIVE = {"[": "\\[", "{": "\\{", "`": "\\`"}


def _inert(text: str, more: Mapping[str, str] = MappingProxyType({})) -> str:
    """Escape outside of code between single backticks."""
    signs = str.maketrans({**_ACTIVE, **more})
    parts = _CODE.split(text)
    return "".join(
        part if number % 2 else part.translate(signs) for number, part in enumerate(parts)
    )
