"""A report as plain data, independent of how it is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

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


@dataclass(frozen=True)
class Cell:
    """A table cell; `detail` is shown in small below the text."""

    text: str
    detail: str = ""
    tone: Tone = "plain"


@dataclass(frozen=True)
class Table:
    """A table; every row has one cell per column."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""


@dataclass(frozen=True)
class BarChart:
    """One bar for each label; what Markdown shows in place of a figure."""

    title: str
    labels: tuple[str, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class Image:
    """A figure; `svg` draws it for HTML, or returns None if there is nothing to draw.

    It is a function because drawing takes longer than everything else. `bars` is its short form
    for Markdown; None for none.
    """

    svg: Callable[[], str | None]
    bars: BarChart | None = None


@dataclass(frozen=True)
class Folded:
    """Blocks that HTML collapses below a summary, and that text leaves out."""

    summary: str
    blocks: tuple[Block, ...]


Block = Heading | Paragraph | Table | Image | Folded


@dataclass(frozen=True)
class Report:
    """A title and the blocks below it."""

    title: str
    blocks: tuple[Block, ...]


def make_table(
    columns: Sequence[str], rows: Iterable[Sequence[str | Cell]], caption: str = ""
) -> Table:
    """Return a table whose cells may be given as text.

    The lines of a text after its first become the cell's detail.
    """
    return Table(tuple(columns), tuple(tuple(map(_cell, row)) for row in rows), caption)


def _cell(value: str | Cell) -> Cell:
    if isinstance(value, Cell):
        return value
    text, _, detail = value.partition("\n")
    return Cell(text, detail)
