"""Self-contained HTML: tables, figures with alternative texts, and collapsible parts."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from analysis.figures.style import drawing_style, svg
from pagecage.errors import PagecageError
from pagecage.report.model import (
    Block,
    Cell,
    Folded,
    Heading,
    Image,
    Paragraph,
    Report,
    Tone,
)
from pagecage.whole_files import write_whole

_MARKED = {"✓": "good", "✗": "bad"}


@dataclass(frozen=True, repr=False)
class Html:
    """HTML as the value of a notebook cell."""

    text: str

    def __repr__(self) -> str:
        """Return a short text, because a notebook stores it beside the HTML."""
        return f"<HTML of {len(self.text):,} characters>"

    def _repr_html_(self) -> str:
        return self.text


def definition_text_html(text: str) -> str:
    """Return a text of the definition as HTML, with `code` for what is between backticks."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def with_heading(heading: str, part: Html | None, introduction: str = "") -> Html | None:
    """Return a part below its heading; None if there is no part."""
    paragraph = f"<p>{introduction}</p>" if introduction else ""
    return Html(f"<h3>{escape(heading)}</h3>{paragraph}{part.text}") if part else None


def folded_table(
    summary: str, frame: pd.DataFrame, kind: str = "", *, counted: bool = True
) -> Html | None:
    """Return a collapsible table; None if it is empty."""
    part, number = table_html(frame, kind), f" ({len(frame)})" if counted else ""
    head = f"<summary>{escape(summary)}{number}</summary>"
    return Html(f"<details>{head}{part.text}</details>") if part else None


def blank_repeats(frame: pd.DataFrame, columns: int) -> pd.DataFrame:
    """Blank the levels of the first columns that repeat the row above."""
    shown = frame.copy()
    for column in range(max(0, columns)):
        above = frame.iloc[:, : column + 1].shift().eq(frame.iloc[:, : column + 1]).all(axis=1)
        shown.iloc[:, column] = frame.iloc[:, column].mask(above, "")
    return shown


def table_html(frame: pd.DataFrame, kind: str = "") -> Html | None:
    """Return a frame as a scrollable table; None if it is empty."""
    if frame.empty:
        return None

    def heading(name: object) -> object:
        return escape(name) if isinstance(name, str) else name

    # Levels of a definition are among the names of columns.
    cells = frame.map(_cell_html).rename(columns=heading).rename_axis(columns=heading)
    text = cells.to_html(
        classes=f"pagecage {kind}".strip(), border=0, index=False, escape=False, justify="left"
    )
    return Html(f'<div class="scroll">{text}</div>')


def _cell_html(value: object) -> str:
    """Return a cell's first line, and further lines in small below it; marks are coloured."""
    first, *rest = escape(str(value)).split("\n")
    kind = _MARKED.get(first[:1])
    text = f'<span class="{kind}">{first}</span>' if kind else first
    return text + "".join(map(_small, rest))


_LONG_LINE = 60
"""A longer line below a figure is a sentence, which may wrap."""
_LONG = ' class="long"'


def figure_html(draw: Callable[[], Figure | None], alt_text: Callable[[], str]) -> Html | None:
    """Return a drawn figure with its alternative text; None if nothing was drawn."""
    with drawing_style():
        figure = draw()
    return Html(svg_html(figure, alt_text())) if figure else None


def svg_html(figure: Figure, alt_text: str, caption: str = "") -> str:
    """Return a figure as scrollable SVG."""
    figcaption = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f'<figure>{figcaption}<div class="scroll">{svg(figure, escape(alt_text))}</div></figure>'


PAGE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"
"""Content-Security-Policy of a page that is one file: no script runs in it, and nothing is loaded.
"""
_TEMPLATE = Path(__file__).parents[1] / "templates/offline"
_SHEETS = ("page.css", "parts.css")


def write_page(content: str, target: Path) -> None:
    """Write a page to a temporary file, then rename it. Raises PagecageError if that fails."""
    try:
        write_whole(target, content)
    except OSError as error:
        message = f"{target} cannot be written: {error.strerror}"
        raise PagecageError(message, "name another --html") from None


def to_html(report: Report, page_title: str) -> str:
    """Return a report as a page in the project's style that loads no other file."""
    body = f"<h1>{escape(report.title)}</h1>\n{blocks_html(report.blocks)}"
    sheets = "".join((_TEMPLATE / name).read_text() for name in _SHEETS)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{PAGE_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light dark">\n<title>{escape(page_title)}</title>\n'
        f"<style>\n{sheets}</style>\n</head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n"
    )


def blocks_html(blocks: Iterable[Block]) -> str:
    """Return a report's blocks as HTML; neighbouring items become one list."""
    parts = []
    for is_list, group in itertools.groupby(
        blocks, lambda block: isinstance(block, Paragraph) and bool(block.marker)
    ):
        body = "".join(map(_block, group))
        parts.append(f"<ul>\n{body}</ul>\n" if is_list else body)
    return "".join(parts)


def _block(block: Block) -> str:
    match block:
        case Heading(text):
            return f"<h2>{escape(text)}</h2>\n"
        case Paragraph():
            detail = f"<small>{definition_text_html(block.detail)}</small>" if block.detail else ""
            tag, kind = "li" if block.marker else "p", _CLASSES[block.tone]
            attribute = f' class="{kind}"' if kind else ""
            return f"<{tag}{attribute}>{definition_text_html(block.text)}{detail}</{tag}>\n"
        case Image(svg=draw):
            drawn = draw()
            return f'<figure><div class="scroll">{drawn}</div></figure>\n' if drawn else ""
        case Folded(summary, folded):
            return f"<details><summary>{escape(summary)}</summary>{blocks_html(folded)}</details>\n"
    if not block.rows:
        return ""
    head = "".join(f"<th>{escape(name)}</th>" for name in block.columns)
    rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>\n" for row in block.rows)
    caption = f'<p class="source">{escape(block.caption)}</p>\n' if block.caption else ""
    whole = f'<table class="pagecage"><thead><tr>{head}</tr></thead><tbody>\n{rows}</tbody></table>'
    return f'<div class="scroll">{whole}</div>\n{caption}'


_CLASSES: dict[Tone, str] = {
    "plain": "",
    "strong": "question",
    "soft": "source",
    "good": "good",
    "bad": "bad",
    "warning": "notice warn",
}


def _cell(cell: Cell) -> str:
    kind = _CLASSES[cell.tone]
    text = f'<span class="{kind}">{escape(cell.text)}</span>' if kind else escape(cell.text)
    lines = escape(cell.detail).split("\n") if cell.detail else []
    return f"<td>{text}{''.join(map(_small, lines))}</td>"


def _small(line: str) -> str:
    return f"<small{_LONG if len(line) > _LONG_LINE else ''}>{line}</small>"
